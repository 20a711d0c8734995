"""Which row of a file is which row of the database."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic

from . import documents
from .documents import Entry, M

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable


@dataclass
class Matches(Generic[M]):
    """What was found.

    Args:
        same: rows of the database that are as the file says.
        other: those that the file says something else of, with what it says.
        new: rows of the file that the database has not.
        left: rows of the database that the file has not.
        problems: what cannot be told, and what to do.
    """

    same: list[M] = field(default_factory=list)
    other: list[tuple[Entry[M], M]] = field(default_factory=list)
    new: list[Entry[M]] = field(default_factory=list)
    left: list[M] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def match(
    entries: Iterable[Entry[M]],
    rows: Iterable[M],
    known_by: Callable[[M], Hashable],
    advice: str,
) -> Matches[M]:
    """Find each row of a file among those of the database.

    Those that say the same are the same; the others are told by what they are known by.

    Args:
        entries: the file's rows.
        rows: the database's.
        known_by: what tells rows apart.
        advice: what to do where that does not.
    """
    found: Matches[M] = Matches()
    there = defaultdict(list)
    for row in rows:
        there[_text(row)].append(row)
    wanted = defaultdict(list)
    said = Counter[str]()
    for entry in entries:
        text = _text(entry.row)
        said[text] += 1
        if there[text]:
            found.same.append(there[text].pop())
        elif said[text] > 1:
            found.problems.append(f"{entry.where}: the file says this before. Drop one.")
        else:
            wanted[known_by(entry.row)].append(entry)
    candidates = defaultdict(list)
    for row in (row for rest in there.values() for row in rest):
        candidates[known_by(row)].append(row)
    for key, group in wanted.items():
        rest = candidates.pop(key, [])
        if not rest:
            found.new += group
        elif len(group) == len(rest) == 1:
            found.other.append((group[0], rest[0]))
        else:
            places = ", ".join(entry.where for entry in group)
            named = ", ".join(f"{row._meta.verbose_name} {row.pk}" for row in rest)
            found.problems.append(
                f"{places}: which of these is which of those in the database ({named}) "
                f"cannot be told. {advice}"
            )
    found.left = [row for rest in candidates.values() for row in rest]
    return found


def _text(row: documents.Row) -> str:
    return json.dumps(documents.fields(row))
