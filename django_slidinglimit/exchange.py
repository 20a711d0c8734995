"""Rules and overrides carried between databases and version control, by files.

A row of a file is matched with one in the database by what it is. First, rows that say the same are
the same. Of the others, a rule is known by its name, scope, path, key and methods, an override by
its rule and whom it is for. Overrides that have expired are history: they are neither exported
nor matched nor pruned.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from django.contrib.auth.models import Group
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import transaction
from django.utils import timezone

from . import documents
from .documents import InvalidFileError, M
from .loading import database
from .matching import Matches, match
from .models import Override, Rule

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

# Looked up when the file is read, or not in the file at all.
UNCHECKED = frozenset({"rule", "group", "created_by"})

NO_RULE = (
    "no rule has this name, scope, path, key and methods. Write all that the rule has of them; "
    "with pruning the rule must be in the file."
)
NAME_RULES = "Give each rule a name of its own, in the admin and in the file."
END_OVERRIDES = (
    "Delete or end the others in the admin, so that one is for this rule and client, group or "
    "network; or have the file say the others as they are."
)


@dataclass(frozen=True)
class Change(Generic[M]):
    """What an import does to one row.

    Args:
        row: the row as it will be; of one that is removed, as it is.
        was: the row as it is; None if there is none yet.
        removed: whether it goes.
    """

    row: M
    was: M | None = None
    removed: bool = False

    @property
    def verb(self) -> str:
        """What happens: added, changed or removed."""
        return "removed" if self.removed else "added" if self.was is None else "changed"

    def lines(self) -> Iterator[str]:
        """The change for people: one line, and one for each field that is another then."""
        yield f"{self.verb} {_label(self.row)}"
        if self.removed:
            return
        before = documents.fields(self.was or type(self.row)())
        for name, value in documents.fields(self.row).items():
            if value == before[name]:
                continue
            if self.was is not None:
                yield f"    {name}: {_shown(before[name])} -> {_shown(value)}"
            elif name not in (*documents.IDENTITY, *documents.TARGET):
                yield f"    {name}: {_shown(value)}"


@dataclass
class Plan:
    """What an import does.

    Args:
        rules, overrides: the changes.
        unchanged: how many rows of the file are in the database as they stand.
        expired: how many overrides of the file have expired, and are left out.
    """

    rules: list[Change[Rule]] = field(default_factory=list)
    overrides: list[Change[Override]] = field(default_factory=list)
    unchanged: int = 0
    expired: int = 0

    def changes(self) -> Iterator[Change[Any]]:
        """All changes, in an order in which they can be made."""
        yield from (change for change in self.rules if not change.removed)
        yield from self.overrides
        yield from (change for change in self.rules if change.removed)

    def lines(self) -> Iterator[str]:
        """The difference for people."""
        for change in self.changes():
            yield from change.lines()
        counts = Counter(change.verb for change in self.changes())
        told = [f"{counts[verb]} {verb}" for verb in ("added", "changed", "removed")]
        told.append(f"{self.unchanged} unchanged")
        if self.expired:
            told.append(f"{self.expired} expired and left out")
        yield ", ".join(told)


def dumps() -> str:
    """All rules, and the overrides that have not expired, as JSON; the same rows, the same text."""
    rules, overrides = _stored()
    return documents.dumps(rules, [row for row in overrides if not _has_expired(row)])


def compare(text: str, *, prune: bool = False) -> Plan:
    """What an import would do.

    Args:
        text: the file.
        prune: remove rows that are not in the file.

    Raises:
        InvalidFileError: something is wrong with the file; it names all that is.
    """
    return _plan(text, prune, *_stored())


def load(text: str, *, prune: bool = False, user: Any = None) -> Plan:
    """Import a file, all of it or nothing; others wait meanwhile with writing rules.

    Args:
        text: the file.
        prune: remove rows that are not in the file.
        user: who makes the overrides that are new.

    Raises:
        InvalidFileError: as for `compare`; nothing is written.
    """
    alias = database()
    with transaction.atomic(using=alias):
        plan = _plan(text, prune, *_stored(lock=True))
        for change in plan.changes():
            if change.removed:  # by a query: the row keeps its key for whoever tells of it
                type(change.row).objects.using(alias).filter(pk=change.row.pk).delete()
                continue
            if isinstance(change.row, Override) and change.was is None:
                change.row.created_by = user
            change.row.save(using=alias)
    return plan


def _stored(*, lock: bool = False) -> tuple[list[Rule], list[Override]]:
    """All rows where they are written, overrides with their rules and groups at hand."""
    alias = database()
    rules, overrides = Rule.objects.using(alias), Override.objects.using(alias)
    if lock:
        # SQLite knows no SELECT FOR UPDATE. There, a write locks, even one of no row, and it must
        # come before what is read.
        Rule._base_manager.using(alias).filter(pk=-1).update(name="")
        rules, overrides = rules.select_for_update(), overrides.select_for_update()
    by_key = {rule.pk: rule for rule in rules.order_by("pk")}
    groups = Group.objects.using(alias).in_bulk()
    found = list(overrides.order_by("pk"))
    for row in found:
        row.rule = by_key[row.rule_id] if row.rule_id is not None else None
        row.group = groups[row.group_id] if row.group_id is not None else None
    return list(by_key.values()), found


def _plan(text: str, prune: bool, rules: list[Rule], overrides: list[Override]) -> Plan:
    groups = {group.name: group for group in Group.objects.using(database())}
    rule_entries, override_entries = documents.loads(text, groups)
    errors = {entry.where: _clean(entry.row) for entry in rule_entries}
    errors |= {entry.where: _clean(entry.row) for entry in override_entries}

    rule_matches = match(rule_entries, rules, documents.identity, NAME_RULES)
    plan = Plan(_changes(rule_matches, prune), unchanged=len(rule_matches.same))
    problems = _problems(rule_matches, errors)

    # Overrides are for the rules as they will be.
    there_will_be = defaultdict(list)
    for rule in (*rule_matches.same, *(change.row for change in plan.rules if not change.removed)):
        there_will_be[documents.identity(rule)].append(rule)
    if not prune:
        for rule in rule_matches.left:
            there_will_be[documents.identity(rule)].append(rule)
    for entry in override_entries:
        if entry.rule is None:
            continue
        found = there_will_be[entry.rule]
        if len(found) == 1:
            entry.row.rule = found[0]
        else:
            problem = f"{len(found)} rules are called that. {NAME_RULES}" if found else NO_RULE
            problems.append(f"{entry.where}.rule: {problem}")

    live = [row for row in overrides if not _has_expired(row)]
    matches = match(override_entries, live, _target, END_OVERRIDES)
    current = [entry for entry in matches.new if not _has_expired(entry.row)]
    plan.expired, matches.new = len(matches.new) - len(current), current
    problems += _problems(matches, errors)
    if problems:
        raise InvalidFileError(problems)
    gone = {change.row.pk for change in plan.rules if change.removed}
    history = (row for row in overrides if _has_expired(row) and row.rule_id in gone)
    plan.overrides = [*_changes(matches, prune), *(Change(row, removed=True) for row in history)]
    plan.unchanged += len(matches.same)
    return plan


def _changes(matches: Matches[M], prune: bool) -> list[Change[M]]:
    changes = [Change(entry.row) for entry in matches.new]
    for entry, row in matches.other:
        was = copy(row)
        for name in documents.names(row):
            setattr(row, name, getattr(entry.row, name))
        changes.append(Change(row, was))
    return changes + [Change(row, removed=True) for row in matches.left if prune]


def _clean(row: Rule | Override) -> dict[str, list[str]]:
    """Check a row's fields, and write them as they are kept; what is wrong, by field."""
    try:
        row.full_clean(exclude=UNCHECKED, validate_unique=False, validate_constraints=False)
    except ValidationError as exc:
        return exc.message_dict
    return {}


