"""What recording usage costs a decision, and what a flood of addresses makes of it."""

from __future__ import annotations

import time
from itertools import cycle
from typing import TYPE_CHECKING

import redis

from django_slidinglimit.usage import recorder

from . import population, views
from .comparison import address
from .figures import US, Figure, figure, in_turns, over
from .processes import Process
from .site import usage
from .views import CLIENTS, limited, visits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from django_slidinglimit.core.decisions import Decision

    from .figures import Sizes

MB = 1e6
# Rules under the flood.
RULES = 100
# Visits after a change of settings that are not timed: they connect, and load the rules.
WARM = 5


def run(sizes: Sizes) -> Iterator[Figure]:
    with_it, without = visited(sizes)
    yield figure("Decorator, usage recorded", "us", [s * US for s in with_it])
    yield figure("Decorator, usage not recorded", "us", [s * US for s in without])
    yield figure("Added by recording", "us", [s * US for s in over(with_it, without)])
    yield from by_itself(sizes)
    yield from flooded(sizes)


def visited(sizes: Sizes) -> list[list[float]]:
    """Seconds of a visit to a limited view, with usage and without, in turns."""
    visit = visits(limited(views.bare))
    samples: list[list[float]] = [[], []]
    for _ in range(sizes.rounds):
        for recorded, mine in zip((True, False), samples, strict=True):
            with usage(recorded):
                for _ in range(WARM):
                    visit()
                began = time.perf_counter()
                for _ in range(sizes.calls):
                    visit()
                mine.append((time.perf_counter() - began) / sizes.calls)
    return samples


def by_itself(sizes: Sizes) -> Iterator[Figure]:
    """Time of the thread that the recorder takes for a decision."""
    decision = population.decide("recorded")
    known = [population.on_another(decision, number) for number in range(CLIENTS)]
    calls = range(sizes.rounds * sizes.calls)
    flood = [population.on_another(decision, CLIENTS + number) for number in calls]
    samples = in_turns(sizes, recording(cycle(known)), recording(flood), clock=time.thread_time)
    whom = (f"{CLIENTS:,} clients in turn", "ever another client")
    for what, mine, limit in zip(whom, samples, (2, None), strict=True):
        yield figure(f"Recorder, {what}", "us", [s * US for s in mine], limit)


def recording(decisions: Iterable[Decision]) -> Callable[[], object]:
    following = iter(decisions)
    return lambda: recorder.record(next(following))


def flooded(sizes: Sizes) -> Iterator[Figure]:
    """Memory that a flood takes: in a process that decides on it, and in Redis."""
    server = redis.Redis.from_url(address())
    before = server.info("memory")["used_memory"]
    with Process.start() as process:
        most = process.ask("flood", sizes.clients, RULES)
    added = server.info("memory")["used_memory"] - before
    flood = f"Flood of {sizes.clients:,} addresses under {RULES} rules"
    yield Figure(f"{flood}, in the process", "MB", most / MB, limit=32)
    yield Figure(f"{flood}, in Redis", "MB", added / MB, limit=64)
