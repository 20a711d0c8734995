"""Refusals from memory, through the front doors: when no command is sent, and when one is."""

from __future__ import annotations

import time
from copy import copy
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory, override_settings

from django_slidinglimit import connections, limiter
from django_slidinglimit.core import refusals
from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.models import Override, Rule
from django_slidinglimit.testing import fresh_counters, memory_store
from django_slidinglimit.usage import recorder

from .test_limiter import AWAY
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from django.http import HttpRequest
    from pytest_django import Settings
    from redis import Redis

pytestmark = pytest.mark.django_db(transaction=True)

REQUEST = RequestFactory().get("/")


@ratelimit("api", key="ip", rate="1/day")
def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("seen")


def ask(**headers: str) -> HttpResponse:
    """The answer to a new request, each time."""
    return view(copy(REQUEST))


def check() -> bool:
    return limiter.check(copy(REQUEST), "api", key="ip", rate="1/day").allowed


@pytest.fixture(autouse=True)
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine a second is over soon; the clock's part is tested with the core."""
    monkeypatch.setattr(refusals, "LONGEST", 600.0)


@pytest.fixture
def commands(redis_client: Redis, settings: Settings) -> Callable[[], int]:
    """How many deciding commands the server got since it was asked last."""
    settings.SLIDINGLIMIT = settings.SLIDINGLIMIT | {"USAGE": False}  # it writes by scripts, too
    seen = [0]

    def commands() -> int:
        stats: Any = redis_client.info("commandstats")
        names = ("cmdstat_evalsha", "cmdstat_eval")
        calls = sum(int(stats.get(name, {}).get("calls", 0)) for name in names)
        before, seen[0] = seen[0], calls
        return calls - before

    return commands


@pytest.fixture
def refused() -> None:
    """One client is refused, and that is remembered."""
    assert [ask().status_code for _ in range(2)] == [200, 429]


def test_a_refused_client_sends_no_more_commands(
    commands: Callable[[], int], refused: None
) -> None:
    commands()
    assert [ask().status_code for _ in range(30)] == [429] * 30
    assert [check() for _ in range(5)] == [False] * 5
    assert commands() == 0


