"""What a hostile client, a careless operator or a broken server once got out of it."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, cast

import pytest
import redis
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client as Browser
from django.test import RequestFactory

from django_slidinglimit.core.breaker import Breaker
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.pool import own_pool
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.stores import StoreBusyError, StoreError
from django_slidinglimit.core.wire import Wire
from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.models import Override
from django_slidinglimit.models import Rule as RuleRow
from example_project.server import EmbeddedServer

from .core.peers import Answers, Command, peer, together

TIMEOUT = 0.4
HITS = [Hit(Rule("r", Rate(1000, 60_000)), Client("ip", "192.0.2.7"))]


class LatePool:
    """A pool that gives a connection late, as a process does whose threads starve."""

    def __init__(self, url: str, late: float) -> None:
        self._pool = own_pool(redis.ConnectionPool.from_url(url))
        self._late = late

    def get_connection(self) -> Any:
        connection = self._pool.get_connection()
        time.sleep(self._late)
        return connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


def late_store(url: str, late: float) -> RedisStore:
    return RedisStore(Wire(cast("redis.ConnectionPool", LatePool(url, late)), TIMEOUT))


def slowly(command: Command) -> Answers:
    if command[0] == b"EVALSHA":
        time.sleep(TIMEOUT / 2)
        yield b"*3\r\n:1000\r\n:0\r\n:0\r\n"
    else:
        yield b"+OK\r\n"


def never(command: Command) -> Answers:
    if command[0] != b"EVALSHA":
        yield b"+OK\r\n"


def test_a_process_that_is_late_itself_gives_the_server_its_whole_time() -> None:
    """A flood that starves this process must not lift the limits: Redis is not the slow one."""
    with peer(slowly) as url:
        assert late_store(url, late=3 * TIMEOUT).take(HITS).allowed


def test_a_process_that_was_late_does_not_open_the_breaker() -> None:
    with peer(never) as url:
        breaker = Breaker(late_store(url, late=3 * TIMEOUT))
        with pytest.raises(StoreBusyError):
            breaker.take(HITS)
        assert breaker.failure is None


def test_a_server_that_does_not_answer_opens_the_breaker() -> None:
    with peer(never) as url:
        breaker = Breaker(late_store(url, late=0))
        with pytest.raises(StoreError):
            breaker.take(HITS)
        assert breaker.failure is not None


@pytest.mark.parametrize(
    "reply",
    [
        b"+OK\r\n",
        b":5\r\n",
        b"$-1\r\n",
        b"*0\r\n",
        b"*1\r\n:5\r\n",
        b"*2\r\n:5\r\n:5\r\n",
        b"*3\r\n:5\r\n$-1\r\n$-1\r\n",
        b"*3\r\n:5\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"*5\r\n:5\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
    ],
)
def test_an_answer_that_makes_no_sense_is_a_failure_of_the_store(reply: bytes) -> None:
    """Not an error of the view: each rule's own choice decides."""

    def answers(command: Command) -> Answers:
        yield reply if command[0] == b"EVALSHA" else b"+OK\r\n"

    with peer(answers) as url:
        breaker = Breaker(RedisStore(Wire.from_url(url, 5)))
        with pytest.raises(StoreError):
            breaker.take(HITS)
        assert breaker.failure is not None


@contextmanager
def silencer(path: str) -> Iterator[tuple[str, threading.Event]]:
    """A way to a server on whose open connections nothing passes any more once it is told so."""
    silent = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    sockets: list[socket.socket] = []

    def pass_on(source: socket.socket, target: socket.socket, opened: bool) -> None:
        with source, target:
            try:
                while data := source.recv(65536):
                    if opened or not silent.is_set():
                        target.sendall(data)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(path)
            sockets.extend((near, far))
            opened = silent.is_set()
            for ends in ((near, far), (far, near)):
                threading.Thread(target=pass_on, args=(*ends, opened), daemon=True).start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0", silent
    finally:
        for each in (listener, *sockets):
            with closing(each), suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        accepting.join(timeout=10)


def test_one_failure_and_not_one_a_connection_when_all_connections_went_dead(
    redis_server: EmbeddedServer,
) -> None:
    """After a failover by address, or a firewall's restart, nobody closes the old ones."""
    path = redis_server.url.removeprefix("unix://").partition("?")[0]
    with silencer(path) as (url, silent):
        store = RedisStore(Wire.from_url(url, 2))
        together(20, lambda: store.take(HITS))
        silent.set()
        with pytest.raises(StoreError):
            store.take(HITS)
        answers = together(20, lambda: store.take(HITS))
        assert [answer for answer in answers if isinstance(answer, Exception)] == []


