"""What the limiter's own pool takes over from an alias's, and what it does not."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, cast

import pytest
import redis
from redis.backoff import ExponentialBackoff
from redis.connection import BlockingConnectionPool, UnixDomainSocketConnection
from redis.retry import Retry

from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.pool import own_pool
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.core.wire import Wire

from .peers import peer, together
from .test_redis import commands_of
from .test_wire import TIMEOUT, silence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

    from example_project.server import EmbeddedServer

    from .conftest import StartServer

HITS = [Hit(Rule("r", Rate(1000, 86_400_000)), Client("ip", "192.0.2.1"))]


def own_wire(url: str, timeout: float = 5, **kwargs: Any) -> Wire:
    return Wire(own_pool(redis.ConnectionPool.from_url(url, **kwargs)), timeout)


def session(wire: Wire) -> dict[str, str]:
    """What the server knows of the wire's connection."""
    [line] = wire.run([("CLIENT", "INFO")])
    return dict(part.split("=", 1) for part in line.decode().split())


def test_credentials_database_and_name_are_taken_over(start_server: StartServer) -> None:
    server = start_server()
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all")
    wire = own_wire(
        server.url.replace("db=0", "db=3"),
        username="app",
        password="secret",
        client_name="shop",
    )
    known = session(wire)
    assert (known["db"], known["name"], known.get("user")) == ("3", "shop", "app")


def test_what_decodes_replies_or_speaks_resp3_makes_no_difference(
    redis_server: EmbeddedServer,
) -> None:
    settings: list[dict[str, Any]] = [
        {"decode_responses": True},
        {"decode_responses": True, "encoding": "latin-1"},
        {"protocol": 3},
    ]
    for each in settings:
        wire = own_wire(redis_server.url, **each)
        assert RedisStore(wire, prefix=f"{each}".translate({123: 40, 125: 41})).take(HITS).allowed
        assert wire.run([("ECHO", "é")]) == ["é".encode()]
        assert session(wire).get("resp", "2") == "2"


def test_the_size_of_the_aliass_pool_is_not_taken_over(redis_server: EmbeddedServer) -> None:
    source = redis.ConnectionPool.from_url(redis_server.url, max_connections=1)
    held = source.get_connection()
    try:
        wire = Wire(own_pool(source), timeout=5)
        barrier = threading.Barrier(8)

        def call() -> list[Any]:
            barrier.wait()
            return wire.run([("BLPOP", "nothing", "0.2"), ("PING",)])

        assert together(8, call) == [[None, b"PONG"]] * 8
    finally:
        source.release(held)
        source.disconnect()


def test_any_kind_of_pool_and_connection_will_do(redis_server: EmbeddedServer) -> None:
    class Special(UnixDomainSocketConnection):
        made = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            Special.made += 1
            super().__init__(*args, **kwargs)  # type: ignore[no-untyped-call]

    path = redis_server.url.removeprefix("unix://").partition("?")[0]
    blocking: Any = BlockingConnectionPool
    source = blocking(1, timeout=60, connection_class=Special, path=path)
    wire = Wire(own_pool(source), timeout=5)
    assert RedisStore(wire).take(HITS).allowed
    assert Special.made == 1


def test_the_aliass_pool_is_left_as_it_was(redis_server: EmbeddedServer) -> None:
    source = redis.ConnectionPool.from_url(redis_server.url, socket_timeout=60, max_connections=3)
    before = dict(source.connection_kwargs)
    RedisStore(Wire(own_pool(source), timeout=5)).take(HITS)
    assert source.connection_kwargs == before
    assert source.max_connections == 3
    assert source.connection_class is UnixDomainSocketConnection


