"""What the usage pages show: the recorder's minutes, and the deciding counters themselves.

Reading never writes. It goes past the breaker: a page that fails must not make this process answer
requests by policy.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from django_slidinglimit import connections, keeper
from django_slidinglimit.clients import BUILT_IN, PREFIXES
from django_slidinglimit.core.decisions import Hit
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.core.window import used
from django_slidinglimit.places import at_rate

from .recorder import client_member, field_rule, member_client, minute_base

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django_slidinglimit.core.decisions import Answer, Client, Counter, Rule, Verdict
    from django_slidinglimit.core.stores import Store
    from django_slidinglimit.core.window import Reading
    from django_slidinglimit.overrides import Override, Overrides
    from django_slidinglimit.rules import StoredRule

# The running minute and those before it.
MINUTES = 5
# Shown on one page: rules, and the busiest clients of each.
MOST_RULES = 50
MOST_CLIENTS = 50
# Near the limit: so many percent of it.
NEAR = 80
# Commands of one trip, and counters of one script: each stays far below a millisecond.
TRIP = 100


class Server(NamedTuple):
    """The server as it answered just now: its name and version, its time, and the trip in ms."""

    name: str
    minute: int
    trip_ms: float


class State(StrEnum):
    """How a client stands with a rule."""

    OK = "ok"
    NEAR = "near"
    LIMITED = "limited"
    OBSERVED = "observed"  # over the limit of a rule that only observes
    BLOCKED = "blocked"  # by an override
    EXEMPT = "exempt"  # by an override


@dataclass(frozen=True, slots=True)
class Standing:
    """One client under one rule, now.

    Args:
        rule: the rule as it holds for the client: at the override's rate, if it has another one.
        client: who is counted.
        verdict: what a request would be told; a block or an exemption goes before it.
        reading: the counter.
        override: the one that holds for the client, if there is one.
    """

    rule: Rule
    client: Client
    verdict: Verdict
    reading: Reading
    override: Override | None = None

    @property
    def used(self) -> int:
        """The estimate, rounded up."""
        return used(self.rule.rate, self.reading)

    @property
    def counted(self) -> int:
        """What of the previous window still counts, rounded up."""
        return self.used - self.reading.current

    @property
    def share(self) -> int:
        """Percent of the limit that is used; a limit of 0 is always used up."""
        return 100 * self.used // self.rule.rate.limit if self.rule.rate.limit else 100

    @property
    def state(self) -> State:
        if self.override is not None and self.override.effect == "exempt":
            return State.EXEMPT
        if self.override is not None and self.override.effect == "block":
            return State.OBSERVED if self.rule.observe else State.BLOCKED
        if not self.verdict.allowed:
            return State.OBSERVED if self.rule.observe else State.LIMITED
        return State.NEAR if self.share >= NEAR else State.OK


@dataclass(slots=True)
class RuleUsage:
    """One rule in the last minutes.

    Args:
        rule: the rule as it is now, or as it was recorded if code made it.
        stored: its row, compiled; None for a rule in code, or a row that is off or deleted.
        age: minutes since it was last asked.
        fields: how it stands in the recorder's keys; several after an edit.
        allowed, refused, would: decisions in the last minutes.
        active: at least so many clients asked.
        clients: the busiest of them, those that used most first.
    """

    rule: Rule
    stored: StoredRule | None
    age: int
    fields: list[str] = field(default_factory=list)
    allowed: int = 0
    refused: int = 0
    would: int = 0
    active: int = 0
    clients: list[Standing] = field(default_factory=list)

    @property
    def over(self) -> int:
        """Hits over the limit, whatever became of them."""
        return self.refused + self.would

    @property
    def gone(self) -> bool:
        """Whether it is a row that is off or deleted by now."""
        return self.stored is None and self.rule.id.startswith("d")

    @property
    def overridden(self) -> bool:
        """Whether it is a rule in code, as overrides have its clients counted."""
        rates = {client.override and client.override.rate for client in self.clients}
        return self.stored is None and rates == {self.rule.rate}


def server() -> Server:
    """Ask the server for its time and what it is.

    Raises:
        StoreError: it does not answer.
    """
    store = _store()
    began = time.perf_counter()
    seconds, _ = store.run([("TIME",)])[0]
    trip_ms = (time.perf_counter() - began) * 1000
    try:
        info = _info(store.run([("INFO", "server")])[0])
    except StoreError:  # a user that may not ask
        info = {}
    # Valkey calls itself a Redis 7.2.4 first.
    name, version = "Valkey", info.get("valkey_version")
    if version is None:
        name, version = "Redis", info.get("redis_version", "")
    return Server(f"{name} {version}".strip(), int(seconds) // 60, trip_ms)


def overview(minute: int) -> list[RuleUsage]:
    """The rules that were asked in the last minutes, each with its busiest clients.

    Args:
        minute: the running minute, by the server's time.

    Raises:
        StoreError: the server does not answer.
    """
    store = _store()
    found = sorted(_rules(store, minute).values(), key=lambda u: u.rule.name)
    if len(found) > MOST_RULES:
        found = sorted(found, key=lambda u: -(u.allowed + u.refused + u.would))[:MOST_RULES]
    busiest = _busiest(store, minute, found)
    overrides = keeper.current().overrides
    asked = [
        _ask(usage.rule, client, overrides)
        for usage, clients in zip(found, busiest, strict=True)
        for client in clients
    ]
    standings = iter(_standings(store, asked))
    for usage, clients in zip(found, busiest, strict=True):
        usage.clients = sorted(islice(standings, len(clients)), key=_most_used)
    return _folded(found)


def of_client(minute: int, client: Client) -> list[tuple[RuleUsage, Standing]]:
    """The rules that a client is under: those that counted it lately or hold a count for it.

    And those that have an override of their own for it, which may keep them from counting.

    Raises:
        StoreError: the server does not answer.
    """
    store = _store()
    known = _rules(store, minute)
    for stored in stored_rules().values():
        known.setdefault(stored.rule.id, RuleUsage(stored.rule, stored, MINUTES))
    seen = _seen(store, minute, client, [f for usage in known.values() for f in usage.fields])
    overrides = keeper.current().overrides
    asked: dict[Counter, _Candidate] = {}
    for usage in known.values():
        # Of several rates of one place, which share a counter, the one last applied to the client.
        age = min((seen[f] for f in usage.fields if f in seen), default=MINUTES)
        hit, override = _ask(usage.rule, client, overrides)
        by_override = override is not None and override.rate == usage.rule.rate
        candidate = _Candidate(by_override and usage.stored is None, age, usage, hit, override)
        asked[hit.counter] = min(asked.get(hit.counter, candidate), candidate, key=lambda c: c[:2])
    standings = _standings(store, [(c.hit, c.override) for c in asked.values()])
    return [
        (candidate.usage, standing)
        for candidate, standing in zip(asked.values(), standings, strict=True)
        if candidate.age < MINUTES
        or standing.reading.previous
        or standing.reading.current
        or _is_excepted(candidate, client)
    ]


def override_everywhere(client: Client) -> Override | None:
    """The override that holds for a client under every rule that has none of its own for it."""
    return keeper.current().overrides.winner("", client)


def rule_of(text: str) -> Rule:
    """The rule of a recorder's field, with its name as far as it is known.

    Raises:
        ValueError: the text is no rule's field.
    """
    rule = field_rule(text)
    stored = stored_rules().get(rule.id)
    if stored is not None:
        return field_rule(text, stored.rule.name)
    store = _store()
    try:
        names = store.run([("HGET", f"{b}rules", text) for b in _bases(store, server().minute)])
    except StoreError:
        names = []
    return field_rule(text, next((n.decode() for n in names if n is not None), rule.id))


def stored_rules() -> dict[str, StoredRule]:
    """The rules of the database that are not off, by the id that they are counted under."""
    current = keeper.current()
    return {
        stored.rule.id: stored
        for group in (*current.scopes.values(), *current.paths.values())
        for stored in group
    }


def _store() -> Store:
    return connections.store().store


def _bases(store: Store, minute: int) -> list[str]:
    """What the keys of the last minutes begin with, newest first."""
    return [minute_base(store.prefix, minute - age) for age in range(MINUTES)]


def _rules(store: Store, minute: int) -> dict[str, RuleUsage]:
    """The rules of the last minutes and their counts, a row's under its id however it changed."""
    bases = _bases(store, minute)
    replies = store.run(
        [("HGETALL", f"{base}{kind}") for kind in ("rules", "counts") for base in bases]
    )
    stored = stored_rules()
    found: dict[str, RuleUsage] = {}
    by_field: dict[str, RuleUsage] = {}
    for age, reply in enumerate(replies[:MINUTES]):
        for name, title in _pairs(reply):
            if name in by_field:
                continue
            try:
                rule = field_rule(name, title)
            except ValueError:
                continue
            row = stored.get(rule.id)
            key = rule.id if rule.id.startswith("d") else name
            usage = found.setdefault(key, RuleUsage(row.rule if row else rule, row, age))
            usage.fields.append(name)
            by_field[name] = usage
    for reply in replies[MINUTES:]:
        for name, count in _pairs(reply):
            name, _, what = name.rpartition(":")
            if name in by_field and what in ("allowed", "refused", "would"):
                setattr(by_field[name], what, getattr(by_field[name], what) + int(count))
    return found


