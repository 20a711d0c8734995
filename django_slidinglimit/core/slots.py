"""Deciding in a cluster, where the counters of one walk may lie in several slots."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

from .cluster import ClusterWire, slot
from .decisions import Counter, Decision, Held
from .stores import Store, StoreError, refunded, unasked
from .wire import ElsewhereError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .decisions import Answer, Hit
    from .redis import RedisStore

A = TypeVar("A")
T = TypeVar("T")


class ClusterStore(Store):
    """Counts on one server or, as soon as that proves to be a node of a cluster, on all nodes.

    In a cluster, hits are decided slot by slot; all that one client counts under any rule lies in
    one. If a slot's hits are refused, what was counted in others is given back, so that two
    requests for the last unit of two rules may refuse each other.

    Args:
        store: the store on the server that is known.
    """

    def __init__(self, store: RedisStore) -> None:
        self.prefix = store.prefix
        self._store = store
        self._in_cluster = False

    def take(self, hits: Sequence[Hit]) -> Decision:
        return self._ask(self._store.take, self._take, hits)

    def peek(self, hits: Sequence[Hit]) -> Decision:
        return self._ask(self._store.peek, self._peek, hits)

    def reset(self, hits: Sequence[Hit]) -> list[Held]:
        return self._ask(self._store.reset, self._reset, hits)

    def restore(self, held: Sequence[Held]) -> None:
        self._ask(self._store.restore, self._restore, held)

    def refund(self, decision: Decision) -> None:
        self._ask(self._store.refund, self._refund, decision)

    def run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return self._ask(self._store.run, self._run, commands)

    def _ask(self, alone: Callable[[A], T], in_cluster: Callable[[A], T], given: A) -> T:
        if not self._in_cluster:
            try:
                return alone(given)
            except ElsewhereError:  # nothing was done: it may be asked again
                self._join()
        return in_cluster(given)

    def _join(self) -> None:
        store = copy(self._store)
        store.wire = ClusterWire(store.wire)
        self._store, self._in_cluster = store, True

    def _take(self, hits: Sequence[Hit]) -> Decision:
        taken: list[Decision] = []
        told: list[Decision] = []
        for part in self._by_slot(hits, lambda hit: hit.counter):
            if told:  # refused: only what the others hold is still of interest
                told.append(self._look(part))
                continue
            decision = self._store.take(part)
            if decision.allowed:
                taken.append(decision)
                continue
            told.append(decision)
        if not told:
            return _joined(hits, taken)
        for decision in taken:
            with suppress(StoreError):  # if its node is away, the counts lapse with their windows
                self._store.refund(decision)
        return _joined(hits, [_refunded(decision) for decision in taken] + told)

    def _look(self, hits: Sequence[Hit]) -> Decision:
        """What a slot holds, if its node tells: a refusal of another stands in any case."""
        try:
            return self._store.peek(hits)
        except StoreError:
            return Decision(tuple(map(unasked, hits)))

    def _peek(self, hits: Sequence[Hit]) -> Decision:
        parts = self._by_slot(hits, lambda hit: hit.counter)
        return _joined(hits, [self._store.peek(part) for part in parts])

    def _reset(self, hits: Sequence[Hit]) -> list[Held]:
        parts = self._by_slot(hits, lambda hit: hit.counter)
        return [held for part in parts for held in self._store.reset(part)]

    def _restore(self, held: Sequence[Held]) -> None:
        for part in self._by_slot(held, lambda one: one.counter):
            self._store.restore(part)

    def _refund(self, decision: Decision) -> None:
        charged = [answer for answer in decision.answers if answer.charged]
        for part in self._by_slot(charged, lambda answer: answer.hit.counter):
            # Of its windows the longest bears with clocks that are furthest apart.
            longest = max(part, key=lambda answer: answer.hit.rule.rate.window_ms)
            self._store.refund(Decision(tuple(part), _time_of(longest, decision.time_ms)))

    def _run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return self._store.run(commands)

    def _by_slot(self, items: Iterable[T], counter_of: Callable[[T], Counter]) -> list[list[T]]:
        parts: dict[int, list[T]] = {}
        for item in items:
            key, *_ = self._store.place(counter_of(item))
            parts.setdefault(slot(key), []).append(item)
        return list(parts.values())


def _joined(hits: Sequence[Hit], decisions: Sequence[Decision]) -> Decision:
    """What several slots decided, as one decision on the hits in their order."""
    answers = {id(a.hit): a for decision in decisions for a in decision.answers}
    times = [decision.time_ms for decision in decisions]
    in_order = tuple(answers[id(hit)] for hit in hits)
    return Decision(in_order, times[0] if times else None, in_parts=len(decisions) > 1)


def _refunded(decision: Decision) -> Decision:
    return Decision(tuple(map(refunded, decision.answers)), decision.time_ms)


def _time_of(answer: Answer, time_ms: int | None) -> int | None:
    """The time by the clock of the node that gave an answer, which another node's is near."""
    if time_ms is None or answer.reading is None:
        return time_ms
    window = answer.hit.rule.rate.window_ms
    ahead = (answer.reading.elapsed_ms - time_ms) % window
    return time_ms + (ahead if ahead <= window // 2 else ahead - window)
