"""Rules and overrides as JSON texts: rows written out, and read as rows that are not saved yet.

{"version": 1,
 "rules": [{"name": "items", "scope": "items", "rate": "100/min"}],
 "overrides": [{"rule": {"name": "items", "scope": "items"}, "group": "staff",
                "effect": "exempt"}]}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.conf import settings
from django.utils import timezone

from .models import Override, Rule, parse_methods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from django.contrib.auth.models import Group

Row = Rule | Override
M = TypeVar("M", Rule, Override)

VERSION = 1

# What a rule is known by in a file; its primary key is another in each database.
IDENTITY = ("name", "scope", "path", "key", "methods")
RULE = (
    *("name", "scope", "path", "methods", "key", "rate", "mode", "share"),
    *("no_identity", "when_down", "description"),
)
# Whom an override is for.
TARGET = ("rule", "kind", "identity", "group", "network")
OVERRIDE = (*TARGET, "effect", "rate", "expires", "reason")

# A rule's identity; its methods are in one order.
Identity = tuple[str, ...]


class InvalidFileError(ValueError):
    """A file cannot be imported.

    Args:
        problems: each with its place in the file, such as `rules[3].rate` (counted from 0).
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass
class Entry(Generic[M]):
    """A row of a file.

    Args:
        where: its place, such as `rules[3]`.
        row: what it says; of an override without its rule.
        rule: what the rule of an override is known by; None: it is for all rules.
    """

    where: str
    row: M
    rule: Identity | None = None


def identity(rule: Rule) -> Identity:
    """What a rule is known by."""
    return _known_by({name: getattr(rule, name) for name in IDENTITY})


def names(row: Row) -> tuple[str, ...]:
    """The fields that a file has of a row."""
    return RULE if isinstance(row, Rule) else OVERRIDE


def fields(row: Row) -> dict[str, Any]:
    """What a file says of a row."""
    if isinstance(row, Rule):
        return {name: getattr(row, name) for name in RULE}
    return {name: getattr(row, name) for name in OVERRIDE} | {
        "rule": {name: getattr(row.rule, name) for name in IDENTITY} if row.rule else None,
        "group": row.group.name if row.group else None,
        "expires": _written(row.expires) if row.expires else None,
    }


def dumps(rules: Iterable[Rule], overrides: Iterable[Override]) -> str:
    """Write rows, always in the same order."""
    document = {
        "version": VERSION,
        "rules": _sorted(rules),
        "overrides": _sorted(overrides),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def loads(
    text: str, groups: Mapping[str, Group]
) -> tuple[list[Entry[Rule]], list[Entry[Override]]]:
    """Read what `dumps` writes; fields that are left out have their defaults.

    Args:
        text: the file.
        groups: all groups of users, by name.

    Raises:
        InvalidFileError: it is no such file, or a field holds what is no value for it.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidFileError([f"This is not JSON: {exc}"]) from exc
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise InvalidFileError([f'This is no export of rules with "version": {VERSION}.'])
    problems = [
        f"{part}: there is no such part." for part in document.keys() - {"version", *_PARTS}
    ]
    # An absent list is no empty one: pruning would delete all.
    problems += [f"{p}: a list is wanted." for p in _PARTS if not isinstance(document.get(p), list)]
    if problems:
        raise InvalidFileError(problems)
    readers = {**_READERS, "group": lambda value: _group(value, groups)}
    rules = [
        _entry(Rule, RULE, f"rules[{n}]", given, readers, problems)
        for n, given in enumerate(document["rules"])
    ]
    overrides = [
        _entry(Override, OVERRIDE, f"overrides[{n}]", given, readers, problems)
        for n, given in enumerate(document["overrides"])
    ]
    if problems:
        raise InvalidFileError(problems)
    return rules, overrides


def _entry(
    model: type[M],
    names: tuple[str, ...],
    where: str,
    given: Any,
    readers: Mapping[str, Callable[[Any], Any]],
    problems: list[str],
) -> Entry[M]:
    entry = Entry(where, model())
    if not isinstance(given, dict):
        problems.append(f"{where}: an object with fields is wanted, not {json.dumps(given)}.")
        return entry
    for name, value in given.items():
        try:
            if name not in names:
                raise ValueError(f"there is no such field. Known: {', '.join(names)}.")
            read: Callable[[Any], Any] = readers.get(name, _text)
            found = read(value)
        except ValueError as exc:
            problems.append(f"{where}.{name}: {exc}")
            continue
        setattr(entry if name == "rule" else entry.row, name, found)
    return entry


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a text is wanted, not {json.dumps(value)}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("this is half a character.") from None
    if "\0" in value:
        raise ValueError("there is a NUL in the text.")
    return value


def _share(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"a whole number is wanted, not {json.dumps(value)}.")
    return value


def _time(value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        when = datetime.fromisoformat(_text(value))
        if timezone.is_naive(when):
            raise ValueError
        when = when.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{json.dumps(value)} is no time with its zone, such as 2030-06-07T18:00:00+00:00."
        ) from None
    return when if settings.USE_TZ else timezone.make_naive(when)


def _group(value: Any, groups: Mapping[str, Group]) -> Group | None:
    if value is None:
        return None
    found = groups.get(_text(value))
    if found is None:
        raise ValueError(f"there is no group {json.dumps(value, ensure_ascii=False)}.")
    return found


def _rule(value: Any) -> Identity | None:
    if value is None:
        return None
    if not isinstance(value, dict) or value.keys() - set(IDENTITY):
        raise ValueError(f"null or an object is wanted, of {', '.join(IDENTITY)}.")
    return _known_by({name: _text(value.get(name, "")) for name in IDENTITY})


_PARTS = ("rules", "overrides")
_READERS: dict[str, Callable[[Any], Any]] = {"share": _share, "expires": _time, "rule": _rule}


def _known_by(values: Mapping[str, str]) -> Identity:
    try:
        methods = ", ".join(sorted(parse_methods(values["methods"])))
    except ValueError:  # the row itself will be found wrong
        methods = values["methods"]
    return (*(values[name] for name in IDENTITY[:-1]), methods)


def _sorted(rows: Iterable[M]) -> list[dict[str, Any]]:
    return sorted((fields(row) for row in rows), key=_order)


def _order(values: Mapping[str, Any]) -> list[str]:
    return [json.dumps(value) for value in values.values()]


def _written(when: datetime) -> str:
    aware = timezone.make_aware(when) if timezone.is_naive(when) else when
    return aware.astimezone(UTC).isoformat()
