from __future__ import annotations

import logging
import os
import socket
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import django_redis
import pytest
from django.conf import settings
from django.core.cache import caches
from django.test import RequestFactory, override_settings
from redis import Redis

from django_slidinglimit import connections, limiter
from django_slidinglimit.core.memory import MemoryStore
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.errors import SettingError
from django_slidinglimit.signals import store_changed
from example_project.server import EmbeddedServer
from tests.core.test_sentinel import LOCAL, free_ports, sentinel_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.django_db

BACKEND = "django_redis.cache.RedisCache"


def ask(rate: str = "2/min") -> bool:
    return limiter.check(RequestFactory().get("/"), "a", rate=rate).allowed


def using(location: Any, options: dict[str, Any] | None = None, **parts: Any) -> override_settings:
    """Settings in which limits are counted in such a cache."""
    alias = {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options or {}}
    setting = {"RULES_POLL": 0, "USAGE": False, "CACHE": "limits"} | parts
    return override_settings(CACHES=settings.CACHES | {"limits": alias}, SLIDINGLIMIT=setting)


@pytest.fixture
def other_server(redis_server: EmbeddedServer) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(redis_server.binary) as server:
        yield server


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server((LOCAL, 0)) as listener:
        yield f"redis://{LOCAL}:{listener.getsockname()[1]}/0"


def keys_at(url: str) -> list[str]:
    with Redis.from_url(url) as client:
        return [key.decode() for key in client.scan_iter()]


def test_one_store_is_made_for_all_threads_and_kept() -> None:
    stores = []
    barrier = threading.Barrier(20)

    def get() -> None:
        barrier.wait()
        stores.append(connections.store())

    threads = [threading.Thread(target=get) for _ in range(20)]
    with using(settings.CACHES["default"]["LOCATION"]):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(map(id, stores))) == 1


def test_an_override_of_the_setting_is_obeyed(redis_server: EmbeddedServer) -> None:
    mine = {"RULES_POLL": 0, "USAGE": False, "PREFIX": "mine:", "BUCKETS": 1}
    with override_settings(SLIDINGLIMIT=mine):
        ask()
    [key] = keys_at(redis_server.url)
    assert key.startswith("mine:{0}:")
    assert ask()
    assert any(key.startswith("sl:{") for key in keys_at(redis_server.url))


def test_an_override_of_the_cache_is_obeyed(
    redis_server: EmbeddedServer, other_server: EmbeddedServer
) -> None:
    with using(other_server.url):
        ask()
    assert len(keys_at(other_server.url)) == 1
    assert keys_at(redis_server.url) == []


def test_an_override_of_the_secret_key_counts_anew(redis_server: EmbeddedServer) -> None:
    with using(redis_server.url, BUCKETS=1):
        assert [ask(), ask(), ask()] == [True, True, False]
        with override_settings(SECRET_KEY="another"):
            assert [ask(), ask(), ask()] == [True, True, False]
        assert not ask()


def test_the_caches_own_prefix_comes_first(redis_server: EmbeddedServer) -> None:
    caches = {"default": settings.CACHES["default"] | {"KEY_PREFIX": "shop:"}}
    with override_settings(CACHES=caches):
        ask()
    assert all(key.startswith("shop:sl:") for key in keys_at(redis_server.url))


def test_a_cache_that_cannot_count_for_all_processes_fails_loudly() -> None:
    locmem = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    with override_settings(CACHES=locmem), pytest.raises(SettingError, match="django-redis"):
        ask()


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("?socket_timeout=60&socket_connect_timeout=60", {}),
        ("", {"SOCKET_TIMEOUT": 60, "SOCKET_CONNECT_TIMEOUT": 60}),
        ("", {"CONNECTION_POOL_KWARGS": {"socket_timeout": 60, "retry_on_timeout": True}}),
    ],
)
def test_the_deadline_is_ours_whatever_the_cache_says(
    silent: str, query: str, options: dict[str, Any]
) -> None:
    with using(f"{silent}{query}", options, TIMEOUT=0.2):
        began = time.monotonic()
        with pytest.raises(StoreError):
            connections.redis_store().run([("PING",)])
        assert 0.1 < time.monotonic() - began < 30


def test_the_pool_is_our_own_and_the_caches_keep_theirs(redis_server: EmbeddedServer) -> None:
    with using(f"{redis_server.url}&client_name=apart", {"SOCKET_TIMEOUT": 7}):
        ask()
        theirs = caches["limits"].client.get_client().connection_pool  # type: ignore[attr-defined]
        ours = connections.redis_store().wire.pool
        assert ours is not theirs
        assert theirs.connection_kwargs["socket_timeout"] == 7
        caches["limits"].set("key", "value")
        assert caches["limits"].get("key") == "value"


def test_options_of_the_url_and_of_the_pool_are_taken_over(redis_server: EmbeddedServer) -> None:
    names = {"CONNECTION_POOL_KWARGS": {"client_name": "limits"}}
    with using(f"{redis_server.url.partition('?')[0]}?db=3", names):
        ask()
        [name] = connections.redis_store().run([("CLIENT", "GETNAME")])
    assert name == b"limits"
    assert len(keys_at(f"{redis_server.url.partition('?')[0]}?db=3")) == 1


