"""Exactness when many ask at once, on real Redis."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from subprocess import PIPE
from typing import TYPE_CHECKING

from django_slidinglimit.core.decisions import Client, Decision, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.wire import Wire

from .peers import together

if TYPE_CHECKING:
    from redis import Redis

    from example_project.server import EmbeddedServer

ANN = Client("ip", "192.0.2.1")
HOUR = 3_600_000
PROCESSES, THREADS = 4, 100


def in_mid_window(client: Redis, limit: int) -> Rate:
    """A rate whose window does not end while a test runs."""
    seconds, _ = client.time()
    now = int(seconds) * 1000
    return next(
        Rate(limit, window)
        for window in (HOUR, HOUR + 600_000, 2 * HOUR)
        if now % window < window - 120_000
    )


def admitted(url: str, hits: list[Hit]) -> int:
    """How many of 100 threads of this process, all asking at once, were admitted."""
    store = RedisStore(Wire.from_url(url, timeout=5))
    answers = together(THREADS, lambda: store.take(hits))
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return sum(answer.allowed for answer in answers if isinstance(answer, Decision))


PROCESS = """
import sys
from tests.core.test_concurrency import ANN, Hit, Rate, Rule, admitted
print("ready", flush=True)
input()
print(admitted(sys.argv[1], [Hit(Rule("five", Rate(5, int(sys.argv[2]))), ANN)]))
"""


def test_100_threads_in_each_of_4_processes_get_exactly_5_through(
    redis_server: EmbeddedServer, redis_client: Redis
) -> None:
    hit = Hit(Rule("five", in_mid_window(redis_client, 5)), ANN)
    command = [sys.executable, "-c", PROCESS, redis_server.url, str(hit.counter.window_ms)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True))
            for _ in range(PROCESSES)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        counts = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sum(counts) == 5
    reading = RedisStore(Wire.from_url(redis_server.url, 5)).peek([hit]).answers[0].reading
    assert reading is not None
    assert reading.current == 5


def test_100_threads_get_exactly_5_through_every_time(
    redis_server: EmbeddedServer, redis_client: Redis
) -> None:
    rate = in_mid_window(redis_client, 5)
    for run in range(10):
        assert admitted(redis_server.url, [Hit(Rule(f"run {run}", rate), ANN)]) == 5


def test_what_one_rule_refuses_is_not_charged_to_another(
    redis_server: EmbeddedServer, redis_client: Redis
) -> None:
    tight = Rule("tight", in_mid_window(redis_client, 7))
    loose = Rule("loose", in_mid_window(redis_client, 50))
    hits = [Hit(loose, Client("user", "ann")), Hit(tight, ANN), Hit(loose, ANN, 3)]
    assert admitted(redis_server.url, hits) == 7
    answers = RedisStore(Wire.from_url(redis_server.url, 5)).peek(hits).answers
    assert [answer.reading.current for answer in answers if answer.reading] == [7, 7, 21]


def test_refunds_and_hits_at_once_balance(
    redis_server: EmbeddedServer, redis_client: Redis
) -> None:
    store = RedisStore(Wire.from_url(redis_server.url, 5))
    hit = Hit(Rule("many", in_mid_window(redis_client, 1000)), ANN, 3)

    def there_and_back() -> None:
        for _ in range(5):
            store.refund(store.take([hit]))

    assert together(40, there_and_back) == [None] * 40
    reading = store.peek([hit]).answers[0].reading
    assert reading is not None
    assert reading.current == 0
