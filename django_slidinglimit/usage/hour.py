"""The last hour as it was recorded: what clients asked of rules by the minute, what was over.

Of minutes over five minutes old, a hundred clients are known. Reading never writes, and goes past
the breaker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from django_slidinglimit import connections

from .budget import MOST_CLIENTS, OLDER_CLIENTS, RECENT, Budget
from .layout import field_rule, known_client, minute_base, rule_field, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from django_slidinglimit.core.decisions import Client, Rule
    from django_slidinglimit.core.stores import Store

# What clients asked, by the minute.
Traffic = dict["Client", dict[int, int]]

MINUTES = 60
# Commands of one trip: of small replies, and of sets of a thousand clients.
TRIP = 60
SETS_TRIP = 5
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
    store, asked = connections.pages(), list(rules)
    if not asked:
        return {}
    names = [f"{rule_field(rule)}:{what}" for what in ("allowed", "would") for rule in asked]
    replies = _run(store, [("HMGET", f"{base}counts", *names) for base in _bases(store)], TRIP)
    sums = [sum(map(whole, column)) for column in zip(*replies, strict=True)]
    within, over = sums[: len(asked)], sums[len(asked) :]
    return {rule: Seen(*pair) for rule, *pair in zip(asked, within, over, strict=True)}


def clients_over(rule: Rule) -> int:
    """How many clients were over a rule's limit, as far as each minute's are kept.

    Raises:
        StoreError: the server does not answer.
    """
    store = connections.pages()
    keys = [f"{base}over:{rule_field(rule)}" for base in _bases(store)]
    members = _run(store, [("ZREVRANGE", key, 0, -1) for key in keys], SETS_TRIP)
    return len({member for found in members for member in found})


def sources(wanted: Callable[[Rule], bool]) -> list[Source]:
    """The traffic of rules, those that asked nothing left out.

    Args:
        wanted: says of a rule, as it was recorded, whether to read it.

    Raises:
        StoreError: the server does not answer.
    """
    store = connections.pages()
    bases = _bases(store)
    found: dict[str, Source] = {}
    places: list[tuple[Source, str, int, str]] = []
    listed = _run(store, [("HGETALL", f"{base}rules") for base in bases], TRIP)
    for (base, minute), reply in zip(bases.items(), listed, strict=True):
        texts = [part.decode(errors="replace") for part in reply]
        for name, title in zip(texts[::2], texts[1::2], strict=True):
            try:
                rule = field_rule(name, title)
            except ValueError:
                continue
            if wanted(rule):
                source = found.setdefault(name, Source(rule))
                places.append((source, name, minute, base))
    asked = _run(
        store,
        [
            command
            for _, name, _, base in places
            for command in (
                ("ZREVRANGE", f"{base}asked:{name}", 0, -1, "WITHSCORES"),
                ("HGET", f"{base}counts", f"{name}:clients"),
            )
        ],
        2 * SETS_TRIP,
    )
    running = max(bases.values())
    for (source, _, minute, _), reply, clients in zip(places, asked[::2], asked[1::2], strict=True):
        most = MOST_CLIENTS if running - minute <= RECENT else OLDER_CLIENTS
        kept = len(reply) // 2
        source.bounded |= kept >= most or whole(clients) > kept * NEARLY
        for member, score in zip(reply[::2], reply[1::2], strict=True):
            client = known_client(member)
            if client is not None:
                source.asked.setdefault(client, {})[minute] = whole(score)
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
    for client, minutes in asked.items():
        known = into.setdefault(client, {})
        for minute, count in minutes.items():
            known[minute] = join(known.get(minute, 0), count)


def _bases(store: Store) -> dict[str, int]:
    """What the keys of the last hour's minutes begin with, by the server's time."""
    seconds, _ = store.run([("TIME",)])[0]
    running = int(seconds) // 60
    minutes = min(MINUTES, Budget.current().minutes)
    return {minute_base(store.prefix, running - age): running - age for age in range(minutes)}


def _run(store: Store, commands: Sequence[tuple[Any, ...]], trip: int) -> list[Any]:
    replies: list[Any] = []
    for start in range(0, len(commands), trip):
        replies += store.run(commands[start : start + trip])
    return replies