def _busiest(store: Store, minute: int, found: Sequence[RuleUsage]) -> list[list[Client]]:
    """The busiest clients of each rule, by what can be left of the count that was last recorded."""
    bases = _bases(store, minute)
    asked = [
        (usage, age, f"{base}top:{name}")
        for usage in found
        for name in usage.fields
        for age, base in enumerate(bases)
    ]
    tops = _run(store, [("ZREVRANGE", k, 0, MOST_CLIENTS - 1, "WITHSCORES") for *_, k in asked])
    sizes = _run(store, [("ZCARD", key) for *_, key in asked])
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


def _seen(store: Store, minute: int, client: Client, fields: Sequence[str]) -> dict[str, int]:
    """The rules' fields under which a client was recorded, and how many minutes ago."""
    member = client_member(client)
    asked = [
        (name, age, f"{base}top:{name}")
        for name in fields
        for age, base in enumerate(_bases(store, minute))
    ]
    scores = _run(store, [("ZSCORE", key, member) for *_, key in asked])
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


def _ask(rule: Rule, client: Client, overrides: Overrides) -> tuple[Hit, Override | None]:
    """What to read of a client's counter under a rule, and the override that holds there."""
    override = overrides.winner(rule.id, client)
    rate = override.rate if override is not None else None
    return Hit(rule if rate is None else at_rate(rule, rate), client), override


def _standings(store: Store, asked: Sequence[tuple[Hit, Override | None]]) -> list[Standing]:
    hits = [hit for hit, _ in asked]
    answers: list[Answer] = []
    for start in range(0, len(hits), TRIP):
        answers += store.peek(hits[start : start + TRIP]).answers
    return [
        Standing(a.hit.rule, a.hit.client, a.verdict, a.reading, override)
        for a, (_, override) in zip(answers, asked, strict=True)
        if a.reading
    ]


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


def _run(store: Store, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    replies: list[Any] = []
    for start in range(0, len(commands), TRIP):
        replies += store.run(commands[start : start + TRIP])
    return replies


def _pairs(reply: Sequence[bytes]) -> Iterable[tuple[str, str]]:
    texts = [part.decode() for part in reply]
    return zip(texts[::2], texts[1::2], strict=True)


def _info(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
