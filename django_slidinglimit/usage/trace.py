"""What recorders wrote of one client in the last hour; what is over is read once and kept here."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from django_slidinglimit import connections

from . import minutes
from .layout import client_member, limited_member, linked, minute_base, rule_field, whole
from .minutes import CLOSED_AFTER, MOST
from .rules import stored_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from django_slidinglimit.core.decisions import Client

    from .minutes import Command, Minute, Trip

# Rules of one minute that are looked through for the client, those asked most.
MOST_FIELDS = 200
# Other clients that are known of one minute, and in all.
MOST_OTHERS = 20
# Clients whose hour is kept here: those that were looked at last.
MOST_KEPT = 100


class Cell(NamedTuple):
    """What the client asked of one rule in one minute, and what of that was over the limit.

    `since_ms` is when it was first refused, in milliseconds since 1970; None: it was not.
    """

    asked: int
    over: int
    since_ms: int | None


class Trace:
    """One client's last hour.

    Args:
        trip: the hour of all rules, read along with it.
        cells: by minute, and by the rule's field.
        others: by minute, the clients that were seen in one request with it.
    """

    def __init__(
        self,
        trip: Trip,
        cells: Mapping[int, Mapping[str, Cell]],
        others: Mapping[int, Sequence[Client]],
    ) -> None:
        self.trip = trip
        self._newest = trip.minutes[0].number
        self._cells = cells
        self._others = others

    def age(self, fields: Iterable[str]) -> int:
        """How many minutes ago it last asked a rule that stands under these fields."""
        names = set(fields)
        for age in range(MOST):
            if names & self._cells.get(self._newest - age, {}).keys():
                return age
        return MOST

    def history(self, fields: Iterable[str]) -> tuple[list[int], list[int]]:
        """What it asked of such a rule within its limit and over it, the oldest minute first."""
        hour = [self._of(age, fields) for age in range(MOST - 1, -1, -1)]
        over = [sum(cell.over for cell in cells) for cells in hour]
        asked = [sum(cell.asked for cell in cells) for cells in hour]
        return [max(0, a - o) for a, o in zip(asked, over, strict=True)], over

    def since(self, fields: Iterable[str]) -> int | None:
        """When it began to be refused without a minute in between; None: it is not refused."""
        began: int | None = None
        for age in range(MOST):
            moments = [c.since_ms for c in self._of(age, fields) if c.since_ms is not None]
            if moments:
                began = min(*moments, self.trip.time_ms)
            elif age:  # the running minute may have just begun
                break
        return began

    def others(self) -> list[Client]:
        """The clients that were seen in one request with it, the last first."""
        found = [c for number in sorted(self._others, reverse=True) for c in self._others[number]]
        return list(dict.fromkeys(found))[:MOST_OTHERS]

    def _of(self, age: int, fields: Iterable[str]) -> list[Cell]:
        cells = self._cells.get(self._newest - age, {})
        return [cells[name] for name in fields if name in cells]


def read(client: Client) -> Trace:
    """Read a client's last hour in one round trip, two if its rules are new to this process.

    Raises:
        StoreError: the server does not answer.
    """
    global _fields
    kept = _kept.get(client, _Kept({}, {}))
    first: _Wanted = {}
    lacking: list[int] = []

    def also(running: int) -> list[Command]:
        nonlocal first, lacking
        hour = range(running, running - MOST, -1)
        known = {n: _known_fields(n, running) for n in hour if n not in kept.cells}
        first = {n: names for n, names in known.items() if names}
        lacking = [n for n in hour if n not in kept.others]
        return [*_ask_cells(client, first), *_ask_others(client, lacking)]

    trip = minutes.read(MOST, also)
    replies = iter(trip.replies)
    cells = {**kept.cells, **_cells(first, replies)}
    found = {n: [linked(client, member) for member in next(replies)] for n in lacking}
    others = {**kept.others, **{n: [o for o in found[n] if o is not None] for n in lacking}}
    fields = {minute.number: _asked_most(minute) for minute in trip.minutes}
    missing = {
        n: [name for name in names if name not in first.get(n, ())]
        for n, names in fields.items()
        if n not in kept.cells
    }
    second = {n: names for n, names in missing.items() if names}
    if second:
        more_replies = connections.pages().run(_ask_cells(client, second))
        for n, more in _cells(second, iter(more_replies)).items():
            cells[n] = {**cells.get(n, {}), **more}
    _fields = fields
    _remember(
        client, [n for n in fields if n <= trip.minutes[0].number - CLOSED_AFTER], cells, others
    )
    return Trace(trip, cells, others)


def forget() -> None:
    """Drop what is kept; tests begin so."""
    global _fields
    _kept.clear()
    _fields = {}


# Fields by minute.
_Wanted = dict[int, list[str]]


class _Kept(NamedTuple):
    """Of one client, the minutes that are over."""

    cells: dict[int, dict[str, Cell]]
    others: dict[int, list[Client]]


_kept: OrderedDict[Client, _Kept] = OrderedDict()
# The fields that each minute of the last hour has, as far as this process has seen.
_fields: _Wanted = {}


def _known_fields(number: int, running: int) -> list[str]:
    """The fields of a minute that is over; of one that is not, those that it is likely to have."""
    known = _fields  # another thread may put others in its place
    names = known.get(number, [])
    if number <= running - CLOSED_AFTER or not known:
        return names
    stored = (rule_field(stored.rule) for stored in stored_rules().values())
    return list(dict.fromkeys((*names, *known[max(known)], *stored)))


def _ask_cells(client: Client, wanted: _Wanted) -> list[Command]:
    prefix, member = connections.pages().prefix, client_member(client)
    commands: list[Command] = []
    for number, names in wanted.items():
        base = minute_base(prefix, number)
        for name in names:
            commands += [("ZSCORE", f"{base}{kind}:{name}", member) for kind in ("asked", "over")]
        refused = (limited_member(name, client) for name in names)
        commands.append(("ZMSCORE", f"{base}since", *refused))
    return commands


def _cells(wanted: _Wanted, replies: Iterator[Any]) -> dict[int, dict[str, Cell]]:
    found = {}
    for number, names in wanted.items():
        scores = [(next(replies), next(replies)) for _ in names]
        moments = next(replies)
        found[number] = {
            name: Cell(whole(asked), whole(over), whole(moment) or None)
            for name, (asked, over), moment in zip(names, scores, moments, strict=True)
            if asked is not None
        }
    return found


def _ask_others(client: Client, numbers: Iterable[int]) -> list[Command]:
    prefix = connections.pages().prefix
    # In a link a space ends the first member; the exclamation mark is the character after it.
    member = client_member(client)
    between = (f"[{member} ", f"({member}!")
    return [
        ("ZRANGEBYLEX", f"{minute_base(prefix, number)}links", *between, "LIMIT", 0, MOST_OTHERS)
        for number in numbers
    ]


def _asked_most(minute: Minute) -> list[str]:
    if len(minute.names) <= MOST_FIELDS:
        return list(minute.names)

    def asked(name: str) -> int:
        counts = minute.counts.get(name)
        return counts.all if counts else 0

    return sorted(minute.names, key=asked, reverse=True)[:MOST_FIELDS]


def _remember(
    client: Client,
    closed: Iterable[int],
    cells: Mapping[int, dict[str, Cell]],
    others: Mapping[int, list[Client]],
) -> None:
    numbers = list(closed)
    _kept.pop(client, None)
    _kept[client] = _Kept(
        {n: cells.get(n, {}) for n in numbers}, {n: others.get(n, []) for n in numbers}
    )
    while len(_kept) > MOST_KEPT:
        with suppress(KeyError):  # another thread was faster
            _kept.popitem(last=False)


connections.when_changed(forget)
