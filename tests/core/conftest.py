"""Stores on the tests' own server, and servers to stop and to hang."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Protocol

import pytest

from django_slidinglimit.core.memory import MemoryStore
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.wire import Wire
from example_project.server import EmbeddedServer

from .clock import Clock, ClockedWire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_slidinglimit.core.stores import Store


class StartServer(Protocol):
    def __call__(self, *args: str, port: int = 0) -> EmbeddedServer: ...


@pytest.fixture
def start_server(redis_server: EmbeddedServer) -> Iterator[StartServer]:
    """Start a server of the test's own, of the kind that the session uses."""
    started = []

    def start(*args: str, port: int = 0) -> EmbeddedServer:
        server = EmbeddedServer(redis_server.binary, args, port=port)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def wire(redis_server: EmbeddedServer) -> Iterator[Wire]:
    wire = Wire.from_url(redis_server.url, timeout=5)
    yield wire
    wire.pool.disconnect()


@pytest.fixture
def redis_store(wire: Wire) -> RedisStore:
    """A store that lives by the server's own clock."""
    return RedisStore(wire)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def clocked_redis_store(redis_server: EmbeddedServer, clock: Clock) -> RedisStore:
    """A store in real Redis that lives by `clock`; all clients share one bucket a rule."""
    return RedisStore(ClockedWire(redis_server.url, clock), buckets=1)


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest, clock: Clock) -> Store:
    """Each store in turn, living by `clock`."""
    if request.param == "memory":
        return MemoryStore(clock)
    redis_store: RedisStore = request.getfixturevalue("clocked_redis_store")
    return redis_store
