"""What a benchmark finds, and how calls are timed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

US = 1e6  # in a second
MS = 1e3


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Args:
        rules, overrides: rows in the database.
        rounds: of each candidate; they take turns, so that the machine's moods hit all alike.
        calls: timed as one, in each round.
        seconds: of each quiet period, and of each with edits.
        edits: that the processes have to obey, one after the other.
        processes: that decide under load.
        clients: whose counters the server holds, where there are many.
        threads: that decide at once, the most of them.
    """

    rules: int = 1_000
    overrides: int = 10_000
    rounds: int = 200
    calls: int = 50
    seconds: float = 20.0
    edits: int = 10
    processes: int = 4
    clients: int = 1_000_000
    threads: int = 64


QUICK = Sizes(
    rules=30,
    overrides=100,
    rounds=5,
    calls=5,
    seconds=0.5,
    edits=1,
    processes=2,
    clients=500,
    threads=4,
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured thing.

    Args:
        name: what was measured.
        unit: of the numbers.
        median, p99: over all samples; None where there is but one number.
        limit: what one of them may be at most; None: only for comparison.
        limits: which of them.
        gets: how many times a GET of redis-py in the same run it is.
    """

    name: str
    unit: str
    median: float
    p99: float | None = None
    limit: float | None = None
    limits: Literal["median", "p99"] = "median"
    gets: float | None = None

    @property
    def kept(self) -> bool:
        """Whether it is within its limit."""
        value = self.median if self.limits == "median" else self.p99
        return self.limit is None or value is None or value <= self.limit


def figure(name: str, unit: str, samples: Sequence[float], limit: float | None = None) -> Figure:
    """The figure of some samples, with a limit of their median."""
    return Figure(name, unit, median(samples), p99(samples), limit)


def p99(samples: Sequence[float]) -> float:
    """What 99 of 100 samples do not exceed."""
    return sorted(samples)[ceil(0.99 * len(samples)) - 1]


def in_turns(
    sizes: Sizes,
    *candidates: Callable[[], object],
    clock: Callable[[], float] = time.perf_counter,
) -> list[list[float]]:
    """Time some calls, taking turns.

    Args:
        sizes: how many rounds, of how many calls.
        candidates: what is called.
        clock: in seconds; `time.thread_time` leaves out what this thread waits for, such as Redis
            and a processor that others use.

    Returns:
        For each candidate, the seconds of one call in each round.
    """
    samples: list[list[float]] = [[] for _ in candidates]
    for _ in range(sizes.rounds):
        for candidate, mine in zip(candidates, samples, strict=True):
            began = clock()
            for _ in range(sizes.calls):
                candidate()
            mine.append((clock() - began) / sizes.calls)
    return samples


def each_in_turns(sizes: Sizes, *candidates: Callable[[], object]) -> list[list[float]]:
    """As `in_turns`, timing every call by itself: for what takes far longer than a clock's tick.

    Returns:
        For each candidate, the seconds of each of its calls.
    """
    clock = time.perf_counter
    samples: list[list[float]] = [[] for _ in candidates]
    for candidate in candidates:
        candidate()  # connects, and loads what is loaded when first used
    for _ in range(sizes.rounds):
        for candidate, mine in zip(candidates, samples, strict=True):
            for _ in range(sizes.calls):
                began = clock()
                candidate()
                mine.append(clock() - began)
    return samples


def over(samples: Sequence[float], base: Sequence[float]) -> list[float]:
    """By how much the one exceeds the other, round by round."""
    return [one - other for one, other in zip(samples, base, strict=True)]
