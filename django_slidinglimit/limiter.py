"""The one path from a request to a decision; every front door goes through here.

For code that is no front door: `check` counts, `peek` looks, `reset` forgets.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Any

from . import clients, connections
from .core.decisions import Answer, Counter, Decision, Hit, Verdict
from .core.stores import StoreError, refunded
from .core.window import judge
from .places import Place, hits_of, methods_of, rate_of
from .usage import recorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django.http import HttpRequest

    from .clients import KeyFunction
    from .core.rates import Rate

# What makes two hits the same question: counter, limit, and whether the rule observes.
Question = tuple[Counter, int, bool]

# Where a walk is kept on the request.
_WALK = "_slidinglimit_walk"


@dataclass(slots=True)
class Walk:
    """What one request has been asked so far: no rule is decided twice, whoever asks.

    `decision` is everything decided so far, as one; `taken` holds what can still be given back.
    """

    decision: Decision = field(default_factory=Decision)
    taken: list[Decision] = field(default_factory=list)

    @property
    def answers(self) -> dict[Question, Answer]:
        """What was decided, by question."""
        return {_question(answer.hit): answer for answer in self.decision.answers}

    def add(self, answers: Iterable[Answer], time_ms: int | None = None) -> None:
        """Take up answers, in place of earlier ones to the same questions."""
        known = self.answers | {_question(answer.hit): answer for answer in answers}
        self.decision = Decision(tuple(known.values()), time_ms or self.decision.time_ms)

    def about(self, hits: Iterable[Hit]) -> Decision:
        """What was decided on some hits; one that was not asked is passed over."""
        answers = self.answers
        questions = dict.fromkeys(map(_question, hits))
        return Decision(tuple(answers[q] for q in questions if q in answers), self.decision.time_ms)

    def charged(self, counter: Counter) -> int:
        """What was counted on a counter so far."""
        return sum(decision.charges.get(counter, 0) for decision in self.taken)


def walk_of(request: Any) -> Walk | None:
    """The request's open walk; on DRF's Request its own, or that of Django's inside it."""
    inner = getattr(request, "_request", request)
    # Asked for what it does not have, DRF's Request takes longer than all the rest here.
    holder = request if inner is not request and _WALK in request.__dict__ else inner
    walk = getattr(holder, _WALK, None)
    return walk if isinstance(walk, Walk) else None


class _Opened:
    """Opens a request's walk and clears it on leaving. (A generator would take twice the time.)"""

    __slots__ = ("_request",)

    def __init__(self, request: Any) -> None:
        self._request = getattr(request, "_request", request)

    def __enter__(self) -> Walk:
        opened = Walk()
        setattr(self._request, _WALK, opened)
        return opened

    def __exit__(self, *_: object) -> None:
        delattr(self._request, _WALK)


def walk(request: Any) -> AbstractContextManager[Walk]:
    """The request's walk: the outermost front door opens it and clears it on leaving."""
    outer = walk_of(request)
    return _Opened(request) if outer is None else nullcontext(outer)


def keep_walk(request: Any) -> Walk:
    """The open walk, or a new one that stays on this very object as long as it lives."""
    kept = walk_of(request)
    if kept is None:
        kept = Walk()
        setattr(request, _WALK, kept)
    return kept


def decide(request: Any, places: Sequence[Place], walk: Walk) -> Decision:
    """Decide all that some places ask of a request, in one round trip, all or nothing.

    Args:
        request: Django's or DRF's request.
        places: what asks.
        walk: what the request was asked before; a rule decided in it is not asked again. If this
            decision refuses, what the walk counted before is given back; once it is refused,
            nothing more is counted.

    Returns:
        The decision on these places alone; `walk.decision` has everything.
    """
    hits, without = hits_of(request, places)
    if not without and not walk.decision.answers:  # nothing to compare with
        taken = walk.decision = take(_without_doubles(hits))
        walk.taken.append(taken)
        return taken
    known, taken = walk.answers, Decision()
    asked: Sequence[Hit]
    if without:  # refused, whatever the counters hold
        asked = [answer.hit for answer in without]
        untold = tuple(answer for answer in without if _question(answer.hit) not in known)
        if untold:
            recorder.record(Decision(untold))
        walk.add(without)
    else:
        asked = _without_doubles(hits)
        fresh = [hit for hit in asked if not _answers(known.get(_question(hit)), hit)]
        taken = _ask([_rest(hit, walk) for hit in fresh], walk.decision)
        walk.add(list(map(_whole, taken.answers, fresh, repeat(walk))), taken.time_ms)
    if not walk.about(asked).allowed:
        give_back(walk)
    walk.taken.append(taken)
    return walk.about(asked)


def _ask(hits: Sequence[Hit], before: Decision) -> Decision:
    if before.allowed:
        return take(hits)
    # Refused already (DRF asks all throttles): only the wait is of interest, if there is one.
    return Decision() if before.retry_after is None else look(hits)


def take(hits: Sequence[Hit]) -> Decision:
    """Ask the store and count; where it does not answer, each rule's own choice does."""
    if not hits:
        return Decision()
    try:
        decision = connections.store().take(hits)
    except StoreError:
        return by_policy(hits, connections.store().retry_in_ms)
    recorder.record(decision)
    return decision


def look(hits: Sequence[Hit]) -> Decision:
    """As `take`, counting nothing."""
    if not hits:
        return Decision()
    try:
        return connections.store().peek(hits)
    except StoreError:
        return by_policy(hits, connections.store().retry_in_ms)


