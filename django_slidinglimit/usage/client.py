"""What is known of one client: how it stands with each rule that it is under, and its last hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from django_slidinglimit import keeper
from django_slidinglimit.clients import BUILT_IN, PREFIXES

from . import trace
from .minutes import MOST
from .rules import RuleUsage, asked_in, stored_rules
from .standings import TRIP, ask, standings

if TYPE_CHECKING:
    from django_slidinglimit.core.decisions import Client, Counter, Hit
    from django_slidinglimit.overrides import Override

    from .minutes import Trip
    from .standings import Standing


@dataclass(frozen=True, slots=True)
class UnderRule:
    """One rule that the client is under.

    Args:
        usage: the rule and its last hour.
        standing: how the client stands with it now.
        within, over: what it asked within the limit and over it, by the minute, oldest first.
        since_ms: when it began to be refused, without a minute in between, in milliseconds since
            1970; None where it is not.
    """

    usage: RuleUsage
    standing: Standing
    within: list[int]
    over: list[int]
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class ClientUsage:
    """One client.

    Args:
        trip: what was read of the last hour.
        rules: those that it asked in the last hour, or that hold a count for it, or have an
            override of their own for it, which may keep them from counting.
        others: clients that were seen in one request with it, such as the user of an address.
    """

    trip: Trip
    rules: list[UnderRule]
    others: list[Client]


def of_client(client: Client, most: int | None = TRIP) -> ClientUsage:
    """Everything about one client, in two round trips; three if this process is new to its rules.

    Args:
        client: who.
        most: so many rules at most, those that it asked lately first; None: all, which takes a
            further trip for each hundred.

    Raises:
        StoreError: the server does not answer.
    """
    found = trace.read(client)
    minutes = found.trip.minutes
    known = asked_in(minutes)
    for stored in stored_rules().values():
        known.setdefault(stored.rule.id, RuleUsage(stored.rule, stored))
    overrides = keeper.current().overrides
    asked: dict[Counter, _Candidate] = {}
    fields: dict[Counter, list[str]] = {}
    for usage in known.values():
        # Of several rates of one place, which share a counter, the one last applied to the client.
        hit, override = ask(usage.rule, client, overrides)
        candidate = _Candidate(found.age(usage.fields), usage, hit, override)
        asked[hit.counter] = min(asked.get(hit.counter, candidate), candidate, key=lambda c: c.age)
        fields.setdefault(hit.counter, []).extend(usage.fields)
    # Those that it asked, then those that may still hold a count of before, the longest likeliest.
    chosen = sorted(
        asked.values(),
        key=lambda c: (c.age, -_is_excepted(c, client), -c.hit.rule.rate.window_ms),
    )[:most]
    rules = [
        UnderRule(candidate.usage, standing, *found.history(names), found.since(names))
        for candidate, standing in zip(
            chosen, standings([(c.hit, c.override) for c in chosen]), strict=True
        )
        for names in (fields[candidate.hit.counter],)
        if candidate.age < MOST
        or standing.reading.previous
        or standing.reading.current
        or _is_excepted(candidate, client)
    ]
    rules.sort(key=lambda found: found.usage.rule.name)
    return ClientUsage(found.trip, rules, found.others())


def override_everywhere(client: Client) -> Override | None:
    """The override that holds for a client under every rule that has none of its own for it."""
    return keeper.current().overrides.winner("", client)


class _Candidate(NamedTuple):
    """A rule as it may hold for the client of a page; the least of a counter is shown."""

    age: int
    usage: RuleUsage
    hit: Hit
    override: Override | None


def _is_excepted(candidate: _Candidate, client: Client) -> bool:
    """Whether a rule has an override of its own for a client, and may count such clients."""
    if candidate.override is None or candidate.override.rule is None:
        return False
    stored = candidate.usage.stored
    if stored is None or stored.key is None:
        return True
    name = stored.key.name
    if name == "user_or_ip":
        return client.kind in ("user", "ip")
    own = name not in BUILT_IN and not name.startswith(PREFIXES)
    return own or name == client.kind
