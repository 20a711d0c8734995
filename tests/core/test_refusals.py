"""What a process remembers of refusals: what the store would still answer, and no longer."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidinglimit.core import refusals
from django_slidinglimit.core.breaker import Breaker
from django_slidinglimit.core.decisions import Client, Decision, Hit, Rule
from django_slidinglimit.core.memory import MemoryStore
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.refusals import Refusals, RememberingStore
from django_slidinglimit.core.stores import StoreBusyError, StoreError
from django_slidinglimit.core.wire import Wire

from .clock import Clock, ClockedWire
from .examples import thorough
from .peers import together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redis import Redis

    from example_project.server import EmbeddedServer

    from .conftest import StartServer

ANN, BOB = Client("user", "ann"), Client("user", "bob")
HOUR = 3_600_000
ONE = Rule("one", Rate(1, HOUR))
TEN = Rule("ten", Rate(10, HOUR))


class Seconds:
    """A process's clock, which only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def store(wire: Wire, seconds: Seconds) -> RememberingStore:
    """A store on the real server that remembers by a clock which stands still."""
    return RememberingStore(RedisStore(wire), seconds)


@pytest.fixture
def trips(redis_client: Redis) -> Callable[[], int]:
    """How many scripts the server was sent since it was asked last."""
    seen = [0]

    def trips() -> int:
        stats: Any = redis_client.info("commandstats")
        calls: int = sum(stats.get(f"cmdstat_{n}", {}).get("calls", 0) for n in ("evalsha", "eval"))
        before, seen[0] = seen[0], calls
        return calls - before

    return trips


def refused(store: RememberingStore, trips: Callable[[], int], *hits: Hit) -> None:
    """Use up what the hits ask for, and be refused once by the server."""
    while store.take(hits).allowed:
        pass
    trips()


# --- No trip ---


def test_the_same_request_is_refused_again_without_a_trip(
    store: RememberingStore, trips: Callable[[], int]
) -> None:
    hit = Hit(ONE, ANN)
    refused(store, trips, hit)
    assert not any(store.take([hit]).allowed for _ in range(50))
    assert trips() == 0


def test_after_a_second_the_server_is_asked_again(
    store: RememberingStore, trips: Callable[[], int], seconds: Seconds
) -> None:
    hit = Hit(ONE, ANN)
    refused(store, trips, hit)
    for _ in range(3):
        seconds.now += 0.999
        store.take([hit])
        assert trips() == 0
        seconds.now += 0.001
        store.take([hit])
        assert trips() == 1


@pytest.mark.parametrize(
    "other",
    [
        Hit(TEN, BOB, 4),
        Hit(TEN, ANN, 3),
        Hit(TEN, ANN, 5),
        Hit(Rule("ten", Rate(11, HOUR)), ANN, 4),
        Hit(Rule("ten", Rate(10, 2 * HOUR)), ANN, 4),
        Hit(Rule("other", TEN.rate), ANN, 4),
        Hit(Rule("ten", TEN.rate, observe=True), ANN, 4),
    ],
    ids=["client", "less", "more", "limit", "window", "rule", "observing"],
)
def test_what_is_not_quite_the_same_is_asked(
    store: RememberingStore, trips: Callable[[], int], other: Hit
) -> None:
    refused(store, trips, Hit(TEN, ANN, 4))
    store.take([other])
    assert trips() == 1


def test_several_limits_and_costs_of_one_counter_are_remembered(
    store: RememberingStore, trips: Callable[[], int]
) -> None:
    hits = [Hit(TEN, ANN, cost) for cost in range(3, 9)]
    hits.append(Hit(Rule("ten", Rate(4, HOUR)), ANN, 4))
    assert store.take([Hit(TEN, ANN, 8)]).allowed
    for hit in hits:
        assert not store.take([hit]).allowed
    trips()
    for hit in hits:
        assert not store.take([hit]).allowed
    assert trips() == 0


def test_a_look_is_always_the_servers(store: RememberingStore, trips: Callable[[], int]) -> None:
    refused(store, trips, Hit(ONE, ANN))
    assert not store.peek([Hit(ONE, ANN)]).allowed
    assert trips() == 1


# --- What it answers ---