def _problems(matches: Matches[Any], errors: dict[str, dict[str, list[str]]]) -> list[str]:
    """What is wrong with the rows that would be written, by their places in the file."""
    problems = list(matches.problems)
    found: dict[Hashable, dict[str, list[str]]] = {}
    for entry in (*matches.new, *(entry for entry, _row in matches.other)):
        wrong = errors[entry.where]
        if not wrong:
            # Constraints ask a database each time, but only which fields are filled in and what the
            # effect is: one row of each such sort tells. (On writing the database looks at all.)
            values = documents.fields(entry.row)
            sort = (values.get("effect"), *map(bool, values.values()))
            if sort not in found:
                found[sort] = _broken_constraints(entry.row)
            wrong = found[sort]
        for name, told in wrong.items():
            where = entry.where if name == NON_FIELD_ERRORS else f"{entry.where}.{name}"
            problems += [f"{where}: {message}" for message in told]
    return problems


def _broken_constraints(row: documents.Row) -> dict[str, list[str]]:
    try:
        row.validate_constraints()
    except ValidationError as exc:
        return exc.message_dict
    return {}


def _target(row: Override) -> Hashable:
    rule = documents.identity(row.rule) if row.rule else None
    return rule, row.kind, row.identity, row.group_id, row.network


def _has_expired(row: Override) -> bool:
    return row.expires is not None and row.expires <= timezone.now()


def _label(row: documents.Row) -> str:
    """Which row it is, in one line."""
    values = documents.fields(row)
    names = documents.IDENTITY if isinstance(row, Rule) else documents.TARGET
    told = [f"{name} {_shown(values[name])}" for name in names if values[name]]
    if isinstance(row, Rule):
        return f"rule: {', '.join(told)}"
    told[:1] = [f"rule {_shown(row.rule.name)}"] if row.rule else ["all rules", *told[:1]]
    return f"override: {', '.join(told) if len(told) > 1 else f'{told[0]}, everyone'}"


def _shown(value: Any) -> str:
    """A value as the file has it; characters that would steer a terminal are escaped by that."""
    return json.dumps(value, ensure_ascii=False)
