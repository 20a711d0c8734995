"""What processes say of themselves, and what is made of it."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from django_slidinglimit import connections, keeper
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.models import Rule
from django_slidinglimit.usage import processes
from django_slidinglimit.usage.housekeeping import Housekeeper
from example_project.server import EmbeddedServer
from tests.recorded import minute_now

from .worker import Worker

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_django import Settings

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "sl:usage:processes"


def beat(token: bytes | None = b"abc") -> None:
    connections.store().run([processes.beat(token)])


def seen() -> list[processes.Process]:
    (seconds, _), reply = connections.pages().run([("TIME",), ("HGETALL", processes.key("sl:"))])
    return processes.seen(reply, int(seconds) * 1000)


def test_a_process_says_where_it_is_and_which_rules_it_obeys(redis_client: Redis) -> None:
    beat()
    beat()
    [process] = seen()
    assert (process.host, process.pid) == (socket.gethostname(), os.getpid())
    assert process.token == "abc"
    assert 0 <= process.obeyed_ms < 60_000
    assert not process.breaker_open
    assert 0 <= process.age_ms < processes.ALIVE * 1000
    assert 0 < redis_client.ttl(KEY) <= 2 * processes.GONE


def test_since_when_begins_anew_with_other_rules() -> None:
    beat()
    while seen()[0].obeyed_ms == 0:
        beat()
    beat(b"other")
    assert (seen()[0].token, seen()[0].obeyed_ms) == ("other", 0)
    beat(None)
    assert seen()[0].token == ""


def test_a_look_at_the_rules_says_so_in_the_same_trip(
    redis_client: Redis, settings: Settings
) -> None:
    Rule.objects.create(name="one", scope="a", rate="5/min")
    own = keeper.Keeper()
    own.look()
    own.look()
    [process] = seen()
    assert process.token.encode() == redis_client.get(keeper.token_key())


def test_every_process_says_so_and_which_rules_it_obeys(tmp_path: Path) -> None:
    with (
        Worker.start(tmp_path / "one") as one,
        Worker.start(tmp_path / "other") as other,
    ):
        for worker in (one, other):
            worker.limits("a")
        Rule.objects.create(name="one", scope="a", rate="5/min")
        for worker in (one, other):
            assert worker.obeys_within(5, "a", [5])
        token = connections.store().run([("GET", keeper.token_key())])[0].decode()
        while {process.token for process in seen()} != {token}:
            one.limits("a")
        assert len({process.pid for process in seen()}) == 2


def test_who_is_silent_is_left_out_and_later_dropped(redis_client: Redis) -> None:
    beat()
    [(field, value)] = redis_client.hgetall(KEY).items()
    time_ms, told = json.loads(value)
    for age, name in ((processes.ALIVE + 2, "silent:1:x"), (processes.GONE + 2, "gone:1:x")):
        redis_client.hset(KEY, name, json.dumps([time_ms - age * 1000, told]))
    for rubbish in (b"", b"7", b"[1]", b'[1,{"token":1}]', b"\xff", b"[null,null]"):
        redis_client.hset(KEY, b"rubbish:1:" + rubbish, rubbish)
        redis_client.hset(KEY, rubbish, value)
    assert [process.pid for process in seen()] == [os.getpid()]
    Housekeeper().keep(connections.store().store, minute_now())
    assert set(redis_client.hkeys(KEY)) == {field, b"silent:1:x"}


def test_a_server_that_takes_nothing_more_still_tells_the_version_of_the_rules(
    redis_server: EmbeddedServer, settings: Settings
) -> None:
    with EmbeddedServer(redis_server.binary) as server, Redis.from_url(server.url) as client:
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": server.url}}
        settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 10}
        client.set(keeper.token_key(), "abc")
        client.config_set("maxmemory", "1")
        with pytest.raises(StoreError):
            connections.store().store.run([("SET", "x", "y")])
        asked: list[Any] = [("GET", keeper.token_key()), processes.beat(b"abc")]
        assert connections.store().store.run(asked)[0] == b"abc"
        assert not client.exists(KEY)
