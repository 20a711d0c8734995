"""Calls that are timed beside a GET of redis-py, the measure of all that asks Redis."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import redis
from django.conf import settings

from .figures import US, Figure, each_in_turns, p99

if TYPE_CHECKING:
    from collections.abc import Callable

    from .figures import Sizes

GET = "redis-py GET"


def address() -> str:
    """The server's, as the project's cache has it."""
    location: str = settings.CACHES["default"]["LOCATION"]
    return location


def get() -> Callable[[], object]:
    """A GET by a client as redis-py makes it."""
    client = redis.Redis.from_url(address())
    client.set("benchmark", "a value")
    return partial(client.get, "benchmark")


class Comparison:
    """Calls that took turns in one run, by name; `GET` is always one of them.

    Args:
        sizes: how many rounds, of how many calls.
        calls: what is called.
    """

    def __init__(self, sizes: Sizes, calls: dict[str, Callable[[], object]]) -> None:
        calls = {GET: get()} | calls
        self._samples = dict(zip(calls, each_in_turns(sizes, *calls.values()), strict=True))

    def cost(self, name: str, over: str = "") -> float:
        """The median of a call in seconds, less that of another."""
        return median(self._samples[name]) - (median(self._samples[over]) if over else 0)

    def figure(self, name: str, over: str = "", what: str = "") -> Figure:
        """The figure of a call, less the median of another.

        Args:
            name: the call.
            over: what it is measured over.
            what: what the figure is called; by default as these two.
        """
        less = median(self._samples[over]) if over else 0
        samples = [(seconds - less) * US for seconds in self._samples[name]]
        cost = self.cost(name, over)
        what = what or (f"{name}, over {over}" if over else name)
        return Figure(what, "us", cost * US, p99(samples), gets=cost / self.cost(GET))
