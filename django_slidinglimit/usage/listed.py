"""The clients of a rule as recorders listed them in the last hour: read by minute, merged here.

What is over is read once and kept in this process. Members of the sets stay as they are until they
are shown: there may be thousands of them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

from django.core.signals import setting_changed

from django_slidinglimit import connections, keeper

from . import minutes
from .layout import field_rule, member_client, minute_base, rule_field
from .minutes import CLOSED_AFTER, MOST, Counts, Minute
from .rules import RuleUsage, asked_in, stored_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from django_slidinglimit.core.decisions import Rule

    Command = tuple[Any, ...]

# Clients that recorders keep of a minute: of the last ones, and of those before.
RECENT = 5
MOST_RECENT = 1000
MOST_OLDER = 100
# How a rule may stand in the keys, after edits and with overrides; those asked most are read.
MOST_FIELDS = 16
# Of another rate of the same place: how many clients may be there by an override.
MOST_OVERRIDDEN = 100
# Fields whose minutes are kept here: those that were looked at last.
MOST_KEPT = 24

KINDS = ("top", "asked", "over")


class Sets(NamedTuple):
    """One minute of a field: by member, the counter's value, what was asked, what was over."""

    top: dict[bytes, int]
    asked: dict[bytes, int]
    over: dict[bytes, int]


@dataclass(slots=True)
class Listed:
    """A rule and its clients in the last hour, by the member that each is in the sets.

    Args:
        usage: the rule; None if it is not known at all.
        time_ms: the server's time.
        counts: the rule's minutes, oldest first.
        share: percent of the limit, as far as it can still be in use.
        asked: what was asked; known of all but the least busy.
        over: what of that was over the limit.
        dropped: whether clients are not kept for lack of room.
    """

    usage: RuleUsage | None
    time_ms: int
    counts: list[Counts]
    share: dict[bytes, float] = field(default_factory=dict)
    asked: dict[bytes, int] = field(default_factory=dict)
    over: dict[bytes, int] = field(default_factory=dict)
    dropped: bool = False
    _by_minute: list[list[Sets]] = field(default_factory=list)

    def history(self, member: bytes) -> tuple[list[int], list[int]]:
        """What a client was within the limit and over it, by the minute, oldest first."""
        asked = [sum(s.asked.get(member, 0) for s in sets) for sets in self._by_minute]
        over = [sum(s.over.get(member, 0) for s in sets) for sets in self._by_minute]
        return [max(0, a - o) for a, o in zip(asked, over, strict=True)], over


def read(key: str) -> Listed:
    """Read a rule's clients in one round trip, two if it was edited and this process is new to it.

    Args:
        key: the rule's, as in `asked_in`.

    Raises:
        StoreError: the server does not answer.
        ValueError: the key is none.
    """
    rule_id, _, rate = key.partition(":")
    if rate:
        field_rule(key)
    known = _fields.get(key) or [rule_field(s.rule) for s in (stored_rules().get(rule_id),) if s]
    known = known or ([key] if rate else [])
    reading = _Reading(known)
    trip = minutes.read(MOST, reading.commands)
    reading.take(trip.replies)
    own = [_only(minute, f"{rule_id}:") for minute in trip.minutes]
    found = _asked_most(key, own)
    if further := [name for name in found if name not in known]:
        more = _Reading(further)
        more.take(connections.pages().run(more.commands(trip.minutes[0].number)))
        reading.sets.update(more.sets)
        reading.dropped |= more.dropped
    _remember(key, found or known)
    return _merged(key, own, reading, trip.time_ms)


class _Reading:
    """The sets of some fields, as far as they are not kept; and whether some were dropped."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields
        self._running = 0
        self._lacking: list[tuple[str, int]] = []
        self.sets: dict[str, dict[int, Sets]] = {}
        self.dropped = False

    def commands(self, running: int) -> list[Command]:
        """What to ask when this minute runs."""
        self._running = running
        self._lacking = [
            (name, number)
            for name in self._fields
            for number in range(running, running - MOST, -1)
            if number not in _kept.get(name, ())
        ]
        if not self._fields:
            return []
        prefix = connections.pages().prefix
        asked: list[Command] = [("HMGET", f"{prefix}usage:dropped", *self._fields)]
        for name, number in self._lacking:
            most = MOST_RECENT if running - number < RECENT else MOST_OLDER
            base = minute_base(prefix, number)
            asked += [
                ("ZREVRANGE", f"{base}{kind}:{name}", 0, most - 1, "WITHSCORES") for kind in KINDS
            ]
        return asked

    def take(self, replies: Sequence[Any]) -> None:
        """Take the answers, and keep what will not change any more."""
        if not self._fields:
            return
        dropped, *sets = replies
        self.dropped = any(dropped)
        kept = {name: dict(_kept.get(name, {})) for name in self._fields}
        for place, (name, number) in enumerate(self._lacking):
            kept[name][number] = Sets(*map(_scores, sets[3 * place : 3 * place + 3]))
        self.sets = kept
        for name, by_minute in kept.items():
            _keep(name, by_minute, self._running)


def forget() -> None:
    """Drop what is kept; tests begin so."""
    _kept.clear()
    _fields.clear()


# By field and minute: what is over. And by a rule's key, the fields that it was last found under.
_kept: OrderedDict[str, dict[int, Sets]] = OrderedDict()
_fields: OrderedDict[str, list[str]] = OrderedDict()


def _keep(name: str, by_minute: dict[int, Sets], running: int) -> None:
    """Keep the minutes that are over; of older ones no more than the server does."""
    kept: dict[int, Sets] = {}
    for number, sets in by_minute.items():
        if running - MOST < number <= running - CLOSED_AFTER:
            older = running - number >= RECENT and any(len(s) > MOST_OLDER for s in sets)
            kept[number] = Sets(*map(_greatest, sets)) if older else sets
    _kept[name] = kept
    _bound(_kept, name)


def _remember(key: str, fields: list[str]) -> None:
    _fields[key] = fields
    _bound(_fields, key)


def _bound(kept: OrderedDict[str, Any], last: str) -> None:
    try:
        kept.move_to_end(last)
        while len(kept) > MOST_KEPT:
            kept.popitem(last=False)
    except KeyError:  # another thread was quicker
        pass


def _only(minute: Minute, begins: str) -> Minute:
    """What a minute has of one rule, whatever its rate."""
    names = {name: title for name, title in minute.names.items() if name.startswith(begins)}
    counts = {name: minute.counts[name] for name in names if name in minute.counts}
    return Minute(minute.number, names, counts)


def _asked_most(key: str, own: Sequence[Minute]) -> list[str]:
    """The fields of a rule's id that were asked most; the rule's own before other rates'."""
    asked: dict[str, int] = {}
    for minute in own:
        for name, counts in minute.counts.items():
            asked[name] = asked.get(name, 0) + counts.allowed + counts.refused + counts.would
    return sorted(asked, key=lambda name: (name != key, -asked[name]))[:MOST_FIELDS]


