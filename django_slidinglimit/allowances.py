"""What a caller may still do: a request -> its client's limits and what is left; nothing counts."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib.auth.models import AnonymousUser
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _

from . import connections, inventory, keeper
from .core.decisions import Hit
from .core.window import used
from .headers import seconds
from .places import asked_of, at_rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from django.http import HttpRequest

    from .core.decisions import Answer, Counter
    from .inventory import Source
    from .overrides import Effect, Override
    from .places import Asked, Place
    from .rules import RuleSet, StoredRule

logger = logging.getLogger("django_slidinglimit")

# So many at most are told: the one command that reads them holds Redis up for others.
MOST = 200
# What is told while the store does not answer.
AWAY = _("What is left of your limits cannot be told now. Try again soon.")
# What a request says of its body.
_BODY = ("CONTENT_LENGTH", "CONTENT_TYPE")


class Allowance(NamedTuple):
    """What one rule allows a client.

    Args:
        name: the rule's, as response fields have it.
        resource: the scope, or the path, that it is for.
        methods: the methods that it counts; empty: all that its place counts.
        counted_by: the kind of client that the caller is counted as, such as "user".
        limit: so many per window.
        window: the window in seconds.
        used: how much of the limit is used; 0 where an override has the caller not counted.
        remaining: how much is left now.
        reset: seconds until all of it is available again if nothing else arrives; None: never.
        retry_after: seconds until one more request is admitted; 0: now, None: never.
        override: what an override does: "rate" (the limit is its), "exempt" or "block"; None: there
            is none.
        until: when that ends; None: never, or there is none.
    """

    name: str
    resource: str
    methods: tuple[str, ...]
    counted_by: str
    limit: int
    window: int
    used: int
    remaining: int
    reset: int | None
    retry_after: int | None
    override: Effect | None = None
    until: datetime | None = None


class Allowances(NamedTuple):
    """What a caller is allowed, by resource and name, and how many more rules are not told."""

    limits: list[Allowance]
    left_out: int

    def as_data(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return {"limits": [each._asdict() for each in self.limits], "left_out": self.left_out}


class _Met(NamedTuple):
    """A rule that the caller is under."""

    hit: Hit
    resource: str
    methods: tuple[str, ...]
    override: Override | None

    @property
    def counted(self) -> bool:
        return self.override is None or self.override.effect == "rate"

    @property
    def order(self) -> tuple[object, ...]:
        rule = self.hit.rule
        return self.resource, rule.name, rule.rate.window_ms, self.methods, self.hit.counter


def of(request: Any) -> Allowances:
    """The rules that the caller is under on this site, each with what is left, in one round trip.

    These are the rules of all places that `inventory` knows, for the kinds of clients that this
    very request has an identity for. Rules that only observe are not told, soft limits neither.

    Args:
        request: Django's or REST framework's request; only who sends it matters.

    Raises:
        StoreError: the store does not answer.
    """
    met = _met(request)
    told = sorted(met[:MOST], key=lambda each: each.order)
    hits = [each.hit for each in told if each.counted]
    answers = iter(connections.store().peek(hits).answers if hits else ())
    return Allowances(
        [_counted(each, next(answers)) if each.counted else _uncounted(each) for each in told],
        len(met) - len(told),
    )


def again_in() -> int:
    """Seconds after which to ask again when the store did not answer, at least 1."""
    return max(1, seconds(connections.store().retry_in_ms))


def _met(request: Any) -> list[_Met]:
    """The rules, those of paths last, each counter once: of several limits on it the lowest."""
    current = keeper.current()
    callers: dict[str, HttpRequest] = {}
    heeding: dict[Source, list[Place]] = {}  # rules of paths
    met: dict[Counter, _Met] = {}
    for source in inventory.current().sources:
        caller = callers.get(source.method)
        if caller is None:
            caller = callers[source.method] = _caller(request, source.method)
        try:
            places = [place for place in source.places(caller) if not place.observe]
            found = [each for place in places for each in _in_scope(place, caller, current)]
        except Exception as exc:  # the project's own throttles, keys and rates
            _warn(f"{source.name} for {source.method}", exc)
            continue
        heeding[source] = [replace(place, rate=None) for place in places if place.by_path]
        _add(found, met)
    for rule in (rule for rules in current.paths.values() for rule in rules):
        for source in _reached(rule):
            for place in heeding.get(source, ()):
                _add(_on_path(rule, place, callers[source.method], current), met)
    return list(met.values())


def _add(found: Iterable[_Met], met: dict[Counter, _Met]) -> None:
    for each in found:
        known = met.setdefault(each.hit.counter, each)
        if each.hit.rule.rate.limit < known.hit.rule.rate.limit:
            met[each.hit.counter] = each


def _caller(request: Any, method: str) -> HttpRequest:
    """Whoever sends a request, sending one of another method, and nothing with it.

    What this one holds besides would speak for others: a form for the name in it.
    """
    sent: HttpRequest = getattr(request, "_request", request)
    user = getattr(request, "user", None)
    user = AnonymousUser() if user is None else user
    caller = type(sent).__new__(type(sent))
    vars(caller).update(
        vars(sent),
        method=method,
        META={name: value for name, value in sent.META.items() if name not in _BODY},
        user=user,
        # REST framework takes the user for granted then: no view of the site authenticates anew.
        _force_auth_user=user,
        _force_auth_token=getattr(request, "auth", None),
        _body=b"",
    )
    caller.POST = QueryDict()
    return caller


def _in_scope(place: Place, caller: HttpRequest, current: RuleSet) -> Iterator[_Met]:
    """The code's own rule at a place, and those of its scope."""
    by_scope = current.for_scope(place.scope, str(caller.method))
    known = {rule.rule.id: rule for rule in by_scope}
    for asked in asked_of(place, caller, by_scope):
        yield from _under(asked, known.get(asked.rule.id), place, current)