def test_the_alias_signs_in_for_us(other_server: EmbeddedServer) -> None:
    with Redis.from_url(other_server.url) as client:
        client.acl_setuser(
            "limits", enabled=True, passwords=["+secret"], keys=["sl:*"], commands=["+@all"]
        )
        client.config_set("requirepass", "general")
    with using(other_server.url, {"PASSWORD": "general"}):
        assert connections.redis_store().run([("ACL", "WHOAMI")]) == [b"default"]
    with using(f"{other_server.url}&username=limits&password=secret"):
        assert connections.redis_store().run([("ACL", "WHOAMI")]) == [b"limits"]
        assert [ask(), ask(), ask()] == [True, True, False]
    with using(other_server.url), pytest.raises(StoreError, match="Authentication"):
        connections.redis_store().run([("PING",)])


@pytest.mark.skipif(django_redis.VERSION < (7,), reason="USERNAME is new in django-redis 7")
def test_the_alias_names_the_user_in_its_options(other_server: EmbeddedServer) -> None:
    with Redis.from_url(other_server.url) as client:
        client.acl_setuser("limits", enabled=True, passwords=["+secret"], commands=["+@all"])
    with using(other_server.url, {"USERNAME": "limits", "PASSWORD": "secret"}):
        assert connections.redis_store().run([("ACL", "WHOAMI")]) == [b"limits"]


@pytest.mark.parametrize("joined", [False, True])
def test_of_a_list_the_first_server_is_written_to(
    redis_server: EmbeddedServer, other_server: EmbeddedServer, joined: bool
) -> None:
    servers = [other_server.url, redis_server.url]
    with using(",".join(servers) if joined else servers):
        ask()
    assert len(keys_at(other_server.url)) == 1
    assert keys_at(redis_server.url) == []


@pytest.fixture
def master_and_replica(redis_server: EmbeddedServer) -> Iterator[list[EmbeddedServer]]:
    first, second = free_ports(2)
    options = ("--repl-diskless-sync-delay", "0")
    follow = ("--replicaof", LOCAL, str(first))
    with (
        EmbeddedServer(redis_server.binary, options, port=first) as master,
        EmbeddedServer(redis_server.binary, (*options, *follow), port=second) as replica,
    ):
        yield [master, replica]


def test_behind_sentinels_the_master_counts_and_after_a_failover_the_new_one(
    master_and_replica: list[EmbeddedServer], tmp_path: Path
) -> None:
    master, replica = master_and_replica
    [port] = free_ports(1)
    options = {
        "CLIENT_CLASS": "django_redis.client.SentinelClient",
        "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
        "SENTINELS": [(LOCAL, port)],
        "SENTINEL_KWARGS": {},
    }
    with (
        sentinel_server(tmp_path, port, master.port) as sentinel,
        Redis.from_url(sentinel.url, decode_responses=True) as watch,
        using("redis://shop/0", options, TIMEOUT=5),
    ):
        assert [ask(), ask(), ask()] == [True, True, False]
        assert len(keys_at(master.url)) == 1
        assert soon(lambda: len(watch.sentinel_slaves("shop")) == 1)
        assert soon(lambda: len(keys_at(replica.url)) == 1)
        master.stop()
        assert soon(lambda: watch.sentinel_get_master_addr_by_name("shop") == (LOCAL, replica.port))
        assert soon(lambda: connections.store().retry_in_ms == 0 and not ask())
        with Redis.from_url(replica.url) as client:
            assert client.info("replication")["role"] == "master"


def soon(condition: Any) -> bool:
    deadline = time.monotonic() + 15
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())


def test_a_forked_child_has_a_store_of_its_own(redis_server: EmbeddedServer) -> None:
    with using(redis_server.url, TIMEOUT=5):
        ask()
        ours = connections.store()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            child = os.fork()
        if child == 0:
            own = connections.store() is not ours and connections.store().run([("PING",)])
            os._exit(own != [b"PONG"])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert connections.store() is ours
        assert ours.run([("PING",)]) == [b"PONG"]


def test_a_server_that_stops_and_starts_is_told_of_once_each(
    redis_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    def receive(*, error: StoreError | None, **_: Any) -> None:
        told.append(error)

    store_changed.connect(receive)
    server = EmbeddedServer(redis_server.binary)
    with using(server.url):
        for _ in range(2):
            with server:
                assert soon(lambda: ask("100/min") and connections.store().failure is None)
                assert [ask("9/min") for _ in range(3)] == [True] * 3
            assert [ask("9/min") for _ in range(3)] == [True] * 3
    store_changed.disconnect(receive)
    assert [type(error) for error in told] == [StoreError, type(None), StoreError]
    levels = [r.levelno for r in caplog.records if r.name == "django_slidinglimit"]
    assert levels == [logging.ERROR, logging.WARNING, logging.ERROR]


def test_a_receiver_that_fails_does_no_harm_to_requests() -> None:
    def receive(**_: Any) -> None:
        raise RuntimeError("The alarm is broken.")

    store_changed.connect(receive)
    try:
        with using("redis://127.0.0.1:1/0"):
            assert ask()
            assert connections.store().failure is not None
    finally:
        store_changed.disconnect(receive)


def test_another_store_can_be_used_and_gives_way_to_the_one_before() -> None:
    first, second = MemoryStore(), MemoryStore()
    assert connections.use(first) is None
    try:
        assert connections.store().store is first
        assert connections.use(second) is first
        assert connections.store().store is second
        assert not connections.is_shared()
    finally:
        connections.use(None)
    assert connections.is_shared()
    assert connections.store().store is not first
