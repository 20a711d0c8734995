"""A clock that only the test moves, for the memory store and for the script in Redis."""

from __future__ import annotations

import copy
import time
from hashlib import sha1
from typing import TYPE_CHECKING, Any

import redis

from django_slidinglimit.core.pool import own_pool
from django_slidinglimit.core.redis import REFUND, RESET, RESTORE, TAKE
from django_slidinglimit.core.wire import Script, Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

WEEK = 7 * 86_400_000
# Ahead of the real time, so that no key expires on its own; a whole number of weeks, so that a
# window of each usual length begins there.
START = (time.time_ns() // 1_000_000 // WEEK + 10) * WEEK

READS_THE_TIME = b"redis.call('TIME')"
# How often each script does so.
READINGS = {TAKE: 1, REFUND: 0, RESET: 0, RESTORE: 1}


class Clock:
    """Milliseconds since 1970 UTC."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


class ClockedWire(Wire):
    """A wire to a real server, whose scripts are told the clock's time instead of the server's."""

    def __init__(self, url: str, clock: Clock) -> None:
        super().__init__(own_pool(redis.ConnectionPool.from_url(url)), timeout=10)
        self._clock = clock

    def script(
        self, script: Script, keys: Sequence[bytes], args: Sequence[bytes], *, asking: bool = False
    ) -> Any:
        return super().script(at(script, self._clock()), keys, args, asking=asking)


def at(script: Script, now: int) -> Script:
    """The same script, run at another time: its one reading of the clock is replaced by text."""
    assert script.source.count(READS_THE_TIME) == READINGS[script]
    seconds, ms = divmod(now, 1000)
    # Microseconds that are no whole milliseconds: the script must cut them off.
    told = f"{{'{seconds}', '{ms * 1000 + 999}'}}".encode()
    moved = copy.copy(script)
    moved.source = script.source.replace(READS_THE_TIME, told)
    moved.sha = sha1(moved.source, usedforsecurity=False).hexdigest()
    return moved
