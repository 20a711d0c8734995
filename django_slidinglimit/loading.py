"""The rows in the database -> the rule set; only rows that have changed are compiled again.

What changed is found by comparing values, so that raw SQL is seen, too. All that grows with the
number of rows is a loop that gives way: see `load`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from django.contrib.auth import get_user_model
from django.core.exceptions import FieldError, ValidationError
from django.db import Error, router
from django.utils import timezone

from . import models
from .rules import RuleSet, StoredRule, compile_override, compile_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django.db.models import QuerySet

    from .overrides import Override, Target

logger = logging.getLogger("django_slidinglimit")

M = TypeVar("M", models.Rule, models.Override)
C = TypeVar("C")

# Rows that the database hands over at a time: few enough to take less than a millisecond.
CHUNK = 250
# Fields that no decision depends on.
UNREAD = frozenset({"description", "reason", "created_by", "created", "updated"})


class Row(NamedTuple, Generic[C]):
    """A row's values and what they compile to."""

    values: tuple[Any, ...]
    compiled: C


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was loaded: the rows by primary key, and the set made of them."""

    rules: Mapping[int, Row[StoredRule]] = field(default_factory=dict)
    overrides: Mapping[int, Row[tuple[Target, Override]]] = field(default_factory=dict)
    set: RuleSet = field(default_factory=RuleSet)


def load(last: Loaded, token: bytes | None, pause: Callable[[], None]) -> Loaded:
    """Read the rows from the database that is written to, and make a set of them.

    Args:
        last: what was loaded before.
        token: the version that the rows are at least as new as.
        pause: called after each small piece of work; sleeps when enough was done, so that requests
            in other threads are not kept waiting.

    Raises:
        Whatever the database raises. A row that does not compile is left out and told of.
    """
    alias = database()
    rows = models.Rule.objects.using(alias).exclude(mode=models.Rule.Mode.OFF)
    exceptions = models.Override.objects.using(alias).exclude(expires__lt=timezone.now())
    problems: dict[str, str] = {}
    rules = _read(rows, compile_rule, last.rules, problems, pause)
    overrides = _read(exceptions, compile_override, last.overrides, problems, pause)
    exceptional = last.set.overrides.changed(overrides.gone, overrides.new, groups_of, pause)
    made = last.set.changed(rules.gone, rules.new, exceptional, problems, token, pause)
    return Loaded(rules.rows, overrides.rows, made)


class _Read(NamedTuple, Generic[C]):
    """The rows of a table as they are now, and what that does to what was compiled before."""

    rows: dict[int, Row[C]]
    gone: list[C]
    new: list[C]


def _read(
    rows: QuerySet[M],
    compile_row: Callable[[M], C],
    last: Mapping[int, Row[C]],
    problems: dict[str, str],
    pause: Callable[[], None],
) -> _Read[C]:
    """Read the rows; one with the values that it had is what it was."""
    model = rows.model
    names = [f.attname for f in model._meta.concrete_fields if f.name not in UNREAD]
    key = names.index(model._meta.pk.attname)
    found: dict[int, Row[C]] = {}
    gone, new = [], []
    for values in rows.order_by().values_list(*names).iterator(chunk_size=CHUNK):
        pause()
        pk = values[key]
        row = last.get(pk)
        if row is not None and row.values == values:
            found[pk] = row
            continue
        made = model.from_db(rows.db, names, values)
        try:
            found[pk] = Row(values, compile_row(made))
        except Exception as exc:  # a project's own key, too, which may fail in its own ways
            problems[f"{model._meta.verbose_name} {pk}"] = f"{made}: {exc}"
            continue
        new.append(found[pk].compiled)
        if row is not None:
            gone.append(row.compiled)
    gone += [last[pk].compiled for pk in last.keys() - found.keys()]
    return _Read(found, gone, new)


def groups_of(identity: str) -> frozenset[int] | None:
    """The primary keys of the groups that a user is in; a user that there is not is in none.

    Returns:
        None if the database does not answer.
    """
    global _groups_failed
    users = get_user_model()._default_manager.using(database())
    try:
        found = users.filter(pk=identity).values_list("groups", flat=True)
        groups = frozenset(group for group in found if group is not None)
    except (ValueError, ValidationError, FieldError):  # no such key; a user model without groups
        return frozenset()
    except Error as error:
        if not _groups_failed:  # once per change, not once per request
            logger.error("The groups of users cannot be read, no override of a group: %s", error)
        _groups_failed = True
        return None
    _groups_failed = False
    return groups


_groups_failed = False


def database() -> str:
    """The alias of the database that rules are written to."""
    return router.db_for_write(models.Rule)