def _reached(rule: StoredRule) -> Iterator[Source]:
    """What heeds a rule of a path."""
    if rule.path is not None:
        yield from (s for s in inventory.reached_by(rule.path) if rule.covers(s.method))


def _on_path(
    rule: StoredRule, place: Place, caller: HttpRequest, current: RuleSet
) -> Iterator[_Met]:
    """The rule of a path, by itself: where a narrower one takes its place, it counts elsewhere."""
    try:
        asked = list(asked_of(place, caller, [rule]))
    except Exception as exc:  # a key of the project's own
        _warn(f"the rule {rule.pk}", exc)
        return
    for each in asked:
        yield from _under(each, rule, place, current)


def _under(
    asked: Asked, stored: StoredRule | None, place: Place, current: RuleSet
) -> Iterator[_Met]:
    """The rule as it holds for the caller, if it has an identity there and the rule enforces."""
    rule, client = asked.rule, asked.client
    if client is None or rule.observe:
        return
    override = current.overrides.winner(rule.id, client)
    if override and override.rate:
        rule = at_rate(rule, override.rate)
    resource = stored.path.text if stored and stored.path else place.scope
    methods = stored.methods if stored else place.methods
    yield _Met(Hit(rule, client), resource, tuple(sorted(methods)), override)


def _counted(met: _Met, answer: Answer) -> Allowance:
    verdict = answer.verdict
    return _allowance(
        met,
        used=used(met.hit.rule.rate, answer.reading) if answer.reading else 0,
        remaining=verdict.remaining,
        reset=seconds(verdict.reset_after),
        retry_after=None if verdict.retry_after is None else seconds(verdict.retry_after),
    )


def _uncounted(met: _Met) -> Allowance:
    """Of one who is exempt, or blocked."""
    if met.override is None or met.override.effect == "exempt":
        return _allowance(met, used=0, remaining=met.hit.rule.rate.limit, reset=0, retry_after=0)
    left = met.override.expires_in_ms()
    wait = None if left is None else max(1, seconds(left))
    return _allowance(met, used=0, remaining=0, reset=wait, retry_after=wait)


def _allowance(
    met: _Met, *, used: int, remaining: int, reset: int | None, retry_after: int | None
) -> Allowance:
    rule, override = met.hit.rule, met.override
    ends = override.expires if override else None
    return Allowance(
        rule.name,
        met.resource,
        met.methods,
        met.hit.client.kind,
        rule.rate.limit,
        seconds(rule.rate.window_ms),
        used,
        remaining,
        reset,
        retry_after,
        override.effect if override else None,
        None if ends is None else datetime.fromtimestamp(ceil(ends), UTC),
    )


def _warn(what: str, error: Exception) -> None:
    """Tell once of what cannot be asked, not once a request."""
    failing = inventory.current().failing
    if what not in failing:
        failing.add(what)
        name = type(error).__name__
        logger.warning("Callers are not told of %s: %s: %s", what, name, error)
