"""Sentinels: the master is found within the deadline, whatever some of them do."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError
from redis.sentinel import Sentinel, SentinelConnectionPool

from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.pool import own_pool
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.core.wire import Wire
from example_project.server import EmbeddedServer
from tests.conftest import need

from .peers import peer, together
from .test_wire import IN_TIME, TIMEOUT, Interrupt, hung

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .conftest import StartServer
    from .peers import Command

HITS = [Hit(Rule("r", Rate(1000, 30 * 86_400_000)), Client("ip", "192.0.2.1"))]
LOCAL = "127.0.0.1"
Address = tuple[str, int]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server((LOCAL, 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


def sentinel_server(folder: Path, port: int, master_port: int, more: str = "") -> EmbeddedServer:
    """Debian's server as a sentinel that watches one master."""
    config, run = folder / f"{port}.conf", folder / f"{port}.sh"
    config.write_text(
        f"sentinel monitor shop {LOCAL} {master_port} 1\n"
        "sentinel down-after-milliseconds shop 10000\n"
        f"sentinel failover-timeout shop 3000\n{more}"
    )
    # A configuration comes before all options.
    run.write_text(f'#!/bin/sh\nexec {need("redis-server")} {config} --sentinel "$@"\n')
    run.chmod(0o700)
    return EmbeddedServer(str(run), port=port)


@pytest.fixture
def master(start_server: StartServer) -> EmbeddedServer:
    [port] = free_ports(1)
    return start_server("--repl-diskless-sync-delay", "0", port=port)


@pytest.fixture
def sentinel(master: EmbeddedServer, tmp_path: Path) -> Iterator[Address]:
    """A sentinel's address."""
    [port] = free_ports(1)
    with sentinel_server(tmp_path, port, master.port):
        yield LOCAL, port


def pool_for(sentinels: list[Address], service: str = "shop", **settings: Any) -> Any:
    """An alias's pool, as django-redis makes it."""
    sentinel: Any = Sentinel
    pool: Any = SentinelConnectionPool
    kwargs = settings.pop("sentinel_kwargs", {"socket_timeout": 60})
    more = {k: settings.pop(k) for k in ("min_other_sentinels", "force_master_ip") if k in settings}
    manager = sentinel(sentinels, sentinel_kwargs=kwargs, **more)
    return pool.from_url(
        f"redis://{service}", service_name=service, sentinel_manager=manager, **settings
    )


def store_behind(sentinels: list[Address], timeout: float = 5, **settings: Any) -> RedisStore:
    return RedisStore(Wire(own_pool(pool_for(sentinels, **settings)), timeout))


def fails_in_time(store: RedisStore, match: str | None = None) -> None:
    begun = time.monotonic()
    with pytest.raises(StoreError, match=match):
        store.take(HITS)
    assert time.monotonic() - begun < IN_TIME


@pytest.fixture
def silent() -> Iterator[Address]:
    """Who takes connections and never answers."""
    with socket.create_server((LOCAL, 0)) as listener:
        yield LOCAL, listener.getsockname()[1]


def test_the_master_is_found_and_counts(sentinel: Address, master: EmbeddedServer) -> None:
    store = store_behind([sentinel], db=4)
    assert store.take(HITS).allowed
    with Redis.from_url(f"redis://{LOCAL}:{master.port}/4") as client:
        assert client.dbsize() == 1


@pytest.mark.parametrize("settings", [{"is_master": False}, {"check_connection": True}])
def test_the_master_is_written_to_even_if_the_alias_reads_elsewhere(
    sentinel: Address, settings: dict[str, bool]
) -> None:
    assert store_behind([sentinel], **settings).take(HITS).allowed


@pytest.mark.parametrize("hung_ones", [1, 2])
def test_sentinels_that_hang_or_are_away_leave_the_others_time(
    sentinel: Address, master: EmbeddedServer, silent: Address, hung_ones: int
) -> None:
    sentinels = [(LOCAL, 1), *[silent] * hung_ones, sentinel]
    store = store_behind(sentinels, timeout=2)
    begun = time.monotonic()
    assert store.take(HITS).allowed
    assert time.monotonic() - begun < 1.8
    # The one that answered is asked first from now on.
    begun = time.monotonic()
    with Redis.from_url(master.url) as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
    assert store.take(HITS).allowed
    assert time.monotonic() - begun < 0.45


def test_no_sentinel_that_answers_is_an_error_in_time(silent: Address) -> None:
    fails_in_time(store_behind([silent, silent, (LOCAL, 1)], TIMEOUT), match="No master found")


def test_a_master_that_the_sentinel_does_not_know_is_an_error(sentinel: Address) -> None:
    fails_in_time(store_behind([sentinel], TIMEOUT, service="another"), match="No master found")


def test_a_hung_master_is_an_error_in_time(sentinel: Address, master: EmbeddedServer) -> None:
    store = store_behind([sentinel], TIMEOUT)
    assert store_behind([sentinel]).take(HITS).allowed
    with Redis.from_url(master.url) as client, hung(client):
        fails_in_time(store)
        fails_in_time(store)


def test_a_restarted_master_is_found_again_without_an_error(
    sentinel: Address, master: EmbeddedServer
) -> None:
    store = store_behind([sentinel])
    assert store.take(HITS).allowed
    master.stop()
    master.start()
    assert store.take(HITS).allowed