@pytest.mark.parametrize(
    "settings",
    [
        {"socket_timeout": 60, "socket_connect_timeout": 60},
        {"socket_timeout": None, "socket_connect_timeout": None},
        {"retry": Retry(ExponentialBackoff(1, 1), 10), "retry_on_error": [redis.TimeoutError]},
        {"retry_on_timeout": True},
        {"health_check_interval": 1},
    ],
)
def test_the_aliass_timeouts_and_retries_are_not_taken_over(settings: dict[str, Any]) -> None:
    known: list[list[bytes]] = []
    with peer(silence, known) as url:
        store = RedisStore(own_wire(url, timeout=0.7, **settings))
        begun = time.monotonic()
        with pytest.raises(StoreError):
            store.take(HITS)
        assert time.monotonic() - begun < 10
    assert [command[0] for command in known if command[0].startswith(b"EVAL")] == [b"EVALSHA"]


def test_an_aliass_health_checks_add_no_command(
    redis_client: Redis, redis_server: EmbeddedServer
) -> None:
    url = redis_server.url.replace("db=0", "db=5")
    store = RedisStore(own_wire(url, health_check_interval=0.01))
    store.take(HITS)
    time.sleep(0.05)
    assert [name for name, *_ in commands_of(store, HITS, redis_client)] == ["EVALSHA"]


def test_two_wires_to_one_address_keep_their_own_timeouts() -> None:
    with peer(silence) as url:
        for timeout in (TIMEOUT / 4, TIMEOUT):
            begun = time.monotonic()
            with pytest.raises(StoreError):
                Wire.from_url(url, timeout).run([("EVAL", "return 1", 0)])
            assert time.monotonic() - begun >= timeout * 0.9


def test_an_address_that_resolves_to_several_is_tried_in_turn(
    start_server: StartServer, free_port: int
) -> None:
    # "localhost" may be ::1 first, where nobody listens.
    start_server(port=free_port)
    assert RedisStore(own_wire(f"redis://localhost:{free_port}")).take(HITS).allowed


class Visited:
    """A pool that counts who comes to it."""

    def __init__(self, url: str) -> None:
        self._pool = own_pool(redis.ConnectionPool.from_url(url))
        self.given = 0

    def get_connection(self) -> Any:
        self.given += 1
        return self._pool.get_connection()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


def test_connections_stay_at_hand_and_visit_the_pool_now_and_then(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Visited(redis_server.url)
    wire = Wire(cast("redis.ConnectionPool", pool), timeout=5)
    monkeypatch.setattr("django_slidinglimit.core.wire.LONGEST_AWAY", 600)
    assert [wire.run([("PING",)]) for _ in range(20)] == [[b"PONG"]] * 20
    assert pool.given == 1
    wire = Wire(cast("redis.ConnectionPool", pool), timeout=5)
    monkeypatch.setattr("django_slidinglimit.core.wire.LONGEST_AWAY", 0)
    assert [wire.run([("PING",)]) for _ in range(20)] == [[b"PONG"]] * 20
    assert pool.given == 21
    assert len(pool._get_free_connections()) <= 1  # the same one, each time


def test_a_failure_leaves_no_connection_at_hand(start_server: StartServer) -> None:
    server = start_server()
    pool = Visited(server.url)
    wire = Wire(cast("redis.ConnectionPool", pool), timeout=5)
    together(4, lambda: wire.run([("BLPOP", "nothing", 0.05)]))
    given = pool.given
    with pytest.raises(StoreError):
        wire.run([("NO SUCH COMMAND",)])
    assert wire.run([("PING",)]) == [b"PONG"]
    assert pool.given == given + 1


def test_more_data_than_was_asked_for_is_read_by_nobody() -> None:
    def too_much(command: list[bytes]) -> Iterator[bytes]:
        yield b"+PONG\r\n+PONG\r\n" if command[0] == b"PING" else b"+OK\r\n"

    with peer(too_much) as url:
        wire = own_wire(url)
        assert wire.run([("PING",)]) == [b"PONG"]
        assert wire.run([("ECHO", "x")]) == [b"OK"]
