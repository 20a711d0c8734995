"""The last hour as it was recorded: what clients asked of rules by the minute, what was over.

Of minutes over five minutes old, a hundred clients are known. Reading never writes, and goes past
the breaker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from django_slidinglimit import connections

from . import minutes
from .budget import MOST_CLIENTS, OLDER_CLIENTS, RECENT, Budget
from .layout import field_rule, known_client, minute_base, rule_field, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django_slidinglimit.core.decisions import Client, Rule

    from .minutes import Minute

# What clients asked, by the minute.
Traffic = dict["Client", dict[int, int]]

# Sets of a thousand clients that are read in one trip.
TRIP = 5
# How many clients a minute had is known within some percent.
NEARLY = 1.05


class Seen(NamedTuple):
    """What a rule counted: hits within its limit, and hits over it that were let through."""

    within: int
    over: int

    @property
    def all(self) -> int:
        return self.within + self.over


@dataclass
class Source:
    """One rule's traffic.

    Args:
        rule: the rule as it was recorded: with its rate and mode then.
        asked: how much by client and minute; a request of cost 3 asks for 3.
        bounded: whether there were more clients in a minute than are kept.
    """

    rule: Rule
    asked: Traffic = field(default_factory=dict)
    bounded: bool = False


def seen(rules: Iterable[Rule]) -> dict[Rule, Seen]:
    """What observing rules counted.

    Args:
        rules: the rules as they are: what they counted at another rate is left out.

    Raises:
        StoreError: the server does not answer.
    """
    fields = {rule: rule_field(rule) for rule in rules}
    if not fields:
        return {}
    hour = _minutes()
    found = {}
    for rule, name in fields.items():
        counts = [minute.counts[name] for minute in hour if name in minute.counts]
        found[rule] = Seen(sum(each.allowed for each in counts), sum(each.would for each in counts))
    return found


def clients_over(rule: Rule) -> int:
    """How many clients were over a rule's limit, as far as each minute's are kept.

    Raises:
        StoreError: the server does not answer.
    """
    name = rule_field(rule)
    keys = [_key(minute, "over", name) for minute in _minutes() if name in minute.names]
    members = _run([("ZREVRANGE", key, 0, -1) for key in keys])
    return len({member for found in members for member in found})


def sources(wanted: Callable[[Rule], bool]) -> list[Source]:
    """The traffic of rules, those that asked nothing left out.

    Args:
        wanted: says of a rule, as it was recorded, whether to read it.

    Raises:
        StoreError: the server does not answer.
    """
    hour = _minutes()
    found: dict[str, Source] = {}
    places: list[tuple[Source, str, Minute]] = []
    for minute in hour:
        for name, title in minute.names.items():
            try:
                rule = field_rule(name, title)
            except ValueError:
                continue
            if wanted(rule):
                places.append((found.setdefault(name, Source(rule)), name, minute))
    asked = _run(
        [
            ("ZREVRANGE", _key(minute, "asked", name), 0, -1, "WITHSCORES")
            for _, name, minute in places
        ]
    )
    for (source, name, minute), reply in zip(places, asked, strict=True):
        most = MOST_CLIENTS if hour[0].number - minute.number <= RECENT else OLDER_CLIENTS
        kept = len(reply) // 2
        clients = minute.counts[name].clients if name in minute.counts else 0
        source.bounded |= kept >= most or clients > kept * NEARLY
        for member, score in zip(reply[::2], reply[1::2], strict=True):
            client = known_client(member)
            if client is not None:
                source.asked.setdefault(client, {})[minute.number] = whole(score)
    return [source for source in found.values() if source.asked]


def merged(sources: Iterable[Source]) -> Traffic:
    """The traffic of several rules of one place as one.

    A row has one rate at a time, so that what it counted at others adds up. Else a request may
    have asked several of them: of each client and minute the greatest count holds.
    """
    by_rule: dict[str, Traffic] = {}
    for source in sources:
        rule = source.rule
        key = rule.id if rule.id.startswith("d") else rule_field(rule)
        _join(by_rule.setdefault(key, {}), source.asked, int.__add__)
    found: Traffic = {}
    for asked in by_rule.values():
        _join(found, asked, max)
    return found


def _join(into: Traffic, asked: Traffic, join: Callable[[int, int], int]) -> None:
    for client, counts in asked.items():
        known = into.setdefault(client, {})
        for minute, count in counts.items():
            known[minute] = join(known.get(minute, 0), count)


def _minutes() -> list[Minute]:
    """Those of the last hour that are kept, the newest first."""
    return minutes.read(minutes.MOST).minutes[: Budget.current().minutes]


def _key(minute: Minute, kind: str, name: str) -> str:
    return f"{minute_base(connections.pages().prefix, minute.number)}{kind}:{name}"


def _run(commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    replies: list[Any] = []
    for start in range(0, len(commands), TRIP):
        replies += connections.pages().run(commands[start : start + TRIP])
    return replies
