"""What was read lately, so that a page that refreshes itself asks the database for nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

K = TypeVar("K")
V = TypeVar("V")

# How long it is kept, in seconds.
KEEP = 60.0


class Recent(Generic[K, V]):
    """A bounded memory of values by their keys, each for a minute.

    Args:
        most: how many it has room for; all make room together.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[K, tuple[float, V]] = {}

    def known(self, keys: Iterable[K]) -> dict[K, V]:
        """Those of some keys that were read lately."""
        now = time.monotonic()
        found = ((key, self._kept.get(key)) for key in keys)
        return {key: kept[1] for key, kept in found if kept and now - kept[0] < KEEP}

    def add(self, fresh: Mapping[K, V]) -> None:
        """Keep what was read just now."""
        if len(self._kept) + len(fresh) > self._most:
            self._kept.clear()
        now = time.monotonic()
        self._kept.update({key: (now, value) for key, value in fresh.items()})

    def clear(self) -> None:
        """Drop all of it."""
        self._kept.clear()