def test_the_answer_is_the_servers_own_a_moment_later(
    redis_server: EmbeddedServer, clock: Clock
) -> None:
    inner = RedisStore(ClockedWire(redis_server.url, clock))
    store = RememberingStore(inner, lambda: clock.now / 1000)
    rule = Rule("r", Rate(6, 1000))
    for ahead, cost in ((0, 4), (700, 2)):
        clock.now += ahead
        assert store.take([Hit(rule, ANN, cost)]).allowed
    hit = Hit(rule, ANN, 3)
    told = store.take([hit])
    assert told == inner.peek([hit])
    wait = told.retry_after
    assert wait is not None
    begun, at_once = clock.now, told
    for ahead in range(1, wait):
        remembered = store.take([hit])
        clock.now = begun + ahead
        assert remembered in (at_once, inner.peek([hit]))
        at_once = inner.peek([hit])
        assert wait - ahead - 1 <= (store.take([hit]).retry_after or 0) <= wait - ahead
    clock.now = begun + wait
    assert store.take([hit]).allowed


steps = st.lists(
    st.tuples(st.integers(0, 700), st.sampled_from([0, 0, 0, 1, 2]), st.integers(1, 3)),
    min_size=4,
    max_size=40,
)


@thorough
@given(st.integers(1, 6), st.integers(5, 900), st.integers(1, 40), steps)
def test_who_is_refused_from_memory_would_be_refused_by_the_store(
    limit: int, window: int, late: int, steps: list[tuple[int, int, int]]
) -> None:
    """The answer to a process may be late; another process counts on the same counter."""
    clock, seconds = Clock(), Seconds()
    inner = MemoryStore(clock)

    class Late(MemoryStore):
        """A store that answers after a while; the clock moves before and after it decides."""

        def take(self, hits: Sequence[Hit]) -> Decision:
            clock.now += late
            seconds.now += late / 1000
            decision = inner.take(hits)
            clock.now += late
            seconds.now += late / 1000
            return decision

    store = RememberingStore(Late(clock), seconds)
    rule = Rule("r", Rate(limit, window))
    for ahead, elsewhere, cost in steps:
        clock.now += ahead
        seconds.now += ahead / 1000
        hit = Hit(rule, ANN, cost)
        if elsewhere:
            inner.take([Hit(rule, ANN, elsewhere)])
        true, begun = inner.peek([hit]), clock.now
        decision = store.take([hit])
        if clock.now != begun:
            continue  # the store was asked
        assert not decision.allowed
        assert not true.allowed
        assert 1 <= (decision.retry_after or 0) <= (true.retry_after or 0)


def test_of_several_rules_one_that_is_known_to_refuse_suffices(
    store: RememberingStore, trips: Callable[[], int]
) -> None:
    watcher = Rule("watcher", Rate(9, HOUR), observe=True)
    hits = [Hit(TEN, ANN), Hit(ONE, BOB), Hit(watcher, ANN)]
    refused(store, trips, *hits)
    decision = store.take(hits)
    assert trips() == 0
    assert not decision.allowed
    assert decision.charges == {}
    assert [answer.hit for answer in decision.answers] == hits
    assert [answer.verdict.allowed for answer in decision.answers] == [True, False, True]
    # Of the others nothing is claimed to be known.
    assert [answer.reading is None for answer in decision.answers] == [True, False, True]
    readings = [answer.reading for answer in store.peek(hits).answers]
    assert [reading and reading.current for reading in readings] == [1, 1, 1]


def test_what_only_observes_is_asked_each_time(
    store: RememberingStore, trips: Callable[[], int]
) -> None:
    watcher = Hit(Rule("one", Rate(1, HOUR), observe=True), ANN)
    for _ in range(3):
        assert store.take([watcher, Hit(TEN, ANN)]).allowed
    assert trips() >= 3
    assert store.peek([Hit(TEN, ANN)]).answers[0].verdict.remaining == 7


def test_the_time_is_the_servers_and_goes_on(
    store: RememberingStore, trips: Callable[[], int], seconds: Seconds
) -> None:
    hit = Hit(ONE, ANN)
    assert store.take([hit]).allowed
    first = store.take([hit]).time_ms
    seconds.now += 0.25
    then = store.take([hit]).time_ms
    assert first is not None
    assert then is not None
    assert 250 <= then - first <= 251


