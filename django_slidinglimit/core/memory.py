"""A store in this process's memory, for tests: the same arithmetic, and a clock one can set."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING

from .decisions import Held
from .stores import Store, charges, decide
from .window import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .decisions import Counter, Decision, Hit


def wall_clock_ms() -> int:
    """The system's time in whole milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


class MemoryStore(Store):
    """Counts in one process. Each process counts for itself, so it is no store for production.

    Args:
        clock: a callable that gives the time in milliseconds since 1970 UTC.
    """

    def __init__(self, clock: Callable[[], int] = wall_clock_ms) -> None:
        self.clock = clock
        # As in Redis: a slot for even and one for odd windows, each with its window number.
        self._slots: dict[tuple[Counter, int], tuple[int, int]] = {}
        self._lock = Lock()

    def take(self, hits: Sequence[Hit]) -> Decision:
        with self._lock:
            now = self.clock()
            readings = self._read(hits, now)
            charged = charges(hits, readings)
            for counter, cost in charged.items():
                if cost:
                    number = now // counter.window_ms
                    current = readings[counter].current + cost
                    self._slots[counter, number % 2] = (number, current)
        return decide(hits, readings, charged, now)

    def peek(self, hits: Sequence[Hit]) -> Decision:
        with self._lock:
            now = self.clock()
            return decide(hits, self._read(hits, now), {}, now)

    def reset(self, hits: Sequence[Hit]) -> list[Held]:
        with self._lock:
            found = [
                (counter, self._slots.pop((counter, slot), None))
                for counter in {hit.counter for hit in hits}
                for slot in (0, 1)
            ]
        return [Held(counter, *kept) for counter, kept in found if kept is not None]

    def restore(self, held: Sequence[Held]) -> None:
        with self._lock:
            now = self.clock()
            for counter, number, count in held:
                if number in (now // counter.window_ms, now // counter.window_ms - 1):
                    count += self._count(counter, number)
                    self._slots[counter, number % 2] = (number, count)

    def refund(self, decision: Decision) -> None:
        if decision.time_ms is None:
            return
        with self._lock:
            for counter, cost in decision.charges.items():
                number = decision.time_ms // counter.window_ms
                count = self._count(counter, number)
                if count:
                    self._slots[counter, number % 2] = (number, max(0, count - cost))

    def _read(self, hits: Iterable[Hit], now: int) -> dict[Counter, Reading]:
        return {hit.counter: self._reading(hit.counter, now) for hit in hits}

    def _reading(self, counter: Counter, now: int) -> Reading:
        number, elapsed = divmod(now, counter.window_ms)
        return Reading(self._count(counter, number - 1), self._count(counter, number), elapsed)

    def _count(self, counter: Counter, number: int) -> int:
        kept, count = self._slots.get((counter, number % 2), (None, 0))
        return count if kept == number else 0
