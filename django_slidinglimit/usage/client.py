"""What is known of one client: how it stands with each rule that it is under."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_slidinglimit import connections, keeper
from django_slidinglimit.clients import BUILT_IN, PREFIXES

from . import minutes
from .layout import client_member, minute_base
from .rules import MINUTES, RuleUsage, asked_in, stored_rules
from .standings import ask, standings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_slidinglimit.core.decisions import Client, Counter, Hit
    from django_slidinglimit.overrides import Override

    from .standings import Standing


def of_client(client: Client) -> list[tuple[RuleUsage, Standing]]:
    """The rules that a client is under: those that counted it lately or hold a count for it.

    And those that have an override of their own for it, which may keep them from counting.

    Raises:
        StoreError: the server does not answer.
    """
    trip = minutes.read(MINUTES)
    minute = trip.minutes[0].number
    known = asked_in(trip.minutes)
    for stored in stored_rules().values():
        known.setdefault(stored.rule.id, RuleUsage(stored.rule, stored, MINUTES))
    seen = _seen(minute, client, [f for usage in known.values() for f in usage.fields])
    overrides = keeper.current().overrides
    asked: dict[Counter, _Candidate] = {}
    for usage in known.values():
        # Of several rates of one place, which share a counter, the one last applied to the client.
        age = min((seen[f] for f in usage.fields if f in seen), default=MINUTES)
        hit, override = ask(usage.rule, client, overrides)
        by_override = override is not None and override.rate == usage.rule.rate
        candidate = _Candidate(by_override and usage.stored is None, age, usage, hit, override)
        asked[hit.counter] = min(asked.get(hit.counter, candidate), candidate, key=lambda c: c[:2])
    found = standings([(c.hit, c.override) for c in asked.values()])
    return [
        (candidate.usage, standing)
        for candidate, standing in zip(asked.values(), found, strict=True)
        if candidate.age < MINUTES
        or standing.reading.previous
        or standing.reading.current
        or _is_excepted(candidate, client)
    ]


def override_everywhere(client: Client) -> Override | None:
    """The override that holds for a client under every rule that has none of its own for it."""
    return keeper.current().overrides.winner("", client)


def _seen(minute: int, client: Client, fields: Sequence[str]) -> dict[str, int]:
    """The rules' fields under which a client was recorded, and how many minutes ago."""
    store, member = connections.pages(), client_member(client)
    asked = [
        (name, age, f"{base}top:{name}")
        for name in fields
        for age, base in enumerate(minute_base(store.prefix, minute - a) for a in range(MINUTES))
    ]
    scores = store.run([("ZSCORE", key, member) for *_, key in asked])
    seen: dict[str, int] = {}
    for (name, age, _), score in zip(asked, scores, strict=True):
        if score is not None:
            seen.setdefault(name, age)
    return seen


class _Candidate(NamedTuple):
    """A rule as it may hold for the client of a page; the least of a counter is shown."""

    by_override: bool  # known by an override's rate alone
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
