"""What the overview shows: the last hour by rule, and who is limited now, in two round trips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from django_slidinglimit import connections, keeper

from . import limited, minutes, processes
from .layout import field_rule, minute_base, rule_field
from .minutes import MOST
from .rules import RuleUsage, asked_in, stored_rules
from .standings import NEAR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .limited import Limited
    from .minutes import Minute, Trip
    from .processes import Process

    Command = tuple[Any, ...]

# Shown on one page.
MOST_RULES = 200
# In which it is told since when a version of the rules is obeyed.
STEP_MS = 5000
# Fields whose clients near the limit are counted, each in the running minute and the last.
MOST_FIELDS = 500


class Rates(NamedTuple):
    """What was allowed, refused and would have been refused, a second each."""

    allowed: float
    refused: float
    would: float


@dataclass(frozen=True, slots=True)
class Series:
    """Decisions a second, by the minute, oldest first.

    The last is of the last 60 seconds, in which the minute before the running one has the part that
    the sliding window gives it, too.
    """

    allowed: list[float]
    refused: list[float]
    would: list[float]

    @property
    def now(self) -> Rates:
        return Rates(self.allowed[-1], self.refused[-1], self.would[-1])

    @property
    def peak(self) -> float:
        return max(map(sum, zip(self.allowed, self.refused, self.would, strict=True)))


class RuleHour(NamedTuple):
    """A rule in the last hour.

    Args:
        key: what it is called by, as in `asked_in`.
        usage: the rule and its decisions in all.
        series: the same by the minute.
        clients: how many it had in the last minute of which that is known.
        dropped: whether its clients are not kept for lack of room.
    """

    key: str
    usage: RuleUsage
    series: Series
    clients: int
    dropped: bool


class Overview(NamedTuple):
    """All of it.

    Args:
        trip: what it was read in.
        rules: those asked most in the last hour, they first.
        rules_in_all: how many were asked.
        total: all rules together; a request counts once for each that it is under.
        limited: who was refused in the last minute.
        near: how many clients came near a limit, or to it; None: not known of all rules yet.
        dropped: how many rules' clients are not kept for lack of room.
        version: the rule set's; "" until the first change.
        since_ms: since when a process obeys it, in milliseconds since 1970; None: none does yet.
        processes: those that are alive.
    """

    trip: Trip
    rules: list[RuleHour]
    rules_in_all: int
    total: Series
    limited: Limited
    near: int | None
    dropped: int
    version: str
    since_ms: int | None
    processes: list[Process]

    @property
    def behind(self) -> list[Process]:
        """The processes that obey another version of the rules than the newest."""
        return [process for process in self.processes if process.token != self.version]


def overview() -> Overview:
    """Read it.

    Raises:
        StoreError: the server does not answer.
    """
    asking = _Asking(_fields_to_count())
    trip = minutes.read(MOST, asking.commands)
    token, alive, dropped, *rest = trip.replies
    usages = asked_in(trip.minutes)
    version = (token or b"").decode(errors="replace")
    found = processes.seen(alive, trip.time_ms)
    series, total = _series(trip, usages)
    busiest = sorted(usages.items(), key=lambda item: (-item[1].all, item[1].rule.name))
    dropped_fields = {field.decode(errors="replace") for field in dropped[::2]}
    return Overview(
        trip=trip,
        rules=[
            RuleHour(
                key,
                usage,
                series[key],
                _clients(trip.minutes, usage.fields),
                not dropped_fields.isdisjoint(usage.fields),
            )
            for key, usage in busiest[:MOST_RULES]
        ],
        rules_in_all=len(busiest),
        total=total,
        limited=limited.read(rest[:4], trip.time_ms, usages),
        near=asking.near(rest[4:], trip.minutes[:2]),
        dropped=len(dropped_fields),
        version=version,
        since_ms=_since(version, found, trip.time_ms),
        processes=found,
    )


class _Asking:
    """What is asked beside the minutes.

    Of which rules clients near the limit are counted is settled before the trip that tells which
    were asked: those of the database, and those that this process knows from its last look.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields

    def commands(self, running: int) -> list[Command]:
        """What to ask when this minute runs."""
        prefix = connections.pages().prefix
        bases = [minute_base(prefix, number) for number in (running, running - 1)]
        asked: list[Command] = [
            ("GET", keeper.token_key()),
            ("HGETALL", processes.key(prefix)),
            ("HGETALL", f"{prefix}usage:dropped"),
        ]
        asked += limited.question(bases)
        for field in self._fields:
            least = -(-NEAR * field_rule(field).rate.limit // 100)
            asked += [("ZCOUNT", f"{base}top:{field}", least, "+inf") for base in bases]
        return asked

    def near(self, replies: Sequence[int], latest: Iterable[Minute]) -> int | None:
        """How many clients there are, at least; None if there are rules that were not asked for."""
        global _asked_last
        _asked_last = list(dict.fromkeys(f for minute in latest for f in minute.counts))
        del _asked_last[MOST_FIELDS:]
        if not set(filter(_is_limit, _asked_last)) <= set(self._fields):
            return None
        return sum(map(max, zip(replies[::2], replies[1::2], strict=True)))


# The recorder's fields that were asked in the last two minutes, as of the last look.
_asked_last: list[str] = []


def _fields_to_count() -> list[str]:
    found = dict.fromkeys(_asked_last)
    found |= dict.fromkeys(rule_field(stored.rule) for stored in stored_rules().values())
    return [field for field in found if _is_limit(field)][:MOST_FIELDS]


def _is_limit(field: str) -> bool:
    """Whether clients can come near it: not to a limit of 0."""
    try:
        return field_rule(field).rate.limit > 0
    except ValueError:
        return False


def _series(trip: Trip, usages: Mapping[str, RuleUsage]) -> tuple[dict[str, Series], Series]:
    """The last hour of rules by their keys, and of all of them together."""
    found = {key: _empty() for key in usages}
    total = _empty()
    by_field = {field: found[key] for key, usage in usages.items() for field in usage.fields}
    for place, minute in enumerate(reversed(trip.minutes)):
        allowed = refused = would = 0
        for field, counts in minute.counts.items():
            series = by_field.get(field)
            if series is None:
                continue
            if counts.allowed:
                allowed += counts.allowed
                series.allowed[place] += counts.allowed / 60
            if counts.refused:
                refused += counts.refused
                series.refused[place] += counts.refused / 60
            if counts.would:
                would += counts.would
                series.would[place] += counts.would / 60
        total.allowed[place] = allowed / 60
        total.refused[place] = refused / 60
        total.would[place] = would / 60
    share = 1 - trip.time_ms % 60_000 / 60_000
    for series in (*found.values(), total):
        for numbers in (series.allowed, series.refused, series.would):
            numbers[-1] += numbers[-2] * share
    return found, total


def _empty() -> Series:
    return Series([0.0] * MOST, [0.0] * MOST, [0.0] * MOST)


def _clients(latest: Sequence[Minute], fields: Sequence[str]) -> int:
    """How many clients some fields had in a minute, the last of which that is known."""
    for minute in latest[1:4]:
        counts = minute.counts
        if found := sum(counts[field].clients for field in fields if field in counts):
            return found
    return 0


def _since(version: str, found: Iterable[Process], time_ms: int) -> int | None:
    """Since when a version of the rules is obeyed by any process.

    Clocks differ a little; it is told in steps, and the same at each look, so that a page on which
    nothing happens stays as it is.
    """
    global _obeyed
    ages = [p.obeyed_ms + p.age_ms for p in found if p.token == version]
    if not ages:
        return None
    since = time_ms - max(ages)
    if _obeyed[0] != version or abs(since - _obeyed[1]) > 2 * STEP_MS:
        _obeyed = (version, since // STEP_MS * STEP_MS)
    return _obeyed[1]


_obeyed: tuple[str, int] = ("", 0)
