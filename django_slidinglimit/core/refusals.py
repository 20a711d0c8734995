"""Refusals that a process remembers, so that refusing the same again takes no trip to Redis.

Refused requests are not counted, so only time lowers what a counter holds: a hit that was refused
with a wait is refused until that wait is over. What this process cannot know of (a reset elsewhere,
a server that lost its memory, a machine that was suspended) is bounded by LONGEST.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple

from .decisions import Answer, Decision
from .stores import Store, StoreError, unasked
from .window import Reading, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .decisions import Counter, Held, Hit

# For how many seconds a refusal is remembered at most.
LONGEST = 1.0
# Counters whose refusals are remembered; the oldest makes room.
MOST_COUNTERS = 65_536
# Of one counter, refusals of so many limits and costs.
MOST_OF_ONE = 8
# How long others can see that something was reset, in seconds; they look far more often.
TOLD = 60


def resets_key(prefix: str) -> str:
    """Where a store with this prefix sets a fresh token at each reset."""
    return f"{prefix}resets:version"


class Refusal(NamedTuple):
    """A hit that was refused, by what makes another the same, and what the counter held then.

    `time_ms` is the store's clock; `asked` and `until` are this process's, in seconds.
    """

    limit: int
    cost: int
    reading: Reading
    time_ms: int
    asked: float
    until: float

    def time_at(self, now: float) -> int:
        """The store's time, or later by what the answer took and a millisecond at most."""
        return self.time_ms + int((now - self.asked) * 1000) + 1

    def answer(self, hit: Hit, now: float) -> Answer:
        """What the store would answer now, had it admitted nothing else since."""
        window = hit.counter.window_ms
        previous, current, _ = self.reading
        number, elapsed = divmod(self.time_at(now), window)
        for _ in range(min(2, number - self.time_ms // window)):
            previous, current = current, 0
        reading = Reading(previous, current, elapsed)
        return Answer(hit, judge(hit.rule.rate, reading, hit.cost, 0), reading)


class Refusals:
    """A bounded memory of refusals; many threads use it without a lock.

    Args:
        clock: seconds, monotonic.
        most: how many counters it has room for.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, most: int = MOST_COUNTERS
    ) -> None:
        self.clock = clock
        self.forgotten: object = None  # another whenever something is
        self._most = most
        self._known: OrderedDict[Counter, tuple[Refusal, ...]] = OrderedDict()

    def decision(self, hits: Sequence[Hit]) -> Decision | None:
        """The decision on a walk of which an enforcing rule is known to refuse; None: none is.

        The other hits would not be counted; what their counters hold was not asked, and no answer
        tells of it.
        """
        known = self._known
        if not known:
            return None
        answers, time_ms, now = [], None, self.clock()
        for hit in hits:
            refusal = self._find(hit, now) if hit.counter in known else None
            if refusal is None:
                answers.append(unasked(hit))
            else:
                answers.append(refusal.answer(hit, now))
                time_ms = refusal.time_at(now)
        return None if time_ms is None else Decision(tuple(answers), time_ms)

    def lapsed(self, hits: Sequence[Hit]) -> Counter | None:
        """The counter of a hit whose refusal was remembered until lately."""
        for hit in hits:
            for refusal in self._known.get(hit.counter, ()):
                if _is_of(refusal, hit):
                    return hit.counter
        return None

    def learn(self, decision: Decision, asked: float, forgotten: object) -> None:
        """Remember what a store's decision refuses, and forget what it changed.

        Args:
            decision: the store's.
            asked: the clock's time before the store was asked.
            forgotten: what `forgotten` was then: what was asked before something was reset, and
                answered after it, may have changed since.
        """
        if decision.allowed:
            if self._known:
                for hit, _, _, charged, *_ in decision.answers:
                    if charged:  # a lesser cost has passed: less remains than is known
                        self._known.pop(hit.counter, None)
            return
        if decision.in_parts:
            return
        for hit, verdict, reading, *_ in decision.answers:
            if verdict.retry_after and reading is not None and not hit.rule.observe:
                wait = min((verdict.retry_after - 1) / 1000, LONGEST)
                refusal = Refusal(
                    verdict.limit, hit.cost, reading, decision.time_ms or 0, asked, asked + wait
                )
                self._keep(hit.counter, refusal)
                if forgotten is not self.forgotten:  # looked at last: others forget meanwhile
                    self._known.pop(hit.counter, None)

    def forget(self, counters: Iterable[Counter]) -> None:
        """Forget what is known of some counters."""
        self.forgotten = object()
        for counter in counters:
            self._known.pop(counter, None)

    def forget_all(self) -> None:
        """Forget everything."""
        self.forgotten = object()
        self._known = OrderedDict()

    def _find(self, hit: Hit, now: float) -> Refusal | None:
        if not hit.rule.observe:
            for refusal in self._known.get(hit.counter, ()):
                if now < refusal.until and _is_of(refusal, hit):
                    return refusal
        return None

    def _keep(self, counter: Counter, refusal: Refusal) -> None:
        others = [
            kept
            for kept in self._known.pop(counter, ())
            if kept.until > refusal.asked and kept[:2] != refusal[:2]
        ]
        while len(self._known) >= self._most:
            with suppress(KeyError):  # others have forgotten all
                self._known.popitem(last=False)
        self._known[counter] = (refusal, *others[: MOST_OF_ONE - 1])


def _is_of(refusal: Refusal, hit: Hit) -> bool:
    """Whether a refusal is of such a hit."""
    return refusal.limit == hit.rule.rate.limit and refusal.cost == hit.cost


class RememberingStore(Store):
    """Passes calls to a store, and answers from memory what that has just refused.

    Args:
        store: the store.
        clock: seconds, monotonic.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self.prefix = store.prefix
        self.refusals = Refusals(clock)
        self._asking: dict[Counter, Event] = {}

    def take(self, hits: Sequence[Hit]) -> Decision:
        decision = self.refusals.decision(hits)
        if decision is not None:
            return decision
        lapsed = self.refusals.lapsed(hits)
        return self._ask(hits) if lapsed is None else self._ask_once(lapsed, hits)

    def _ask(self, hits: Sequence[Hit]) -> Decision:
        refusals = self.refusals
        asked, forgotten = refusals.clock(), refusals.forgotten
        decision = self.store.take(hits)
        refusals.learn(decision, asked, forgotten)
        return decision

    def _ask_once(self, counter: Counter, hits: Sequence[Hit]) -> Decision:
        """Ask anew about a counter; of the threads that want to at once, one does for all.

        Else a client that hammers would cost a command a thread whenever a refusal lapses.
        """
        mine = Event()
        asking = self._asking.setdefault(counter, mine)
        if asking is not mine:
            asking.wait(LONGEST)
            return self.refusals.decision(hits) or self._ask(hits)
        try:
            return self._ask(hits)
        finally:
            del self._asking[counter]
            mine.set()

    def peek(self, hits: Sequence[Hit]) -> Decision:
        return self.store.peek(hits)

    def reset(self, hits: Sequence[Hit]) -> list[Held]:
        try:
            held = self.store.reset(hits)
        finally:  # even if it is not known to be done
            self.refusals.forget(hit.counter for hit in hits)
        with suppress(StoreError):  # the others forget soon, anyway
            self.run([("SET", resets_key(self.prefix), secrets.token_hex(8), "EX", TOLD)])
        return held

    def restore(self, held: Sequence[Held]) -> None:
        try:
            self.store.restore(held)
        finally:
            self.refusals.forget(counter for counter, *_ in held)

    def refund(self, decision: Decision) -> None:
        try:
            self.store.refund(decision)
        finally:
            self.refusals.forget(decision.charges)

    def run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return self.store.run(commands)

    def forget_refusals(self) -> None:
        self.refusals.forget_all()
