from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from django_slidinglimit.core.breaker import FIRST_PAUSE, LONGEST_PAUSE, Breaker, Failure
from django_slidinglimit.core.decisions import Client, Decision, Hit, Rule
from django_slidinglimit.core.memory import MemoryStore
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.stores import StoreBusyError, StoreError
from django_slidinglimit.core.wire import Wire

from .peers import together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from example_project.server import EmbeddedServer

    from .conftest import StartServer

HITS = [Hit(Rule("r", Rate(1000, 30 * 86_400_000)), Client("ip", "192.0.2.1"))]


class Seconds:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def changes() -> list[StoreError | None]:
    return []


@pytest.fixture
def server(start_server: StartServer) -> EmbeddedServer:
    return start_server()


@pytest.fixture
def breaker(server: EmbeddedServer, seconds: Seconds, changes: list[StoreError | None]) -> Breaker:
    """Around a real store, whose server the test stops and starts."""
    return Breaker(RedisStore(Wire.from_url(server.url, timeout=2)), changes.append, seconds)


def fails(breaker: Breaker) -> StoreError:
    with pytest.raises(StoreError) as info:
        breaker.take(HITS)
    return info.value


def counted(breaker: Breaker) -> int:
    """What the store counts, past the breaker."""
    reading = breaker.store.peek(HITS).answers[0].reading
    assert reading is not None
    return reading.previous + reading.current


def test_closed_it_passes_every_call_to_the_store(breaker: Breaker) -> None:
    decision = breaker.take(HITS)
    assert decision.allowed
    assert breaker.peek(HITS).answers[0].verdict.remaining == 999
    breaker.refund(decision)
    assert counted(breaker) == 0
    breaker.take(HITS)
    held = breaker.reset(HITS)
    assert counted(breaker) == 0
    breaker.restore(held)
    assert counted(breaker) == 1
    breaker.reset(HITS)
    assert breaker.run([("ECHO", "hello")]) == [b"hello"]
    assert breaker.prefix == breaker.store.prefix
    assert (breaker.failure, breaker.retry_in_ms) == (None, 0)


def test_a_failure_opens_it_and_no_call_goes_through_until_the_pause_is_over(
    breaker: Breaker, server: EmbeddedServer, seconds: Seconds, changes: list[Any]
) -> None:
    server.stop()
    first = fails(breaker)
    assert changes == [first]
    assert breaker.retry_in_ms == FIRST_PAUSE * 1000
    server.start()
    for share in (0, 0.5, 0.49):
        seconds.now += share * FIRST_PAUSE
        again = fails(breaker)
        assert str(again) == str(first)
        assert again.__cause__ is first
    for call in (
        lambda: breaker.peek(HITS),
        lambda: breaker.reset(HITS),
        lambda: breaker.restore([]),
        lambda: breaker.refund(Decision()),
        lambda: breaker.run([("SET", "k", "v")]),
    ):
        with pytest.raises(StoreError):
            call()
    assert breaker.store.run([("DBSIZE",)]) == [0]
    assert changes == [first]


def test_after_the_pause_a_success_closes_it(
    breaker: Breaker, server: EmbeddedServer, seconds: Seconds, changes: list[Any]
) -> None:
    server.stop()
    error = fails(breaker)
    server.start()
    seconds.now += FIRST_PAUSE
    assert breaker.retry_in_ms == 0
    assert breaker.take(HITS).allowed
    assert breaker.take(HITS).allowed
    assert (breaker.failure, breaker.retry_in_ms) == (None, 0)
    assert changes == [error, None]
    assert counted(breaker) == 2


def test_what_only_reads_does_not_prove_that_a_store_counts_again(
    breaker: Breaker, server: EmbeddedServer, seconds: Seconds, changes: list[Any]
) -> None:
    breaker.store.run([("CONFIG", "SET", "maxmemory", "1")])
    error = fails(breaker)
    seconds.now += FIRST_PAUSE
    assert breaker.run([("ECHO", "hello")]) == [b"hello"]
    assert breaker.peek(HITS).allowed
    assert changes == [error]
    fails(breaker)
    assert changes == [error]
    breaker.store.run([("CONFIG", "SET", "maxmemory", "0")])
    seconds.now += 2 * FIRST_PAUSE
    assert breaker.run([("ECHO", "hello")]) == [b"hello"]
    assert breaker.take(HITS).allowed
    assert changes == [error, None]


