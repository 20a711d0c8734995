"""What each process says of itself once or twice a second: which rule set it obeys, and since when.

It goes with the keeper's look at the rules' version, so that it costs no trip of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from django_slidinglimit import connections
from django_slidinglimit.core.wire import Script

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Command = tuple[Any, ...]

# What is older, in seconds, is left out by `seen`, and what is much older is deleted.
ALIVE = 10
GONE = 60

BEAT = Script("usage_process")


class Process(NamedTuple):
    """A process as it last said.

    Args:
        host, pid: where it runs.
        token: the version of the rules that it obeys; "" is none yet.
        obeyed_ms: for how long it had done so then, in milliseconds.
        breaker_open: whether it decided by policy, because the server did not count.
        age_ms: how long ago it said so, in milliseconds.
    """

    host: str
    pid: int
    token: str
    obeyed_ms: int
    breaker_open: bool
    age_ms: int


def key(prefix: str) -> str:
    """The hash that they stand in; ask for it with HGETALL."""
    return f"{prefix}usage:processes"


def beat(token: bytes | None) -> Command:
    """The command that says how this process does.

    Args:
        token: the version of the rules that it obeys.
    """
    store, this = connections.store(), _this()
    text = "" if token is None else token.decode(errors="replace")
    told = {
        "token": text,
        "obeyed_ms": this.obeyed_ms(text),
        "breaker_open": store.failure is not None,
    }
    return ("EVAL", BEAT.source, 1, key(store.prefix), GONE * 2, this.field, json.dumps(told))


def seen(reply: Sequence[bytes], now_ms: int) -> list[Process]:
    """The processes that are alive, by host and pid.

    Args:
        reply: the server's answer to HGETALL of `key`.
        now_ms: its time.
    """
    found = [process for _, process in _read(reply, now_ms) if process is not None]
    return sorted(process for process in found if process.age_ms <= ALIVE * 1000)


def gone(reply: Sequence[bytes], now_ms: int) -> list[bytes]:
    """The fields of those that are long silent, and of what others wrote there."""
    return [
        field
        for field, process in _read(reply, now_ms)
        if process is None or process.age_ms > GONE * 1000
    ]


def _read(reply: Sequence[bytes], now_ms: int) -> Iterable[tuple[bytes, Process | None]]:
    for field, value in zip(reply[::2], reply[1::2], strict=True):
        try:
            host, pid, _ = field.decode().rsplit(":", 2)
            time_ms, told = json.loads(value)
            token = str(told["token"])
            token.encode()  # pages show it: no lone surrogates
            process = Process(
                host,
                int(pid),
                token,
                int(told["obeyed_ms"]),
                bool(told["breaker_open"]),
                max(0, now_ms - int(time_ms)),
            )
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            yield field, None
        else:
            yield field, process


class _Self:
    """This process: its field, and since when it obeys a version of the rules."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.field = f"{socket.gethostname()}:{self.pid}:{secrets.token_hex(4)}"
        self._token: str | None = None
        self._since = 0.0

    def obeyed_ms(self, token: str) -> int:
        now = time.monotonic()
        if token != self._token:
            self._token, self._since = token, now
        return int((now - self._since) * 1000)


_self = _Self()


def _this() -> _Self:
    """This process. (uWSGI forks without telling Python.)"""
    global _self
    if _self.pid != os.getpid():
        _self = _Self()
    return _self