# --- Forgotten at once ---


def do_reset(store: RememberingStore, decision: Decision, hit: Hit) -> None:
    store.reset([hit])


def do_refund(store: RememberingStore, decision: Decision, hit: Hit) -> None:
    store.refund(decision)


def do_restore(store: RememberingStore, decision: Decision, hit: Hit) -> None:
    store.restore(store.store.reset([hit]))


def edit(store: RememberingStore, decision: Decision, hit: Hit) -> None:
    store.forget_refusals()


def test_of_many_threads_one_asks_anew_for_all(
    store: RememberingStore, seconds: Seconds, trips: Callable[[], int]
) -> None:
    hit = Hit(ONE, ANN)
    store.take([hit])
    for _ in range(3):
        refused(store, trips, hit)
        seconds.now += refusals.LONGEST
        trips()
        assert together(32, lambda: store.take([hit]).allowed) == [False] * 32
        assert trips() == 1


def test_threads_that_wait_for_one_that_fails_ask_themselves(
    start_server: StartServer, seconds: Seconds
) -> None:
    server = start_server()
    wire = Wire.from_url(server.url, timeout=5)
    store = RememberingStore(RedisStore(wire), seconds)
    hit = Hit(ONE, ANN)
    assert [store.take([hit]).allowed for _ in range(2)] == [True, False]
    seconds.now += refusals.LONGEST
    server.stop()
    assert {type(answer) for answer in together(8, lambda: store.take([hit]))} == {StoreError}
    server.start()
    assert store.take([hit]).allowed
    wire.pool.disconnect()


@pytest.mark.parametrize("change", [do_reset, do_refund, do_restore, edit])
def test_whatever_changes_a_counter_has_the_server_asked(
    store: RememberingStore, trips: Callable[[], int], change: Callable[..., None]
) -> None:
    hit = Hit(ONE, ANN)
    decision = store.take([hit])
    refused(store, trips, hit)
    change(store, decision, hit)
    trips()
    assert store.take([hit]).allowed is (change in (do_reset, do_refund))
    assert trips() == 1


def test_a_reset_leaves_what_is_known_of_others(
    store: RememberingStore, trips: Callable[[], int]
) -> None:
    refused(store, trips, Hit(ONE, ANN))
    refused(store, trips, Hit(ONE, BOB))
    store.reset([Hit(ONE, ANN)])
    trips()
    assert not store.take([Hit(ONE, BOB)]).allowed
    assert trips() == 0


def test_a_reset_sets_a_token_that_others_can_see(
    store: RememberingStore, redis_client: Redis
) -> None:
    key = refusals.resets_key(store.prefix)
    seen = {redis_client.get(key)}
    for number in range(1, 4):
        store.take([Hit(ONE, ANN)])
        store.reset([Hit(ONE, ANN)])
        seen.add(redis_client.get(key))
        assert len(seen) == number + 1
    assert 0 < int(redis_client.ttl(key)) <= refusals.TOLD


def test_a_lesser_cost_that_is_admitted_has_the_greater_asked_anew(
    store: RememberingStore, trips: Callable[[], int]
) -> None:
    assert store.take([Hit(TEN, ANN, 7)]).allowed
    assert store.take([Hit(TEN, ANN, 4)]).answers[0].verdict.remaining == 3
    assert store.take([Hit(TEN, ANN, 2)]).allowed
    assert store.take([Hit(TEN, ANN, 4)]).answers[0].verdict.remaining == 1