def test_what_failed_to_read_is_proved_by_reading(
    breaker: Breaker, server: EmbeddedServer, seconds: Seconds, changes: list[Any]
) -> None:
    server.stop()
    with pytest.raises(StoreError):
        breaker.run([("ECHO", "hello")])
    server.start()
    seconds.now += FIRST_PAUSE
    breaker.run([("ECHO", "hello")])
    assert [change is None for change in changes] == [False, True]


def test_each_failed_try_doubles_the_pause_up_to_the_longest(
    breaker: Breaker, server: EmbeddedServer, seconds: Seconds, changes: list[Any]
) -> None:
    server.stop()
    pauses = []
    for _ in range(8):
        fails(breaker)
        pauses.append(breaker.retry_in_ms / 1000)
        seconds.now += pauses[-1]
    doubled = [min(FIRST_PAUSE * 2**n, LONGEST_PAUSE) for n in range(8)]
    assert pauses == doubled
    assert len(changes) == 1
    server.start()
    assert breaker.take(HITS).allowed
    server.stop()
    fails(breaker)
    assert breaker.retry_in_ms == FIRST_PAUSE * 1000
    assert [change is None for change in changes] == [False, True, False]


def test_100_threads_that_fail_together_open_it_once(
    breaker: Breaker, server: EmbeddedServer, changes: list[Any]
) -> None:
    server.stop()
    answers = together(100, lambda: breaker.take(HITS))
    assert all(isinstance(answer, StoreError) for answer in answers)
    assert len(changes) == 1
    assert breaker.retry_in_ms == FIRST_PAUSE * 1000


def test_a_server_that_only_answers_readers_does_not_close_it(
    breaker: Breaker, server: EmbeddedServer, seconds: Seconds, changes: list[Any]
) -> None:
    breaker.take(HITS)
    with Redis.from_url(server.url) as client:
        client.replicaof("127.0.0.1", 1)
        fails(breaker)
        for _ in range(3):
            seconds.now += LONGEST_PAUSE
            assert breaker.peek(HITS).allowed
            assert breaker.run([("DBSIZE",)]) == [1]
        assert len(changes) == 1
        fails(breaker)
        client.replicaof("NO", "ONE")
        seconds.now += LONGEST_PAUSE
        assert breaker.take(HITS).allowed
    assert [change is None for change in changes] == [False, True]


def test_what_only_reads_closes_it_after_a_failure_to_read(
    breaker: Breaker, server: EmbeddedServer, seconds: Seconds, changes: list[Any]
) -> None:
    server.stop()
    with pytest.raises(StoreError):
        breaker.run([("PING",)])
    server.start()
    seconds.now += FIRST_PAUSE
    assert breaker.run([("PING",)]) == [b"PONG"]
    assert [change is None for change in changes] == [False, True]


class Flaky(MemoryStore):
    """Takes unless `error` is set, and waits before it answers while it may not. Never peeks."""

    def __init__(self) -> None:
        super().__init__()
        self.error: StoreError | None = None
        self.calls = 0
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def take(self, hits: Sequence[Hit]) -> Decision:
        self.calls += 1
        error = self.error
        self.asked.set()
        assert self.may_answer.wait(10)
        if error:
            raise error
        return super().take(hits)

    def peek(self, hits: Sequence[Hit]) -> Decision:
        raise StoreError("away")


@pytest.fixture
def flaky() -> Flaky:
    return Flaky()


@pytest.fixture
def guard(flaky: Flaky, seconds: Seconds, changes: list[Any]) -> Breaker:
    return Breaker(flaky, changes.append, seconds)


