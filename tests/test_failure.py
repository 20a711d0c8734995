"""Redis away, hung or answering errors, seen from outside: through the front doors."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from redis import Redis
from redis.exceptions import BusyLoadingError, RedisError
from rest_framework.response import Response
from rest_framework.views import APIView

from django_slidinglimit import connections, limiter
from django_slidinglimit.clients import key
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.models import Rule
from django_slidinglimit.places import Place
from django_slidinglimit.signals import store_changed
from django_slidinglimit.throttling import RuleThrottle
from example_project.server import EmbeddedServer

if TYPE_CHECKING:
    from pytest_django import Settings

# The rules are read by a thread of their own, as in production.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("rules")]

TIMEOUT = 0.5
REQUESTS = 200
RATE = "1000000/day"


# A site


@ratelimit("open", rate=RATE, key="ip")
def door(request: HttpRequest) -> HttpResponse:
    return HttpResponse("in")


@ratelimit("shut", key="ip")
def strict_door(request: HttpRequest) -> HttpResponse:
    return HttpResponse("in")


class ByRules(RuleThrottle):
    THROTTLE_RATES = {"open": None, "shut": None}  # noqa: RUF012


class Api(APIView):
    authentication_classes: Any = ()
    throttle_classes: Any = (ByRules,)
    throttle_scope = "open"

    def get(self, request: Any) -> Response:
        return Response("in")


class StrictApi(Api):
    throttle_scope = "shut"


urlpatterns = [
    path("open/", door),
    path("shut/", strict_door),
    path("open/api/", Api.as_view()),
    path("shut/api/", StrictApi.as_view()),
]


@pytest.fixture
def rules() -> None:
    Rule.objects.create(name="watched", scope="open", rate=RATE, mode="observe", when_down="deny")
    Rule.objects.create(name="lenient", scope="open", rate=RATE, key="global")
    Rule.objects.create(name="strict", scope="shut", rate=RATE, when_down="deny")


# Troubles: what to do to a server, and how it ends


Trouble = Callable[[EmbeddedServer, "Redis"], AbstractContextManager[object]]


@contextmanager
def killed(server: EmbeddedServer, redis: Redis) -> Iterator[None]:
    server.stop()
    yield
    server.start()


@contextmanager
def hung(server: EmbeddedServer, redis: Redis) -> Iterator[None]:
    info: dict[str, Any] = redis.info("server")
    os.kill(info["process_id"], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(info["process_id"], signal.SIGCONT)


@contextmanager
def out_of_memory(server: EmbeddedServer, redis: Redis) -> Iterator[None]:
    redis.config_set("maxmemory", 1)
    yield
    redis.config_set("maxmemory", 0)


@contextmanager
def read_only(server: EmbeddedServer, redis: Redis) -> Iterator[None]:
    redis.replicaof("127.0.0.1", 1)
    yield
    redis.replicaof("NO", "ONE")


@contextmanager
def wrong_password(server: EmbeddedServer, redis: Redis) -> Iterator[None]:
    redis.config_set("requirepass", "another")
    close_connections(redis)
    yield
    redis.config_set("requirepass", "")


@contextmanager
def no_permission(server: EmbeddedServer, redis: Redis) -> Iterator[None]:
    command(redis, "ACL", "SETUSER", "default", "-@scripting")
    yield
    command(redis, "ACL", "SETUSER", "default", "+@all")


@contextmanager
def too_many_clients(server: EmbeddedServer, redis: Redis) -> Iterator[None]:
    redis.config_set("maxclients", 1)
    close_connections(redis)
    yield
    redis.config_set("maxclients", 1000)


@contextmanager
def loading(server: EmbeddedServer, redis: Redis) -> Iterator[None]:
    with redis.pipeline(transaction=False) as pipeline:
        for number in range(4000):
            pipeline.set(f"filler:{number}", "x" * 50)
        pipeline.execute()
    redis.config_set("key-load-delay", 1000)  # microseconds: 4 seconds in all
    with other(server) as busy, other(server) as looking:
        thread = threading.Thread(target=busy.execute_command, args=("DEBUG", "RELOAD"))
        thread.start()
        while True:
            try:
                looking.get("filler:0")
            except BusyLoadingError:
                break
        yield
        thread.join()


@contextmanager
def busy_with_a_script(server: EmbeddedServer, redis: Redis) -> Iterator[None]:
    redis.config_set("lua-time-limit", 1)  # milliseconds until it answers BUSY

    def run() -> None:
        with other(server) as busy, suppress(RedisError):
            busy.eval("while true do end", 0)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.05)
    yield
    redis.script_kill()
    thread.join()


def close_connections(redis: Redis) -> None:
    command(redis, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def command(redis: Redis, *words: str) -> None:
    redis.execute_command(*words)  # type: ignore[no-untyped-call]


def other(server: EmbeddedServer) -> Redis:
    return Redis.from_url(server.url, socket_timeout=60)


TROUBLES: list[Trouble] = [
    *(killed, hung, out_of_memory, read_only, wrong_password, no_permission, too_many_clients),
    *(loading, busy_with_a_script),
]


# What is seen


class Site:
    """Asks the site, and notes how long each answer took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def get(self, url: str) -> Any:
        begun = time.monotonic()
        response = Client().get(url)  # raises what the view raises
        self.seconds.append(time.monotonic() - begun)
        return response

    def is_limited(self) -> bool:
        """Whether limits are counted, and told of."""
        return all("X-RateLimit-Limit" in self.get(url).headers for url in URLS)

    @property
    def slow(self) -> int:
        return sum(seconds > TIMEOUT / 2 for seconds in self.seconds)


URLS = ("/open/", "/shut/", "/open/api/", "/shut/api/")


