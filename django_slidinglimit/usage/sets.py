"""The sorted sets of a rule's field by the minute: who used most of it, asked it, was over it.

Minutes that are over are read once, and kept and added up in this process. Members stay as they
are until they are shown: there may be ten thousand of them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

from django_slidinglimit import connections

from .budget import MOST_CLIENTS, OLDER_CLIENTS, RECENT
from .layout import field_rule, minute_base, whole
from .minutes import CLOSED_AFTER, MOST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django_slidinglimit.core.rates import Rate

    Command = tuple[Any, ...]

# Members kept here, of all sets together: some 30 MB. A field may have 33,000.
MOST_KEPT = 300_000


class Sets(NamedTuple):
    """One minute by member: the counter's greatest value, what was asked, what was over."""

    top: Mapping[bytes, int]
    asked: Mapping[bytes, int]
    over: Mapping[bytes, int]


@dataclass(slots=True)
class Sums:
    """Minutes together, by member.

    Args:
        share: percent of the limit that can still be in use.
        asked: what was asked; known of all but the least busy.
        over: what of that was over the limit.
    """

    share: dict[bytes, float] = field(default_factory=dict)
    asked: dict[bytes, int] = field(default_factory=dict)
    over: dict[bytes, int] = field(default_factory=dict)

    def add(self, sets: Sets, rate: Rate, age: int) -> None:
        """Add a minute that was so many minutes ago."""
        # What was counted then has slid out after two windows at the latest.
        left = max(0.0, 1 - age * 60_000 / (2 * rate.window_ms))
        unit = 100 * left / (rate.limit or 1)
        for member, value in sets.top.items():
            percent = min(value * unit, 100 * left) if rate.limit else 100 * left
            if percent >= self.share.get(member, 0.0):
                self.share[member] = percent
        self._count(sets.asked, sets.over)

    def join(self, other: Sums) -> None:
        """Add what was summed up elsewhere."""
        for member, percent in other.share.items():
            self.share[member] = max(percent, self.share.get(member, 0.0))
        self._count(other.asked, other.over)

    def copy(self) -> Sums:
        return Sums(self.share.copy(), self.asked.copy(), self.over.copy())

    def _count(self, asked: Mapping[bytes, int], over: Mapping[bytes, int]) -> None:
        for mine, theirs in ((self.asked, asked), (self.over, over)):
            for member, count in theirs.items():
                mine[member] = mine.get(member, 0) + count


class Found(NamedTuple):
    """A field's last hour: its minutes by their numbers, and their sums."""

    minutes: Mapping[int, Sets]
    sums: Sums


class _Closed(NamedTuple):
    """What is kept of a field while one minute runs."""

    running: int
    minutes: dict[int, Sets]
    sums: Sums
    size: int


class Reading:
    """The way to the sets of some fields: what to ask, and what the answers were.

    Args:
        fields: how rules stand in the recorders' keys.

    Attributes:
        found: the fields.
        dropped: so many minutes' clients of theirs were dropped for lack of room.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields
        self._running = 0
        self._lacking: list[tuple[str, int]] = []
        self.found: dict[str, Found] = {}
        self.dropped = 0

    def commands(self, running: int) -> list[Command]:
        """What to ask when this minute runs: of what is kept here, nothing."""
        self._running, self._lacking = running, []
        if not self._fields:
            return []
        prefix = connections.pages().prefix
        asked: list[Command] = [("HMGET", f"{prefix}usage:dropped", *self._fields)]
        for name in self._fields:
            kept = _kept.get(name)
            for number in range(running, running - MOST, -1):
                if kept is None or number not in kept.minutes:
                    self._lacking.append((name, number))
                    most = MOST_CLIENTS if running - number <= RECENT else OLDER_CLIENTS
                    base = minute_base(prefix, number)
                    asked += [
                        ("ZREVRANGE", f"{base}{kind}:{name}", 0, most - 1, "WITHSCORES")
                        for kind in Sets._fields
                    ]
        return asked

    def take(self, replies: Sequence[Any]) -> None:
        """Take the answers: `found` and `dropped` are known then."""
        if not self._fields:
            return
        dropped, *sets = replies
        self.dropped = sum(map(whole, dropped))
        fresh: dict[str, dict[int, Sets]] = {name: {} for name in self._fields}
        for place, (name, number) in enumerate(self._lacking):
            fresh[name][number] = _sets(sets[3 * place : 3 * place + 3])
        for name, minutes in fresh.items():
            self.found[name] = self._found(name, minutes)

    def _found(self, name: str, fresh: dict[int, Sets]) -> Found:
        rate, last = field_rule(name).rate, self._running - CLOSED_AFTER
        kept = _kept.get(name)
        # Another thread may have taken it away since the question was put.
        lacking = kept is None or any(n <= last and n not in kept.minutes for n in fresh)
        if kept is None or lacking or kept.running != self._running:
            known = {**(kept.minutes if kept else {}), **fresh}
            closed = {
                number: _bounded(sets) if self._running - number > RECENT else sets
                for number, sets in known.items()
                if self._running - MOST < number <= last
            }
            sums = Sums()
            for number, sets in closed.items():
                sums.add(sets, rate, self._running - number)
            size = sum(len(each) for sets in closed.values() for each in sets)
            kept = _Closed(self._running, closed, sums, size)
        _keep(name, kept)
        sums, open_ = kept.sums.copy(), {n: sets for n, sets in fresh.items() if n > last}
        for number, sets in open_.items():
            sums.add(sets, rate, self._running - number)
        return Found({**kept.minutes, **open_}, sums)


def forget() -> None:
    """Drop what is kept; tests begin so."""
    _kept.clear()


# By field; those that were looked at last stand last.
_kept: OrderedDict[str, _Closed] = OrderedDict()


def _keep(name: str, closed: _Closed) -> None:
    try:
        _kept[name] = closed
        _kept.move_to_end(name)
        while sum(kept.size for kept in _kept.copy().values()) > MOST_KEPT:
            _kept.popitem(last=False)
    except (KeyError, RuntimeError):  # another thread was quicker
        pass


def _sets(replies: Sequence[Sequence[bytes]]) -> Sets:
    same: dict[bytes, bytes] = {}  # a member stands in all three: in memory it does once

    def scores(reply: Sequence[bytes]) -> dict[bytes, int]:
        pairs = zip(reply[::2], reply[1::2], strict=True)
        return {same.setdefault(member, member): whole(score) for member, score in pairs}

    return Sets(*map(scores, replies))


def _bounded(sets: Sets) -> Sets:
    return Sets(*map(_greatest, sets)) if max(map(len, sets)) > OLDER_CLIENTS else sets


def _greatest(scores: Mapping[bytes, int]) -> dict[bytes, int]:
    return dict(nlargest(OLDER_CLIENTS, scores.items(), key=lambda item: item[1]))


connections.when_changed(forget)