class Background(threading.Thread):
    """A call on another thread; `result` is what it returned or raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self.call = call
        self.result: object = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.call()
        except StoreError as exc:
            self.result = exc

    def finish(self) -> object:
        self.join(10)
        assert not self.is_alive()
        return self.result


@pytest.mark.parametrize("recovers", [True, False])
def test_only_one_caller_tries_and_the_others_do_not_wait_for_it(
    guard: Breaker, flaky: Flaky, seconds: Seconds, changes: list[Any], recovers: bool
) -> None:
    flaky.error = StoreError("away")
    fails(guard)
    seconds.now += FIRST_PAUSE
    flaky.error = None if recovers else StoreError("still away")
    flaky.asked.clear()
    flaky.may_answer.clear()
    prober = Background(lambda: guard.take(HITS))
    assert flaky.asked.wait(10)
    others = together(20, lambda: guard.take(HITS))
    assert {str(answer) for answer in others} == {"away"}
    assert flaky.calls == 2
    flaky.may_answer.set()
    assert isinstance(prober.finish(), Decision if recovers else StoreError)
    assert len(changes) == (2 if recovers else 1)
    assert guard.retry_in_ms == (0 if recovers else 2 * FIRST_PAUSE * 1000)


class Overtaken(Breaker):
    """Between a caller's look at the state and its own try, what is in `others` is called."""

    others: tuple[Callable[[], object], ...] = ()
    _state: Failure | None = None

    @property
    def failure(self) -> Failure | None:
        state = self._state
        others, self.others = self.others, ()
        for call in others:
            call()
        return state

    @failure.setter
    def failure(self, state: Failure | None) -> None:
        self._state = state


def test_who_was_late_to_try_does_not_try_after_one_who_just_failed(
    flaky: Flaky, seconds: Seconds
) -> None:
    overtaken = Overtaken(flaky, clock=seconds)
    flaky.error = StoreError("away")
    fails(overtaken)
    seconds.now += FIRST_PAUSE
    overtaken.others = (lambda: fails(overtaken),)
    fails(overtaken)
    assert flaky.calls == 2
    assert overtaken.retry_in_ms == 2 * FIRST_PAUSE * 1000


def test_who_was_late_to_try_passes_after_one_who_just_succeeded(
    flaky: Flaky, seconds: Seconds, changes: list[Any]
) -> None:
    overtaken = Overtaken(flaky, changes.append, seconds)
    flaky.error = StoreError("away")
    fails(overtaken)
    seconds.now += FIRST_PAUSE
    flaky.error = None
    overtaken.others = (lambda: overtaken.take(HITS),)
    assert overtaken.take(HITS).allowed
    assert [change is None for change in changes] == [False, True]


@pytest.mark.parametrize("succeeds", [True, False])
@pytest.mark.parametrize("late", [0, FIRST_PAUSE, 10 * LONGEST_PAUSE])
def test_a_call_from_before_the_failure_neither_closes_it_nor_prolongs_the_pause(
    guard: Breaker, flaky: Flaky, seconds: Seconds, changes: list[Any], late: float, succeeds: bool
) -> None:
    flaky.error = None if succeeds else StoreError("slow to fail")
    flaky.may_answer.clear()
    early = Background(lambda: guard.take(HITS))
    assert flaky.asked.wait(10)
    with pytest.raises(StoreError, match="away"):
        guard.peek(HITS)
    seconds.now += late
    flaky.may_answer.set()
    early.finish()
    seconds.now -= late
    assert [str(change) for change in changes] == ["away"]
    assert guard.retry_in_ms == FIRST_PAUSE * 1000


def test_a_busy_process_does_not_open_it(guard: Breaker, flaky: Flaky, changes: list[Any]) -> None:
    flaky.error = StoreBusyError("no free connection")
    for _ in range(3):
        assert isinstance(fails(guard), StoreBusyError)
    assert flaky.calls == 3
    assert guard.failure is None
    assert changes == []


def test_a_busy_process_that_tries_leaves_the_next_try_to_the_next_caller(
    guard: Breaker, flaky: Flaky, seconds: Seconds
) -> None:
    flaky.error = StoreError("away")
    fails(guard)
    seconds.now += FIRST_PAUSE
    flaky.error = StoreBusyError("no free connection")
    fails(guard)
    flaky.error = None
    assert guard.take(HITS).allowed
    assert guard.failure is None


def test_an_error_that_is_not_the_stores_passes_and_changes_nothing(
    guard: Breaker, flaky: Flaky, seconds: Seconds, changes: list[Any]
) -> None:
    wrong: Any = "not hits"
    with pytest.raises(AttributeError):
        guard.take(wrong)
    assert changes == []
    flaky.error = StoreError("away")
    fails(guard)
    flaky.error = None
    seconds.now += FIRST_PAUSE
    with pytest.raises(AttributeError):
        guard.take(wrong)
    assert guard.take(HITS).allowed
    assert changes[1:] == [None]