def test_at_most_one_command_a_second_is_sent_for_a_refused_client(
    commands: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert [ask().status_code for _ in range(2)] == [200, 429]
    commands()
    begun, asked = time.monotonic(), 0
    while (late := time.monotonic() - begun) < 1.5:
        assert ask().status_code == 429
        asked += 1
    assert 1 <= commands() <= late + 1
    assert asked > 10


@pytest.mark.usefixtures("refused")
def test_the_response_is_the_same_as_the_servers_refusal() -> None:
    connections.store().forget_refusals()
    first, second = ask(), ask()
    waits = [int(response["Retry-After"]) for response in (first, second)]
    assert waits[0] - 1 <= waits[1] <= waits[0]
    for name in ("X-RateLimit-Limit", "X-RateLimit-Remaining", "RateLimit-Policy", "Cache-Control"):
        assert second[name] == first[name]
    assert second["RateLimit"].startswith('"api";r=0;t=')
    assert second.status_code == 429


@pytest.mark.usefixtures("refused")
def test_the_headers_tell_of_other_rules_only_what_is_known() -> None:
    Rule.objects.create(name="other", scope="api", rate="9/day", key="global")
    known = [ask()["RateLimit-Policy"] for _ in range(2)]
    assert known == ['"other";q=9;w=86400, "api";q=1;w=86400', '"api";q=1;w=86400']


@pytest.mark.usefixtures("refused")
def test_usage_counts_refusals_from_memory(redis_client: Redis) -> None:
    for _ in range(5):
        ask()
    recorder.flush()
    (key,) = redis_client.keys("*:usage:*:counts")
    counted: Any = redis_client.hgetall(key)
    found = {name.decode().rpartition(":")[2]: int(count) for name, count in counted.items()}
    assert (found["allowed"], found["refused"]) == (1, 6)


# When it is forgotten


def reset() -> None:
    limiter.reset(copy(REQUEST), "api", key="ip", rate="1/day")


def write_rule() -> None:
    Rule.objects.create(scope="elsewhere", rate="5/min")


def write_override() -> None:
    Override.objects.create(kind="ip", identity="192.0.2.1", effect="exempt")


@pytest.mark.parametrize("change", [reset, write_rule, write_override])
def test_what_changes_counters_or_rules_has_the_server_asked(
    commands: Callable[[], int], refused: None, change: Callable[[], None]
) -> None:
    change()
    commands()
    assert ask().status_code == (200 if change is reset else 429)
    assert commands() == 1


@pytest.mark.usefixtures("refused")
def test_an_exemption_and_another_rate_hold_at_once() -> None:
    override = Override.objects.create(kind="ip", identity="127.0.0.1", effect="exempt")
    assert ask().status_code == 200
    override.delete()
    assert ask().status_code == 429
    Override.objects.create(kind="ip", identity="127.0.0.1", effect="rate", rate="2/day")
    assert [ask().status_code for _ in range(2)] == [200, 429]


@pytest.mark.usefixtures("refused")
def test_what_a_later_limit_gives_back_can_be_used_at_once() -> None:
    @ratelimit("outer", key="ip", rate="1/day")
    def outer(request: HttpRequest) -> HttpResponse:
        assert not limiter.check(copy(REQUEST), "outer", key="ip", rate="1/day").allowed
        return view(request)

    assert outer(copy(REQUEST)).status_code == 429  # refused within; the outer one is given back
    assert limiter.check(copy(REQUEST), "outer", key="ip", rate="1/day").allowed


@pytest.mark.usefixtures("refused")
def test_tests_of_projects_remember_nothing_of_one_another() -> None:
    for _ in range(2):
        with fresh_counters():
            assert [check() for _ in range(2)] == [True, False]
        with memory_store() as clock:
            assert [check() for _ in range(2)] == [True, False]
            clock.advance(days=2)
            assert check()


# What is not remembered


def test_what_a_rules_choice_refused_is_not_remembered(settings: Any) -> None:
    Rule.objects.create(scope="api", rate="1/day", when_down="deny")
    with override_settings(CACHES=AWAY):
        assert [ask().status_code for _ in range(2)] == [429] * 2
    assert ask().status_code == 200


def test_a_blocked_client_needs_no_command(commands: Callable[[], int]) -> None:
    block = Override.objects.create(kind="ip", identity="127.0.0.1", effect="block")
    commands()
    assert [ask().status_code for _ in range(3)] == [429] * 3
    assert commands() == 0
    block.delete()
    assert ask().status_code == 200


def test_what_is_refused_without_a_counter_reaches_usage_once_a_request(
    redis_client: Redis,
) -> None:
    Override.objects.create(kind="ip", identity="127.0.0.1", effect="block")
    for _ in range(4):
        ask()
    limiter.peek(copy(REQUEST), "api", key="ip", rate="1/day")
    recorder.flush()
    (key,) = redis_client.keys("*:usage:*:counts")
    counted: Any = redis_client.hgetall(key)
    assert [int(n) for name, n in counted.items() if name.endswith(b":refused")] == [4]


# Other processes


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker.log"


def exhaust(worker: Worker, redis_client: Redis) -> None:
    """Have the worker remember for long that it refuses its client, and the server forget."""
    worker.ask("remember", "600")
    assert [worker.ask("admits", "api", "1/day") for _ in range(2)] == [True, False]
    (counter,) = redis_client.keys("*}:*")
    redis_client.delete(counter)
    assert not worker.ask("admits", "api", "1/day")


def test_a_reset_in_one_process_is_seen_by_another(log: Path, redis_client: Redis) -> None:
    with Worker.start(log) as worker:
        exhaust(worker, redis_client)
        limiter.reset(RequestFactory().get("/"), "api", rate="1/day")
        deadline = time.monotonic() + 20
        while not worker.ask("admits", "api", "1/day"):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_forked_process_remembers_nothing(log: Path, redis_client: Redis) -> None:
    with Worker.start(log) as worker:
        exhaust(worker, redis_client)
        worker.ask("fork")
        assert worker.ask("admits", "api", "1/day")
