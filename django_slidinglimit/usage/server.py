"""The server that usage is kept in, as it answers just now."""

from __future__ import annotations

import time
from typing import NamedTuple

from django_slidinglimit import connections
from django_slidinglimit.core.stores import StoreError


class Server(NamedTuple):
    """The server as it answered just now: its name and version, its time, and the trip in ms."""

    name: str
    minute: int
    trip_ms: float


def server() -> Server:
    """Ask the server for its time and what it is.

    Raises:
        StoreError: it does not answer.
    """
    store = connections.pages()
    began = time.perf_counter()
    seconds, _ = store.run([("TIME",)])[0]
    trip_ms = (time.perf_counter() - began) * 1000
    try:
        info = _info(store.run([("INFO", "server")])[0])
    except StoreError:  # a user that may not ask
        info = {}
    # Valkey calls itself a Redis 7.2.4 first.
    name, version = "Valkey", info.get("valkey_version")
    if version is None:
        name, version = "Redis", info.get("redis_version", "")
    return Server(f"{name} {version}".strip(), int(seconds) // 60, trip_ms)


def _info(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
