from __future__ import annotations

import socket
import unittest
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from django.test import RequestFactory, TestCase, override_settings

from django_slidinglimit import limiter
from django_slidinglimit.models import Rule
from django_slidinglimit.testing import START_MS, Clock, fresh_counters, memory_store
from django_slidinglimit.usage import recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

    from django_slidinglimit.core.decisions import Decision


def ask(scope: str = "a", rate: str | None = "2/min") -> Decision:
    return limiter.check(RequestFactory().get("/"), scope, rate=rate)


def allowed(times: int) -> list[bool]:
    return [ask().allowed for _ in range(times)]


@pytest.fixture
def clock() -> Iterator[Clock]:
    """As a project writes it."""
    with memory_store() as clock:
        yield clock


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No usage of this test or another comes among the keys in Redis."""
    with override_settings(SLIDINGLIMIT={"RULES_POLL": 0, "USAGE": False}):
        yield


@pytest.fixture
def unasked() -> Iterator[None]:
    """The settings' Redis, to which nobody may connect."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        location = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        caches = {"default": settings.CACHES["default"] | {"LOCATION": location}}
        with override_settings(CACHES=caches, SLIDINGLIMIT={"RULES_POLL": 0.01}):
            yield
        with pytest.raises(TimeoutError):
            server.accept()


pytestmark = pytest.mark.django_db


class TestMemoryStore:
    def test_admits_again_after_the_wait_and_not_before(self, clock: Clock) -> None:
        assert allowed(3) == [True, True, False]
        wait = ask().retry_after
        assert wait is not None
        clock.now_ms += wait - 1
        assert not ask().allowed
        clock.now_ms += 1
        assert ask().allowed

    def test_the_clock_moves_as_told_and_not_by_itself(self) -> None:
        with memory_store(now_ms=1_000) as clock:
            assert ask().time_ms == 1_000
            clock.advance(seconds=61)
            assert ask().time_ms == 62_000
            clock.advance(days=1, hours=1, minutes=1, seconds=0.0015)
            assert ask().time_ms == 62_000 + 90_060_002

    @pytest.mark.parametrize("window_s", [1, 60, 3600, 86_400, 7 * 86_400])
    def test_starts_where_windows_begin(self, clock: Clock, window_s: int) -> None:
        assert clock.now_ms == START_MS
        assert START_MS % (window_s * 1000) == 0

    def test_each_begins_with_nothing_counted_and_gives_back_the_one_before(self) -> None:
        with memory_store():
            assert allowed(3) == [True, True, False]
            with memory_store():
                assert allowed(3) == [True, True, False]
            assert allowed(1) == [False]
        with memory_store():
            assert allowed(3) == [True, True, False]

    def test_the_settings_redis_counts_again_afterwards(self, redis_client: Redis) -> None:
        with suppress(RuntimeError), memory_store():
            ask()
            raise RuntimeError
        assert redis_client.dbsize() == 0
        ask()
        assert redis_client.dbsize() == 1

    @pytest.mark.django_db(transaction=True)
    def test_redis_is_not_asked(self, unasked: None) -> None:
        with memory_store():
            Rule.objects.create(scope="a", rate="1/min")
            assert allowed(2) == [True, False]
            limiter.peek(RequestFactory().get("/"), "a", rate="2/min")
            limiter.reset(RequestFactory().get("/"), "a", rate="2/min")
            assert allowed(1) == [True]
        recorder.flush()

    def test_settings_changed_meanwhile_are_obeyed_and_take_nothing_away(self) -> None:
        with memory_store():
            assert allowed(2) == [True, True]
            nowhere = {"default": settings.CACHES["default"] | {"LOCATION": "redis://nowhere"}}
            with override_settings(
                SLIDINGLIMIT={"TIMEOUT": 5}, CACHES=nowhere, SECRET_KEY="another"
            ):
                assert allowed(1) == [False]
            assert allowed(1) == [False]

    def test_rules_of_the_test_are_seen(self, unasked: None) -> None:
        with memory_store():
            rule = Rule.objects.create(scope="a", rate="7/min")
            assert [a.verdict.limit for a in ask(rate=None).answers] == [7]
            Rule.objects.filter(pk=rule.pk).update(rate="8/min")
            assert [a.verdict.limit for a in ask(rate=None).answers] == [8]
            rule.delete()
            assert ask(rate=None).answers == ()

    @memory_store()
    def test_decorates_a_function(self) -> None:
        assert ask().time_ms == START_MS


class EachTestBeginsAnew(TestCase):
    def setUp(self) -> None:
        self.clock = self.enterContext(memory_store())
        Rule.objects.create(scope="a", rate="3/min")

    def test_one(self) -> None:
        assert allowed(4) == [True, True, True, False]

    test_another = test_one

    @override_settings(SLIDINGLIMIT={"HEADERS": []})
    def test_with_an_override_of_its_own(self) -> None:
        self.test_one()
        self.clock.advance(minutes=2)
        self.test_one()


class AClassMayCountTogether(unittest.TestCase):
    clock: Clock

    @classmethod
    def setUpClass(cls) -> None:
        cls.clock = cls.enterClassContext(memory_store())

    def test_1(self) -> None:
        assert self.clock() == START_MS
        self.clock.advance(seconds=1)

    def test_2(self) -> None:
        assert self.clock() == START_MS + 1000


class TestFreshCounters:
    def test_each_begins_with_nothing_counted_and_counts_apart(self, redis_client: Redis) -> None:
        assert allowed(3) == [True, True, False]
        for _ in range(2):
            with fresh_counters():
                assert allowed(3) == [True, True, False]
        assert allowed(1) == [False]
        assert redis_client.dbsize() == 3

    @pytest.mark.django_db(transaction=True)
    def test_nothing_stays_in_redis_for_good(self, redis_client: Redis) -> None:
        redis_client.set("theirs", 1)
        with override_settings(SLIDINGLIMIT={"RULES_POLL": 0}):
            with fresh_counters():
                Rule.objects.create(scope="a", rate="1/min")
                assert allowed(2) == [True, False]
            recorder.flush()
        left = {key: redis_client.ttl(key) for key in redis_client.scan_iter()}
        assert left.pop(b"theirs") == -1
        assert [seconds for seconds in left.values() if not 0 < seconds <= 120] == []
        assert len(left) == 1

    def test_settings_changed_meanwhile_are_obeyed_and_it_still_counts_apart(
        self, redis_client: Redis
    ) -> None:
        assert allowed(2) == [True, True]
        with fresh_counters(), override_settings(SLIDINGLIMIT={"BUCKETS": 1}):
            assert allowed(3) == [True, True, False]
        [apart] = [key for key in redis_client.scan_iter() if b"test-" in key]
        assert b"{0}" in apart

    def test_rules_of_the_test_are_seen(self) -> None:
        with override_settings(SLIDINGLIMIT={}), fresh_counters():
            Rule.objects.create(scope="a", rate="7/min")
            assert [a.verdict.limit for a in ask(rate=None).answers] == [7]
