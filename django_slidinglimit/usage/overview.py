"""What the overview shows: the rules of the last minutes, each with its busiest clients."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from django_slidinglimit import connections, keeper

from . import minutes
from .layout import member_client, minute_base
from .rules import MINUTES, asked_in
from .standings import ask, standings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_slidinglimit.core.decisions import Client

    from .rules import RuleUsage
    from .standings import Standing

# Shown on one page: rules, and the busiest clients of each.
MOST_RULES = 50
MOST_CLIENTS = 50
# Commands of one trip: each stays far below a millisecond.
TRIP = 100


def overview() -> list[RuleUsage]:
    """The rules that were asked in the last minutes, each with its busiest clients.

    Raises:
        StoreError: the server does not answer.
    """
    trip = minutes.read(MINUTES)
    minute = trip.minutes[0].number
    found = sorted(asked_in(trip.minutes).values(), key=lambda u: u.rule.name)
    if len(found) > MOST_RULES:
        found = sorted(found, key=lambda u: -(u.allowed + u.refused + u.would))[:MOST_RULES]
    busiest = _busiest(minute, found)
    overrides = keeper.current().overrides
    asked = [
        ask(usage.rule, client, overrides)
        for usage, clients in zip(found, busiest, strict=True)
        for client in clients
    ]
    standing = iter(standings(asked))
    for usage, clients in zip(found, busiest, strict=True):
        usage.clients = sorted(islice(standing, len(clients)), key=_most_used)
    return _folded(found)


def _busiest(minute: int, found: Sequence[RuleUsage]) -> list[list[Client]]:
    """The busiest clients of each rule, by what can be left of the count that was last recorded."""
    prefix = connections.pages().prefix
    bases = [minute_base(prefix, minute - age) for age in range(MINUTES)]
    asked = [
        (usage, age, f"{base}top:{name}")
        for usage in found
        for name in usage.fields
        for age, base in enumerate(bases)
    ]
    tops = _run([("ZREVRANGE", k, 0, MOST_CLIENTS - 1, "WITHSCORES") for *_, k in asked])
    sizes = _run([("ZCARD", key) for *_, key in asked])
    ranks: dict[int, dict[Client, float]] = {}
    for (usage, age, _), top, size in zip(asked, tops, sizes, strict=True):
        usage.active = max(usage.active, size)
        left = max(0.0, 1 - age * 60_000 / (2 * usage.rule.rate.window_ms))
        rank = ranks.setdefault(id(usage), {})
        for member, score in zip(top[::2], top[1::2], strict=True):
            client = member_client(member)
            rank[client] = max(rank.get(client, 0.0), float(score) * left)
    clients = []
    for usage in found:
        rank = ranks.get(id(usage), {})
        usage.active = max(usage.active, len(rank))
        clients.append(sorted(rank, key=lambda c: -rank[c])[:MOST_CLIENTS])
    return clients


def _folded(found: Sequence[RuleUsage]) -> list[RuleUsage]:
    """The rules, with clients of a rule in code that an override counts beside its others."""
    own = {usage.rule.id: usage for usage in found if not usage.overridden}
    kept = []
    for usage in found:
        same = own.get(usage.rule.id)
        if same is None or not usage.overridden:
            kept.append(usage)
            continue
        for what in ("allowed", "refused", "would"):
            setattr(same, what, getattr(same, what) + getattr(usage, what))
        clients = {standing.client: standing for standing in (*usage.clients, *same.clients)}
        same.clients = sorted(clients.values(), key=_most_used)[:MOST_CLIENTS]
        same.active = max(same.active, usage.active, len(clients))
        same.age = min(same.age, usage.age)
    return kept


def _most_used(standing: Standing) -> tuple[int, str, str]:
    return (-standing.used, standing.client.kind, standing.client.identity)


def _run(commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    replies: list[Any] = []
    for start in range(0, len(commands), TRIP):
        replies += connections.pages().run(commands[start : start + TRIP])
    return replies