def test_what_was_asked_before_a_reset_and_answered_after_it_is_not_remembered(
    clock: Clock, seconds: Seconds
) -> None:
    class Slow(MemoryStore):
        def take(self, hits: Sequence[Hit]) -> Decision:
            decision = super().take(hits)
            if not decision.allowed:
                remembering.reset(hits)
            return decision

    remembering = RememberingStore(Slow(clock), seconds)
    allowed = [remembering.take([Hit(ONE, ANN)]).allowed for _ in range(6)]
    assert allowed == [True, False] * 3


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.take([Hit(ONE, BOB)]),
        lambda store: store.peek([Hit(ONE, BOB)]),
        lambda store: store.run([("GET", "x")]),
    ],
)
def test_when_the_server_fails_all_is_forgotten(
    start_server: StartServer, seconds: Seconds, ask: Callable[[Breaker], object]
) -> None:
    server = start_server()
    later = Seconds()
    remembering = RememberingStore(RedisStore(Wire.from_url(server.url, 5)), seconds)
    store = Breaker(remembering, clock=later)
    hit = Hit(ONE, ANN)
    assert [store.take([hit]).allowed for _ in range(3)] == [True, False, False]
    server.stop()
    assert not store.take([hit]).allowed
    with pytest.raises(StoreError):
        ask(store)
    later.now += 1
    with pytest.raises(StoreError):  # nothing in memory passes for a server that is back
        store.take([hit])
    server.start()  # it has forgotten all, too
    later.now += 1
    assert store.take([hit]).allowed


def test_what_was_decided_in_parts_is_not_remembered(clock: Clock, seconds: Seconds) -> None:
    """Of several slots of a cluster one may refuse for what another decision gives back."""
    hit = Hit(ONE, ANN)
    inner = MemoryStore(clock)
    inner.take([hit])
    refusal = inner.take([hit])
    for in_parts in (True, False):
        known = Refusals(seconds)
        known.learn(replace(refusal, in_parts=in_parts), 0.0, None)
        assert (known.decision([hit]) is None) is in_parts


def test_a_busy_process_forgets_nothing(clock: Clock, seconds: Seconds) -> None:
    class Busy(MemoryStore):
        def take(self, hits: Sequence[Hit]) -> Decision:
            if hits[0].client == BOB:
                raise StoreBusyError("All connections are in use.")
            return super().take(hits)

    remembering = RememberingStore(Busy(clock), seconds)
    store = Breaker(remembering)
    hit = Hit(ONE, ANN)
    assert [store.take([hit]).allowed for _ in range(2)] == [True, False]
    with pytest.raises(StoreBusyError):
        store.take([Hit(ONE, BOB)])
    assert remembering.refusals.decision([hit]) is not None


# --- Bounded, and shared by threads ---


def test_the_oldest_makes_room(clock: Clock, seconds: Seconds) -> None:
    known = Refusals(seconds, most=3)
    hits = [Hit(ONE, Client("ip", str(number))) for number in range(5)]
    inner = MemoryStore(clock)
    for hit in hits:
        inner.take([hit])
    for hit in (*hits[:3], hits[0], *hits[3:]):  # the first is refreshed
        known.learn(inner.take([hit]), 0.0, None)
    found = [known.decision([hit]) is not None for hit in hits]
    assert found == [True, False, False, True, True]


def test_of_one_counter_a_few_costs_are_kept(clock: Clock, seconds: Seconds) -> None:
    known = Refusals(seconds)
    inner = MemoryStore(clock)
    inner.take([Hit(TEN, ANN, 10)])
    hits = [Hit(Rule("ten", Rate(limit, HOUR)), ANN) for limit in range(1, 11)]
    for hit in hits:
        known.learn(inner.take([hit]), 0.0, None)
    found = [known.decision([hit]) is not None for hit in hits]
    assert found == [False] * (10 - refusals.MOST_OF_ONE) + [True] * refusals.MOST_OF_ONE


def test_threads_that_refuse_reset_and_refund_at_once_leave_nothing_stale(
    redis_server: EmbeddedServer,
) -> None:
    store = RememberingStore(RedisStore(Wire.from_url(redis_server.url, 5)))
    hits = [Hit(ONE, Client("ip", str(number))) for number in range(4)]
    numbers = iter(range(16))
    lock = threading.Lock()

    def work() -> None:
        with lock:
            number = next(numbers)
        for turn in range(60):
            hit = hits[(number + turn) % len(hits)]
            decision = store.take([hit])
            if number % 4 == 0:
                store.reset([hit])
            elif number % 4 == 1:
                store.refund(decision)

    assert together(16, work) == [None] * 16
    for hit in hits:
        store.reset([hit])
        assert store.take([hit]).allowed
