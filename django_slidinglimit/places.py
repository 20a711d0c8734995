"""What the places in code ask of a request: each rule that applies there, as a hit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import clients, keeper, models
from .core.decisions import Answer, Client, Hit, Rule, Verdict, check_cost
from .core.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .clients import Key
    from .rules import RuleSet, StoredRule


@dataclass(frozen=True, slots=True)
class Place:
    """A place in code where requests are counted.

    Args:
        scope: its name.
        key: who is counted, and how a code rule's clients are told apart.
        rate: the code's own limit; None: none until a rule sets one.
        methods: the methods that are counted; empty: all.
        observe: count what would be admitted, never refuse (`block=False`).
        cost: what a request uses.
        needs_identity: a request without identity is not limited here at all, save by rules of
            another key (DRF's `get_cache_key` that returns None).
        by_path: apply the rules of paths, too.

    Raises:
        ValueError: the cost is no whole number of 0 or more.
    """

    scope: str
    key: Key
    rate: Rate | None = None
    methods: frozenset[str] = frozenset()
    observe: bool = False
    cost: int = 1
    needs_identity: bool = False
    by_path: bool = False

    def __post_init__(self) -> None:
        check_cost(self.cost)


def rate_of(given: object) -> Rate | None:
    """The rate that code gives, as a Rate or a text.

    Raises:
        ValueError: it is none.
    """
    return given if isinstance(given, Rate) else Rate.parse(cast("str | None", given))


def methods_of(given: str | Iterable[str] | None) -> frozenset[str]:
    """The methods that code names, as a list or a text such as "POST, PUT"; None names none.

    Raises:
        ValueError: one of them is no method, or there is none.
    """
    if given is None:
        return frozenset()
    methods = models.parse_methods(given if isinstance(given, str) else ",".join(map(str, given)))
    if not methods:
        raise ValueError("method names no method; None counts all.")
    return methods


def hits_of(request: Any, places: Iterable[Place]) -> tuple[list[Hit], tuple[Answer, ...]]:
    """The hits that places make of a request, and refusals that need no counter.

    Those are for clients that are blocked, of rules that insist on an identity, and for what costs
    more than a rule's limit.
    """
    current = keeper.current()
    hits: list[Hit] = []
    refusals: list[Answer] = []
    known: dict[Key, Client | None] = {}
    for place in places:
        if place.methods and request.method not in place.methods:
            continue
        for asked in asked_of(place, request, rules_at(place, request, current), known):
            rule = observing(asked.rule) if place.observe else asked.rule
            client = asked.client
            if client is None:
                if asked.no_identity == "allow":
                    continue
                if asked.no_identity == "refuse":
                    if not rule.observe:
                        nobody = Client(asked.key.name, "")
                        refusals.append(_refusal(rule, nobody, place.cost, None))
                    continue
                client = clients.without_identity(asked.key.name)
            override = current.overrides.winner(rule.id, client)
            if override is not None:
                if override.effect == "exempt":
                    continue
                if override.effect == "block":
                    if not rule.observe:
                        wait = override.expires_in_ms()
                        refusal = _refusal(rule, client, place.cost, wait)
                        refusals.append(refusal._replace(blocked=True))
                    continue
                rule = at_rate(rule, override.rate or rule.rate)
            if place.cost > rule.rate.limit and not rule.observe:  # never, however little is used
                refusals.append(_refusal(rule, client, place.cost, None))
                continue
            hits.append(Hit(rule, client, place.cost))
    return hits, tuple(refusals)


class Asked(NamedTuple):
    """One rule at a place: whom it counts there, and what it does where there is nobody."""

    rule: Rule
    key: Key
    client: Client | None
    no_identity: str


def rules_at(place: Place, request: Any, current: RuleSet) -> list[StoredRule]:
    """The rules in the database that cover a request at a place, narrowest paths first."""
    known = place.scope in current.scopes
    stored = current.for_scope(place.scope, request.method) if known else []
    if place.by_path and current.paths:
        match = getattr(request, "resolver_match", None)
        view = match.view_name if match else None
        stored = stored + current.for_path(request.path_info, request.method, view)
    return stored


def asked_of(
    place: Place,
    request: Any,
    stored: Iterable[StoredRule],
    known: dict[Key, Client | None] | None = None,
) -> Iterator[Asked]:
    """What is asked of a request at a place.

    An enforcing rule of the scope replaces the code's own if it counts the same clients; one of
    another key adds to it; an observing one, and one of a path, counts beside it. Of paths, an
    enforcing rule takes the place of those with a wider pattern that count the same clients over
    the same time. Clients outside the share that a rule is enforced for are as if there were no
    such rule.

    Args:
        place: the place.
        request: the request.
        stored: what `rules_at` gives.
        known: who asks by some keys, as far as that was found for this request before.
    """
    known = {} if known is None else known
    code = place.rate is not None
    if not stored and not code:
        return
    client = place.key.client(place.scope, request, known)
    exempt = client is None and place.needs_identity
    narrowest: dict[tuple[str, int], tuple[int, int]] = {}
    for rule in stored:
        same = rule.key is None or rule.key.name == place.key.name
        key = place.key if same or rule.key is None else rule.key
        counted = client if same else key.client(place.scope, request, known)
        if (same and exempt) or not rule.enforced_for(counted):
            continue
        if rule.path is not None:
            counting = (key.name, rule.rule.rate.window_ms)
            if narrowest.get(counting, rule.path.narrowness) < rule.path.narrowness:
                continue
            if not rule.rule.observe:
                narrowest[counting] = rule.path.narrowness
        elif same and not rule.rule.observe:
            code = False
        yield Asked(rule.rule, key, counted, rule.no_identity)
    if code and not exempt and place.rate is not None:
        own = code_rule(place.scope, place.key.name, place.methods, place.rate)
        yield Asked(own, place.key, client, "together")


def _refusal(rule: Rule, client: Client, cost: int, wait_ms: int | None) -> Answer:
    verdict = Verdict(False, rule.rate.limit, 0, wait_ms, 0)
    return Answer(Hit(rule, client, cost), verdict, None)


@lru_cache(maxsize=4096)
def code_rule(scope: str, key: str, methods: frozenset[str], rate: Rate) -> Rule:
    """A place's own rule; scope, key, methods and window make its identity."""
    parts = (scope, key, ",".join(sorted(methods)))
    text = b"".join(len(part.encode()).to_bytes(4) + part.encode() for part in parts)
    return Rule(f"c{blake2b(text, digest_size=8).hexdigest()}", rate, name=scope)


@lru_cache(maxsize=4096)
def observing(rule: Rule) -> Rule:
    """The same rule, counting and never refusing."""
    return replace(rule, observe=True)


@lru_cache(maxsize=4096)
def at_rate(rule: Rule, rate: Rate) -> Rule:
    """The same rule at another rate; with another window it counts in counters of its own."""
    return replace(rule, rate=rate, own_rate=rule.own_rate or rule.rate)
