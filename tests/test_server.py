"""What the server calls itself."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings
from redis import Redis

from django_slidinglimit import connections
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.usage import minutes, server
from example_project.server import EmbeddedServer

INFO = "cmdstat_info"


@pytest.fixture(autouse=True)
def unknown() -> None:
    server.forget()


@pytest.fixture
def denied(redis_server: EmbeddedServer, redis_client: Redis) -> Iterator[str]:
    """The address of the server for a user that may do all but ask it for itself."""
    redis_client.acl_setuser(
        "shy", enabled=True, passwords=["+pass"], categories=["+@all"], commands=["-info"], keys="*"
    )
    yield redis_server.url.replace("://", "://shy:pass@")
    redis_client.acl_deluser("shy")


def asked(client: Redis) -> int:
    stats: dict[str, Any] = client.info("commandstats")
    return int(stats[INFO]["calls"]) if INFO in stats else 0


def test_the_server_tells_its_name_and_is_asked_once_a_minute(redis_client: Redis) -> None:
    before = asked(redis_client)
    found = server.server()
    assert found.name.split()[0] in ("Redis", "Valkey")
    assert found.name.split()[1][0].isdigit()
    assert server.server() is found
    minutes.read(5)
    assert asked(redis_client) - before == 2  # one of them is this test's own


def test_it_is_told_beside_what_is_read_anyway(redis_client: Redis) -> None:
    before = asked(redis_client)
    minutes.read(5)
    assert server.question() == []
    minutes.read(5)
    assert server.server().name
    assert asked(redis_client) - before == 2


def test_a_user_that_may_not_ask_sees_the_pages_all_the_same(denied: str) -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": denied}
    with override_settings(CACHES={"default": cache}):
        assert minutes.read(5).time_ms
        assert server.server().name == "Redis"
        assert server.question() == []  # not asked again with every look
        server.forget()
        assert server.server().name == "Redis"


def test_a_server_that_is_away_is_not_taken_for_one_that_is_shy() -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    with override_settings(CACHES={"default": cache}):
        with pytest.raises(StoreError):
            server.server()
        with pytest.raises(StoreError):
            minutes.read(5)
        assert server.question()
        assert connections.store().failure is None
