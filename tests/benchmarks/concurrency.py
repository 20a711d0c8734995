"""Many requests at once: from threads, and in the tasks of an event loop.

What is measured is the time on the wall of many calls, by their number.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from . import views
from .comparison import GET, get
from .figures import US, Figure, p99
from .views import limited, visits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .figures import Sizes

    # Makes a number of calls at once or in turn.
    Batch = Callable[[], object]

BARE, DECORATED = "bare view", "decorator, admitted"
# Of threads or tasks, from one to the most, so many times more at each step.
STEP = 4


def run(sizes: Sizes) -> Iterator[Figure]:
    number = 1
    while number <= sizes.threads:
        yield from in_threads(sizes, number)
        number *= STEP
    for number in (1, sizes.threads):
        yield from in_tasks(sizes, number)


def in_threads(sizes: Sizes, number: int) -> Iterator[Figure]:
    """Calls from some threads at once; each has clients of its own in turn."""
    view = limited(views.bare)
    with ThreadPoolExecutor(number) as pool:
        found = measured(
            sizes,
            number,
            {
                GET: partial(at_once, pool, sizes, [get()] * number),
                BARE: partial(at_once, pool, sizes, [visits(views.bare) for _ in range(number)]),
                DECORATED: partial(at_once, pool, sizes, [visits(view) for _ in range(number)]),
            },
        )
    return named(found, f"{number} thread{'s' * (number > 1)}")


def at_once(pool: ThreadPoolExecutor, sizes: Sizes, calls: list[Callable[[], object]]) -> None:
    """Make each call as often as the sizes say, each in a thread of its own."""
    list(pool.map(partial(repeat, sizes.calls), calls))


def repeat(times: int, call: Callable[[], object]) -> None:
    for _ in range(times):
        call()


def in_tasks(sizes: Sizes, number: int) -> Iterator[Figure]:
    """Requests to an asynchronous view, so many at once."""
    view = limited(views.async_bare)
    with asyncio.Runner() as runner:

        def batch(visit: Callable[[], Any]) -> None:
            runner.run(gather(sizes.calls, number, visit))

        found = measured(
            sizes,
            number,
            {
                GET: partial(repeat, sizes.calls * number, get()),
                BARE: partial(batch, visits(views.async_bare)),
                DECORATED: partial(batch, visits(view)),
            },
        )
    return named(found, f"asynchronous, {number} at once")


async def gather(times: int, number: int, visit: Callable[[], Any]) -> None:
    for _ in range(times):
        await asyncio.gather(*(visit() for _ in range(number)))


def measured(sizes: Sizes, number: int, batches: dict[str, Batch]) -> dict[str, list[float]]:
    """Seconds of a call, of batches of so many times `sizes.calls`, which take turns."""
    samples: dict[str, list[float]] = {name: [] for name in batches}
    for batch in batches.values():
        batch()  # connects
    for _ in range(max(3, sizes.rounds // number)):
        for name, batch in batches.items():
            began = time.perf_counter()
            batch()
            samples[name].append((time.perf_counter() - began) / number / sizes.calls)
    return samples


def named(samples: dict[str, list[float]], how: str) -> Iterator[Figure]:
    unit = median(samples[GET])
    for name, seconds in samples.items():
        cost = median(seconds)
        yield Figure(f"{how}, {name}", "us", cost * US, p99(seconds) * US, gets=cost / unit)