def by_policy(hits: Sequence[Hit], wait_ms: int) -> Decision:
    """What the rules chose for when the store does not answer; any that denies wins.

    What no counter would ever admit is refused all the same.

    Args:
        hits: what was asked.
        wait_ms: milliseconds until the store is tried again; a refusal's wait is at least 1 s.
    """
    answers = []
    for hit in hits:
        limit = hit.rule.rate.limit
        if hit.cost > limit:
            verdict = Verdict(False, limit, 0, None, 0)
        elif hit.rule.when_down == "deny" and not hit.rule.observe:
            verdict = Verdict(False, limit, 0, max(wait_ms, 1000), 0)
        else:
            verdict = Verdict(True, limit, limit, 0, 0)
        answers.append(Answer(hit, verdict, None))
    return Decision(tuple(answers))


def give_back(walk: Walk) -> None:
    """Return what a walk has counted, after a later refusal."""
    for decision in walk.taken:
        if decision.charges:
            with suppress(StoreError):  # if it is away, the counts lapse with their windows
                connections.store().refund(decision)
    walk.add(map(refunded, walk.decision.answers))
    walk.taken.clear()


def check(
    request: HttpRequest,
    scope: str,
    *,
    key: str | KeyFunction = "user_or_ip",
    rate: str | Rate | None = None,
    method: str | Iterable[str] | None = None,
    block: bool = True,
    cost: int = 1,
) -> Decision:
    """Count a request at a place, as the decorator does, and leave the answer to the caller.

    Args:
        request: the request; inside a decorated view it joins that view's walk.
        scope: the place's name; database rules of this scope apply.
        key: who is counted.
        rate: the limit, such as "100/min"; None: only what rules say.
        method: the methods that are counted, as the decorator's; None: all.
        block: False counts what would be admitted and never makes the decision a refusal.
        cost: what the request uses, a whole number of 0 or more.

    Returns:
        The decision: `allowed`, `retry_after` in milliseconds, and an answer for each rule.

    Raises:
        ValueError: the rate, a method or the cost is wrong.
        ImproperlyConfigured: the key is wrong.
    """
    place = Place(
        scope, clients.key(key), rate_of(rate), methods_of(method), observe=not block, cost=cost
    )
    return decide(request, [place], walk_of(request) or Walk())


def peek(
    request: HttpRequest,
    scope: str,
    *,
    key: str | KeyFunction = "user_or_ip",
    rate: str | Rate | None = None,
    method: str | Iterable[str] | None = None,
    cost: int = 1,
) -> Decision:
    """What `check` would answer now; counts nothing. Arguments and errors as there.

    A request by another method than those that are counted is looked at as one by them. Where the
    store does not answer, each rule's own choice does.
    """
    place = Place(scope, clients.key(key), rate_of(rate), methods_of(method), cost=cost)
    hits, without = hits_of(_as_counted(request, place), [place])
    return Decision(without) if without else look(hits)


def reset(
    request: HttpRequest,
    scope: str,
    *,
    key: str | KeyFunction = "user_or_ip",
    rate: str | Rate | None = None,
    method: str | Iterable[str] | None = None,
) -> None:
    """Forget what a request's client has used at a place. Arguments as in `peek`.

    Raises:
        StoreError: the store does not answer; nothing is known to be forgotten.
    """
    place = Place(scope, clients.key(key), rate_of(rate), methods_of(method), cost=0)
    hits, _ = hits_of(_as_counted(request, place), [place])
    if hits:
        connections.store().reset(hits)


def _as_counted(request: HttpRequest, place: Place) -> HttpRequest:
    """The request, by a method that the place counts."""
    if not place.methods or request.method in place.methods:
        return request
    counted = copy(request)
    counted.method = min(place.methods)
    return counted


def _question(hit: Hit) -> Question:
    return (hit.counter, hit.rule.rate.limit, hit.rule.observe)


def _without_doubles(hits: Sequence[Hit]) -> Sequence[Hit]:
    """The hits without doubles; of the same question, the one of the greatest cost."""
    if len(hits) < 2:
        return hits
    asked: dict[Question, Hit] = {}
    for hit in hits:
        question = _question(hit)
        if hit.cost > asked.setdefault(question, hit).cost:
            asked[question] = hit
    return list(asked.values())


def _answers(answer: Answer | None, hit: Hit) -> bool:
    """Whether an answer to the same question is one for as much as the hit costs."""
    return answer is not None and answer.hit.cost >= hit.cost


def _rest(hit: Hit, walk: Walk) -> Hit:
    """What a hit asks beyond what the walk has counted on its counter before."""
    before = walk.charged(hit.counter)
    return Hit(hit.rule, hit.client, max(0, hit.cost - before)) if before else hit


def _whole(answer: Answer, hit: Hit, walk: Walk) -> Answer:
    """The answer to a hit whose rest was asked, as if the walk had asked all of it now.

    So that it tells the right wait, and the right rest after all was given back.
    """
    before, reading = walk.charged(hit.counter), answer.reading
    if not before or reading is None or reading.current < before:  # less: another window began
        return answer._replace(hit=hit)
    hit = Hit(hit.rule, hit.client, max(hit.cost, before))
    reading = reading._replace(current=reading.current - before)
    charged = before + answer.charged
    return Answer(hit, judge(hit.rule.rate, reading, hit.cost, charged), reading, charged)