def assert_by_choice(url: str, response: Any) -> None:
    """What the rules chose for when Redis does not answer, and nothing that was not counted."""
    assert response.status_code == (429 if url.startswith("/shut") else 200)
    assert not [name for name in response.headers if "RateLimit" in name]
    if response.status_code == 429:
        assert int(response["Retry-After"]) >= 1
    else:
        assert "Retry-After" not in response


@pytest.fixture
def server(redis_server: EmbeddedServer, settings: Settings) -> Iterator[EmbeddedServer]:
    """The server that the site decides by, with a connection to trouble it."""
    args = ("--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024")
    settings.ROOT_URLCONF = __name__
    with EmbeddedServer(redis_server.binary, args) as server:
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": server.url}}
        settings.SLIDINGLIMIT = {"TIMEOUT": TIMEOUT, "RULES_POLL": 0.2}
        yield server


@pytest.fixture
def redis(server: EmbeddedServer) -> Iterator[Redis]:
    with other(server) as redis:
        redis.ping()
        yield redis


@pytest.fixture
def changes() -> Iterator[list[bool]]:
    """Whether Redis answers, at each change that was told of."""
    seen: list[bool] = []

    def note(error: Exception | None, **_: object) -> None:
        seen.append(error is None)

    store_changed.connect(note)
    yield seen
    store_changed.disconnect(note)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    ours = [r for r in caplog.records if r.name.startswith("django_slidinglimit")]
    return [record.levelname for record in ours]


def eventually(true: Callable[[], object], within: float = 15) -> None:
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_each_rule_chooses_until_redis_is_back(
    trouble: Trouble,
    server: EmbeddedServer,
    redis: Redis,
    changes: list[bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    assert site.is_limited()
    assert logged(caplog) == []

    site = Site()
    with trouble(server, redis):
        for number in range(REQUESTS):
            url = URLS[number % len(URLS)]
            assert_by_choice(url, site.get(url))
            time.sleep(0.005)
        assert changes == [False]
        assert logged(caplog) == ["ERROR"]
        # One TIMEOUT when it begins, and one at each try; the pause between them doubles.
        assert site.slow <= 8
        assert max(site.seconds) < TIMEOUT + 2

    # The longest pause between tries is 4 seconds.
    eventually(Site().is_limited)
    assert changes == [False, True]
    assert logged(caplog) == ["ERROR", "WARNING"]


@pytest.mark.parametrize("trouble", [out_of_memory, read_only, no_permission])
def test_a_server_that_answers_other_commands_is_not_taken_for_healthy(
    trouble: Trouble,
    server: EmbeddedServer,
    redis: Redis,
    changes: list[bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a process with few requests, where looking for changed rules goes on all the time."""
    assert Site().is_limited()
    with trouble(server, redis):
        for number in range(8):
            url = URLS[number % len(URLS)]
            assert_by_choice(url, Site().get(url))
            time.sleep(0.3)
        assert changes == [False]
        assert logged(caplog) == ["ERROR"]
    eventually(Site().is_limited)
    assert changes == [False, True]


def test_many_threads_wait_for_a_hung_redis_once_each(
    server: EmbeddedServer, redis: Redis, changes: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    threads, site = 8, Site()  # so few that they do not take long from each other
    assert Site().is_limited()

    def work(number: int) -> None:
        for url in URLS * 6:
            assert_by_choice(url, site.get(url))

    with hung(server, redis), ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
        assert site.slow <= threads + 8
        assert changes == [False]
        assert logged(caplog) == ["ERROR"]
    eventually(Site().is_limited)
    assert changes == [False, True]


def test_a_process_that_starts_without_redis_serves(
    server: EmbeddedServer, changes: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    server.stop()
    site = Site()
    for url in URLS * 3:
        assert_by_choice(url, site.get(url))
    assert changes == [False]
    assert logged(caplog) == ["ERROR"]
    server.start()
    eventually(Site().is_limited)
    assert changes == [False, True]


@pytest.mark.parametrize("what", ["restart", "scripts", "connections"])
def test_what_a_server_forgets_is_no_trouble(
    what: str,
    server: EmbeddedServer,
    redis: Redis,
    settings: Settings,
    changes: list[bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its scripts, its connections, or both and all counters."""
    settings.SLIDINGLIMIT = {"TIMEOUT": TIMEOUT, "RULES_POLL": 0}  # nobody looks in between
    assert Site().is_limited()
    for _ in range(3):
        if what == "restart":
            server.stop()
            server.start()
        elif what == "scripts":
            redis.script_flush()
        else:
            close_connections(redis)
        assert Site().is_limited()
    assert changes == []
    assert logged(caplog) == []


def test_a_walk_that_redis_leaves_half_way_is_refused_all_the_same(
    server: EmbeddedServer, redis: Redis
) -> None:
    """What it had counted cannot be given back, and that is no error."""
    request = HttpRequest()
    request.method = "GET"
    request.META["REMOTE_ADDR"] = "192.0.2.7"
    with limiter.walk(request) as walk:
        counted = Place("code", key("ip"), Rate.parse(RATE))
        assert limiter.decide(request, [counted], walk).charges
        server.stop()
        decision = limiter.decide(request, [Place("shut", key("ip"))], walk)
        assert not decision.allowed
        assert not walk.decision.allowed
        assert walk.decision.retry_after


def test_a_refusal_waits_as_long_as_redis_is_left_alone(server: EmbeddedServer) -> None:
    """At least a second: the clients of many servers are not to come back all at once."""
    server.stop()
    longest = 0
    for _ in range(60):
        response = Site().get("/shut/")
        left = -(-connections.store().retry_in_ms // 1000)
        assert max(1, left) <= int(response["Retry-After"]) <= max(1, left) + 1
        longest = max(longest, left)
        time.sleep(0.05)
    assert longest >= 2
