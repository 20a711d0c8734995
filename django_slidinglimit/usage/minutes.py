"""Usage by the minute, as the recorders wrote it; what is over is read once and kept here.

Reading never writes. It goes past the breaker: a page that fails must not make this process answer
requests by policy.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from django_slidinglimit import connections
from django_slidinglimit.core.stores import StoreError

from . import server
from .layout import minute_base, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from django_slidinglimit.core.stores import Store

    Command = tuple[Any, ...]

# Minutes that may be read, and are kept: the last hour.
MOST = 60
# Recorders write late, and a minute's clients are counted when it is over.
CLOSED_AFTER = 2


@dataclass(slots=True)
class Counts:
    """One rule's decisions in one minute, and how many clients it had (0: not known yet)."""

    allowed: int = 0
    refused: int = 0
    would: int = 0
    clients: int = 0

    @property
    def all(self) -> int:
        return self.allowed + self.refused + self.would


class Minute(NamedTuple):
    """What was recorded in one minute: by a rule's field, its name and its counts."""

    number: int
    names: Mapping[str, str]
    counts: Mapping[str, Counts]


class Trip(NamedTuple):
    """What one round trip brought.

    Args:
        minutes: the newest first.
        replies: to the commands that were asked beside.
        time_ms: the server's time, in milliseconds since 1970.
        took_ms: how long it took.
    """

    minutes: list[Minute]
    replies: list[Any]
    time_ms: int
    took_ms: float


def read(many: int, also: Callable[[int], Sequence[Command]] = lambda _: ()) -> Trip:
    """Read the running minute and those before it, in one round trip.

    Args:
        many: how many minutes, 60 at most.
        also: gives further commands for the same trip, once it is told the running minute.

    Raises:
        StoreError: the server does not answer.
    """
    store = connections.pages()
    while True:
        running = _clock.now_ms // 60_000
        numbers = range(running, running - many, -1)
        known = _kept.copy()  # another thread may drop some meanwhile
        lacking = [number for number in numbers if number not in known]
        bases = [minute_base(store.prefix, number) for number in lacking]
        commands = [("HGETALL", f"{base}{kind}") for base in bases for kind in ("rules", "counts")]
        began = time.perf_counter()
        (seconds, micros), *replies = _run(store, [("TIME",), *commands, *also(running)])
        took_ms = (time.perf_counter() - began) * 1000
        time_ms = int(seconds) * 1000 + int(micros) // 1000
        _clock.set(time_ms)
        if time_ms // 60_000 == running:
            break
    found = {
        number: Minute(number, dict(_pairs(replies[2 * i])), _counts(replies[2 * i + 1]))
        for i, number in enumerate(lacking)
    }
    minutes = [found.get(number) or known[number] for number in numbers]
    _keep(running, found)
    return Trip(minutes, replies[2 * len(lacking) :], time_ms, took_ms)


def now_ms() -> int:
    """The server's time as far as it is known without asking, in milliseconds since 1970."""
    return _clock.now_ms


def forget() -> None:
    """Drop what is kept; tests begin so."""
    _kept.clear()


def _run(store: Store, commands: Sequence[Command]) -> list[Any]:
    """Run commands, and beside them what is to be asked of the server itself."""
    asked = server.question()
    try:
        replies = store.run([*asked, *commands])
    except StoreError as error:
        if not asked or not server.denied(error):
            raise
        asked, replies = [], store.run(commands)
        server.learn([])
    if asked:
        server.learn(replies[:1])
    return replies[len(asked) :]


class _Clock:
    """The server's time, as far as it is known without asking."""

    def __init__(self) -> None:
        self._ahead_ms = 0.0

    @property
    def now_ms(self) -> int:
        return int(time.time() * 1000 + self._ahead_ms)

    def set(self, time_ms: int) -> None:
        self._ahead_ms = time_ms - time.time() * 1000


_clock = _Clock()
_kept: dict[int, Minute] = {}


def _keep(running: int, found: Mapping[int, Minute]) -> None:
    _kept.update({n: minute for n, minute in found.items() if n <= running - CLOSED_AFTER})
    for number in [n for n in list(_kept) if not running - MOST < n <= running - CLOSED_AFTER]:
        _kept.pop(number, None)


def _counts(reply: Sequence[bytes]) -> dict[str, Counts]:
    found: dict[str, Counts] = {}
    for name, count in _pairs(reply):
        field, _, what = name.rpartition(":")
        if what in Counts.__slots__:
            setattr(found.setdefault(field, Counts()), what, whole(count))
    return found


def _pairs(reply: Sequence[bytes]) -> Iterable[tuple[str, str]]:
    texts = [part.decode(errors="replace") for part in reply]
    return zip(texts[::2], texts[1::2], strict=True)


connections.when_changed(forget)