@pytest.mark.django_db
def test_head_is_counted_where_get_is() -> None:
    """It is the same work: a limit on GET alone would be walked around."""

    @ratelimit("attacks.head", key="global", rate="2/min", method="GET")
    def view(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("work")

    ask = RequestFactory()
    statuses = [view(ask.get("/")).status_code] + [
        view(ask.head("/")).status_code for _ in range(2)
    ]
    assert statuses == [200, 200, 429]
    assert view(ask.post("/")).status_code == 200


@pytest.mark.django_db
def test_a_refusal_does_not_read_an_endless_accept_field() -> None:
    """8 KB took Django 5 ms, more than all the rest of the refusal."""

    @ratelimit("attacks.accept", key="global", rate="0/min")
    def view(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("work")

    ask = RequestFactory()
    accepts = ["application/json", "application/json" + ",a/b" * 2000]
    kinds = [view(ask.get("/", headers={"Accept": a}))["Content-Type"] for a in accepts]
    assert kinds == ["application/json", "text/html; charset=utf-8"]


@pytest.mark.django_db
def test_head_is_counted_by_rules_for_get() -> None:
    RuleRow.objects.create(name="Reads", scope="attacks.rule", rate="1/min", methods="GET")

    @ratelimit("attacks.rule", key="global")
    def view(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("work")

    ask = RequestFactory()
    assert [view(ask.head("/")).status_code for _ in range(2)] == [200, 429]


@pytest.mark.django_db
def test_a_block_until_the_last_moment_of_the_calendar_is_one_without_an_end() -> None:
    """Such as code writes it, which the form would not take: no answer can tell of its end."""
    Override.objects.create(effect="block", expires=datetime.max.replace(tzinfo=UTC))

    @ratelimit("blocked", key="ip", rate="5/min")
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("work")

    response = view(RequestFactory().get("/", headers={"accept": "application/json"}))
    assert response.status_code == 429
    assert json.loads(response.content) == {"detail": "Blocked.", "retry_after": None}


FIELD = "d1:5:60000:enforce"
DEEP = "[" * 200_000


@pytest.mark.django_db
@pytest.mark.urls("example_project.urls")
@pytest.mark.parametrize("confirmed", [{}, {"confirmed": "yes"}], ids=["asks", "resets"])
@pytest.mark.parametrize(
    "target",
    [DEEP, json.dumps([DEEP, FIELD]), json.dumps([json.dumps(["\ud800", "1"]), FIELD])],
    ids=["deep", "deep inside", "surrogate"],
)
def test_a_forged_reset_is_a_bad_request(target: str, confirmed: dict[str, str]) -> None:
    browser = Browser()
    browser.force_login(User.objects.create_superuser("root"))
    asked = {"target": target, "from": "client", **confirmed}
    response = browser.post("/admin/django_slidinglimit/usage/reset/", asked)
    assert response.status_code == 400


def test_a_crowd_within_the_process_is_served_in_turn_and_not_let_through(
    redis_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes far longer than the timeout for all, and none waits while nobody is served."""
    monkeypatch.setattr("django_slidinglimit.core.wire.MOST_CONNECTIONS", 2)
    wire = Wire.from_url(redis_server.url, timeout=TIMEOUT)
    answers = together(80, lambda: wire.run([("BLPOP", "nothing", 0.03)]))
    assert answers == [[None]] * 80


def test_whoever_queues_is_told_at_once_when_the_server_ceases_to_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("django_slidinglimit.core.wire.MOST_CONNECTIONS", 2)
    with EmbeddedServer() as server:
        wire = Wire.from_url(server.url, timeout=TIMEOUT)
        [pid] = [info["process_id"] for info in [redis.Redis.from_url(server.url).info("server")]]
        os.kill(pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            answers = together(40, lambda: wire.run([("PING",)]))
        finally:
            os.kill(pid, signal.SIGCONT)
    assert all(isinstance(answer, StoreError) for answer in answers)
    # One after the other they would take 20 timeouts.
    assert time.monotonic() - begun < 10 * TIMEOUT
