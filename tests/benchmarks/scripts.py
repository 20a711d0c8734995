"""What scripts cost at the server, as it says itself."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import redis

from .comparison import address
from .figures import Figure, p99

if TYPE_CHECKING:
    from collections.abc import Callable

    from .figures import Sizes


class Ran(NamedTuple):
    """How many scripts ran, and the microseconds that they took at the server."""

    calls: int = 0
    us: int = 0


class Statistics:
    """The server's own, since it started."""

    def __init__(self) -> None:
        self._client = redis.Redis.from_url(address())

    def ran(self) -> Ran:
        """Those run by EVALSHA, as decisions are (and what usage is written with)."""
        found = self._client.info("commandstats").get("cmdstat_evalsha")
        return Ran(found["calls"], found["usec"]) if found else Ran()


def at_server(sizes: Sizes, calls: dict[str, Callable[[], object]]) -> dict[str, Figure]:
    """Server time of a script: of calls that run one each, in turns.

    Args:
        sizes: how many rounds, of how many calls.
        calls: by the names of their figures.
    """
    statistics = Statistics()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()  # loads the script
    for _ in range(sizes.rounds):
        for name, call in calls.items():
            before = statistics.ran()
            for _ in range(sizes.calls):
                call()
            after = statistics.ran()
            samples[name].append((after.us - before.us) / (after.calls - before.calls))
    return {name: Figure(name, "us", median(us), p99(us)) for name, us in samples.items()}