def test_the_sentinels_own_settings_are_taken_over(master: EmbeddedServer, tmp_path: Path) -> None:
    [port] = free_ports(1)
    with sentinel_server(tmp_path, port, master.port) as server:
        with Redis.from_url(server.url) as client:
            client.execute_command("ACL", "SETUSER", "watcher", "on", ">sesame", "~*", "+@all")
            client.execute_command("ACL", "SETUSER", "default", "off")
        kwargs = {"username": "watcher", "password": "sesame", "decode_responses": True}
        address = LOCAL, port
        assert store_behind([address], sentinel_kwargs=kwargs).take(HITS).allowed
        fails_in_time(store_behind([address], TIMEOUT, sentinel_kwargs={"password": "wrong"}))


def test_what_a_sentinel_must_see_of_others_is_taken_over(sentinel: Address) -> None:
    fails_in_time(store_behind([sentinel], TIMEOUT, min_other_sentinels=1), match="No master found")


def test_an_address_forced_upon_the_master_is_taken_over(sentinel: Address) -> None:
    assert store_behind([sentinel], force_master_ip="localhost").take(HITS).allowed
    fails_in_time(store_behind([sentinel], TIMEOUT, force_master_ip="no-such-host.invalid"))


def test_threads_that_look_for_the_master_together_lose_no_sentinel(
    master: EmbeddedServer, tmp_path: Path
) -> None:
    first, second = free_ports(2)
    store = store_behind([(LOCAL, first), (LOCAL, second)], timeout=10)
    with sentinel_server(tmp_path, second, master.port):
        answers = together(50, lambda: store.take(HITS))
        assert [answer for answer in answers if isinstance(answer, Exception)] == []
    with Redis.from_url(master.url) as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
    with sentinel_server(tmp_path, first, master.port):
        assert store.take(HITS).allowed


def test_the_aliass_own_sentinels_are_left_as_they_were(sentinel: Address) -> None:
    pool = pool_for([(LOCAL, 1), sentinel])
    before = list(pool.sentinel_manager.sentinels)
    assert RedisStore(Wire(own_pool(pool), timeout=5)).take(HITS).allowed
    assert pool.sentinel_manager.sentinels == before


def test_250_threads_find_the_master_at_once(sentinel: Address) -> None:
    store = store_behind([sentinel], timeout=10)
    answers = together(250, lambda: store.take(HITS))
    assert [answer for answer in answers if isinstance(answer, Exception)] == []


def test_a_master_that_was_demoted_is_left_for_the_new_one(
    master: EmbeddedServer, start_server: StartServer, tmp_path: Path
) -> None:
    port, sentinel_port = free_ports(2)
    replica = start_server(port=port)
    deadline = time.monotonic() + 30
    with Redis.from_url(replica.url) as to_replica:
        to_replica.replicaof(LOCAL, master.port)
        while to_replica.info("replication")["master_link_status"] != "up":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # A sentinel looks for replicas when it starts, and then every 10 seconds.
        with sentinel_server(tmp_path, sentinel_port, master.port):
            store = store_behind([(LOCAL, sentinel_port)])
            assert store.take(HITS).allowed
            assert Redis.from_url(master.url).wait(1, 5000) == 1
            with Redis(LOCAL, sentinel_port) as to_sentinel:
                while to_sentinel.sentinel_masters()["shop"]["port"] != port:
                    assert time.monotonic() < deadline
                    with suppress(ResponseError):  # under way, or the replica is not known yet
                        to_sentinel.execute_command("SENTINEL", "FAILOVER", "shop")
                    time.sleep(0.05)
            while to_replica.info("replication")["role"] != "master":
                assert time.monotonic() < deadline
            with Redis.from_url(master.url) as to_master:
                to_master.replicaof(LOCAL, port)  # what the sentinel does when it next looks
            with pytest.raises(StoreError):
                store.take(HITS)
            assert store.take(HITS).allowed
            assert store.peek(HITS).answers[0].verdict.remaining == 998
            assert store.run([("INFO", "server")])[0].count(b"tcp_port:%d\r\n" % port) == 1


def test_an_interrupted_sign_in_leaves_no_half_open_connection() -> None:
    """A reply to AUTH that comes late must not be read as the answer to a script."""

    def interrupt(*_: object) -> None:
        raise Interrupt

    signed_in: list[bytes] = []

    def late(command: Command) -> Iterator[bytes]:
        if command[0] == b"AUTH":
            signed_in.append(command[1])
            if len(signed_in) == 1:
                time.sleep(2 * TIMEOUT)
            yield b"+OK\r\n"
        elif command[0] == b"EVALSHA":
            yield b"*3\r\n:7\r\n:0\r\n:0\r\n"
        else:
            yield b"+OK\r\n"

    with peer(late) as master_url:
        port = int(master_url.rpartition(":")[2].removesuffix("/0"))
        fields = [
            b"name",
            b"shop",
            b"ip",
            LOCAL.encode(),
            b"port",
            b"%d" % port,
            b"flags",
            b"master",
        ]
        fields += [b"num-other-sentinels", b"0"]
        reply = b"*1\r\n*%d\r\n" % len(fields)
        reply += b"".join(b"$%d\r\n%s\r\n" % (len(field), field) for field in fields)

        def answer(command: Command) -> Iterator[bytes]:
            yield reply if command[0] == b"SENTINEL" else b"+OK\r\n"

        with peer(answer) as sentinel_url:
            sentinel = LOCAL, int(sentinel_url.rpartition(":")[2].removesuffix("/0"))
            store = store_behind([sentinel], password="secret")
            before = signal.signal(signal.SIGALRM, interrupt)
            try:
                signal.setitimer(signal.ITIMER_REAL, TIMEOUT)
                with pytest.raises(Interrupt):
                    store.take(HITS)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
            assert [store.take(HITS).time_ms for _ in range(3)] == [7, 7, 7]
