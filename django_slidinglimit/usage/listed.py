"""A rule and its clients in the last hour, as recorders listed them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django_slidinglimit import connections

from . import minutes
from .layout import field_rule, rule_field
from .minutes import MOST, Counts, Minute, Trip
from .rules import RuleUsage, asked_in, stored_rules
from .sets import Reading, Sums

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .sets import Sets

# A rule stands under several fields after edits: those asked most are read.
MOST_FIELDS = 8
# Rules of which it is kept how they stood when they were last read.
MOST_KNOWN = 1000


@dataclass(slots=True)
class Listed:
    """A rule and its clients, by the member that each is in the sets.

    Args:
        usage: the rule.
        trip: the first round trip, with the hour's minutes.
        counts: the rule's minutes, oldest first.
        sums: its clients.
        dropped: so many minutes' clients were dropped for lack of room.
    """

    usage: RuleUsage
    trip: Trip
    counts: list[Counts]
    sums: Sums
    dropped: int
    _by_minute: list[list[Sets]] = field(repr=False)

    def history(self, member: bytes) -> tuple[list[int], list[int]]:
        """What a client asked within the limit and over it, by the minute, oldest first."""
        asked = [sum(s.asked.get(member, 0) for s in sets) for sets in self._by_minute]
        over = [sum(s.over.get(member, 0) for s in sets) for sets in self._by_minute]
        return [max(0, a - o) for a, o in zip(asked, over, strict=True)], over


def read(key: str) -> Listed:
    """Read a rule's clients in one round trip; in two after an edit that is new to this process.

    Args:
        key: the rule's, as in `asked_in`, or one of its fields.

    Raises:
        StoreError: the server does not answer.
        ValueError: the key is none.
        LookupError: the rule is not in the database, and nobody asked it.
    """
    rule_id, of_code, _ = key.partition(":")
    if of_code:
        field_rule(key)
    if rule_id.startswith("d"):
        key = rule_id
    known = _known.get(key) or _expected(key)
    reading = Reading(known)
    trip = minutes.read(MOST, reading.commands)
    reading.take(trip.replies)
    own = [_only(minute, f"{rule_id}:") for minute in trip.minutes]
    fields = _asked_most(key, own)
    if further := [name for name in fields if name not in known]:
        more = Reading(further)
        more.take(connections.pages().run(more.commands(own[0].number)))
        reading.found.update(more.found)
        reading.dropped += more.dropped
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[key] = fields
    return _listed(key, own, reading, trip)


def forget() -> None:
    """Drop what is kept; tests begin so."""
    _known.clear()


# By a rule's key, the fields that it was last found under.
_known: dict[str, list[str]] = {}


def _expected(key: str) -> list[str]:
    """The field of a rule that was not edited lately."""
    if ":" in key:
        return [key]
    stored = stored_rules().get(key)
    return [rule_field(stored.rule)] if stored else []


def _only(minute: Minute, begin: str) -> Minute:
    """What a minute has of one rule, whatever its rate."""
    names = {name: title for name, title in minute.names.items() if name.startswith(begin)}
    counts = {name: minute.counts[name] for name in names if name in minute.counts}
    return Minute(minute.number, names, counts)


def _asked_most(key: str, own: Sequence[Minute]) -> list[str]:
    """The fields that were asked most: the rule's own before other rates of its place."""
    asked: dict[str, int] = {}
    for minute in own:
        for name, counts in minute.counts.items():
            asked[name] = asked.get(name, 0) + counts.all
    return sorted(asked, key=lambda name: (name != key, -asked[name]))[:MOST_FIELDS]


def _listed(key: str, own: Sequence[Minute], reading: Reading, trip: Trip) -> Listed:
    usage = asked_in(own).get(key) or _unasked(key)
    found = {name: reading.found[name] for name in usage.fields if name in reading.found}
    sums = [each.sums for each in found.values()]
    joined = sums[0] if sums else Sums()
    for other in sums[1:]:
        joined.join(other)
    usage.active = max(usage.active, len(joined.asked), len(joined.share))
    counts = [_sum(m.counts.get(name) for name in usage.fields) for m in reversed(own)]
    by_minute = [
        [each.minutes[minute.number] for each in found.values() if minute.number in each.minutes]
        for minute in reversed(own)
    ]
    return Listed(usage, trip, counts, joined, reading.dropped, by_minute)


def _unasked(key: str) -> RuleUsage:
    """A rule that nobody asked in the last hour."""
    rule_id, of_code, _ = key.partition(":")
    if of_code:
        return RuleUsage(field_rule(key, rule_id), None)
    stored = stored_rules()[key]
    return RuleUsage(stored.rule, stored)


def _sum(found: Iterable[Counts | None]) -> Counts:
    total = Counts()
    for counts in filter(None, found):
        total.allowed += counts.allowed
        total.refused += counts.refused
        total.would += counts.would
        total.clients = max(total.clients, counts.clients)
    return total


connections.when_changed(forget)