def _merged(key: str, own: Sequence[Minute], reading: _Reading, time_ms: int) -> Listed:
    running = own[0].number
    usages = asked_in(own)
    usage = usages.get(key) or _unasked(key)
    fields = (usage and usage.fields) or [key]
    counts = [_sum(m.counts.get(name) for name in fields) for m in reversed(own)]
    listed = Listed(usage, time_ms, counts, dropped=reading.dropped)
    numbers = range(running - MOST + 1, running + 1)
    sets = {name: reading.sets[name] for name in fields if name in reading.sets}
    for name, by_minute in sets.items():
        _add(listed, name, by_minute, running)
    if usage is not None and usage.stored is None:
        for name in reading.sets.keys() - sets.keys():
            only = _overridden(usage.rule, name, reading.sets[name], running)
            if only:
                sets[name] = {n: _restricted(s, only) for n, s in reading.sets[name].items()}
                _add(listed, name, sets[name], running)
    listed._by_minute = [[s[n] for s in sets.values() if n in s] for n in numbers]
    if usage is not None:
        usage.active = max(usage.active, len(listed.asked), len(listed.share))
    return listed


def _add(listed: Listed, name: str, by_minute: dict[int, Sets], running: int) -> None:
    rate = field_rule(name).rate
    share, asked, over = listed.share, listed.asked, listed.over
    for number, sets in by_minute.items():
        # What was counted in a minute has slid out after two windows at the latest.
        left = max(0.0, 1 - (running - number) * 60_000 / (2 * rate.window_ms))
        percent = 100 * left / (rate.limit or 1)
        for member, value in sets.top.items():
            now = min(value * percent, 100.0) if rate.limit else 100 * left
            if now >= share.get(member, 0.0):
                share[member] = now
        for member, count in sets.asked.items():
            asked[member] = asked.get(member, 0) + count
        for member, count in sets.over.items():
            over[member] = over.get(member, 0) + count


def _overridden(rule: Rule, name: str, by_minute: dict[int, Sets], running: int) -> set[bytes]:
    """Who is counted at another rate of a rule in code because an override says so."""
    rate = field_rule(name).rate
    overrides = keeper.current().overrides
    recent = [s.top for n, s in by_minute.items() if running - n < RECENT]
    members = list(dict.fromkeys(m for top in recent for m in top))[:MOST_OVERRIDDEN]
    found = set()
    for member in members:
        override = overrides.winner(rule.id, member_client(member))
        if override is not None and override.rate == rate:
            found.add(member)
    return found


def _restricted(sets: Sets, only: set[bytes]) -> Sets:
    return Sets(*({m: v for m, v in each.items() if m in only} for each in sets))


def _unasked(key: str) -> RuleUsage | None:
    """A rule that nobody asked in the last hour."""
    rule_id, _, rate = key.partition(":")
    if rate:
        return RuleUsage(field_rule(key, rule_id), None, MOST)
    stored = stored_rules().get(key)
    return RuleUsage(stored.rule, stored, MOST) if stored else None


def _sum(found: Iterable[Counts | None]) -> Counts:
    total = Counts()
    for counts in found:
        if counts is not None:
            total.allowed += counts.allowed
            total.refused += counts.refused
            total.would += counts.would
            total.clients = max(total.clients, counts.clients)
    return total


def _scores(reply: Sequence[bytes]) -> dict[bytes, int]:
    return {m: int(float(s)) for m, s in zip(reply[::2], reply[1::2], strict=True)}


def _greatest(scores: dict[bytes, int]) -> dict[bytes, int]:
    return dict(nlargest(MOST_OLDER, scores.items(), key=lambda item: item[1]))


def _forget(*, setting: str, **_: object) -> None:
    if setting in ("CACHES", "SLIDINGLIMIT", "SECRET_KEY"):
        forget()


setting_changed.connect(_forget)
