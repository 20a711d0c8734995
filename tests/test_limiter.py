from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.request import Request

from django_slidinglimit import clients, connections, limiter, places
from django_slidinglimit.core.decisions import Client, Decision
from django_slidinglimit.core.memory import MemoryStore
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.core.window import admits
from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.limiter import Walk, check, decide, peek, reset
from django_slidinglimit.models import Rule
from django_slidinglimit.places import Place
from django_slidinglimit.usage import recorder

from .core.clock import Clock
from .core.examples import thorough

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.http import HttpRequest
    from pytest_django import Settings
    from redis import Redis

pytestmark = pytest.mark.django_db

DAY = 86_400_000
AWAY = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": "unix:///nowhere/redis.sock",
    }
}


def get(address: str = "192.0.2.7", user: User | None = None, **meta: str) -> HttpRequest:
    request = RequestFactory().get("/", REMOTE_ADDR=address, **meta)  # type: ignore[arg-type]
    request.user = user or AnonymousUser()
    return request


def place(scope: str, rate: str | None = None, key: str = "ip", **others: Any) -> Place:
    return Place(scope, clients.key(key), Rate.parse(rate), **others)


def rule(rate: str, scope: str = "api", **others: Any) -> Rule:
    return Rule.objects.create(name=f"{scope} {rate}", scope=scope, rate=rate, **others)


def told(decision: Decision) -> list[tuple[str, bool, int]]:
    """What the answers say: the rule's name, whether it admits, and how much is left."""
    return [(a.hit.rule.name, a.verdict.allowed, a.verdict.remaining) for a in decision.answers]


def remaining(decision: Decision) -> list[int]:
    return [answer.verdict.remaining for answer in decision.answers]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def memory(clock: Clock) -> Iterator[MemoryStore]:
    store = MemoryStore(clock)
    connections.use(store)
    yield store
    connections.use(None)


class Trips:
    """Deciding commands that Redis got since the last look."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        redis.script_flush()
        limiter.check(get(), "warm up", rate="1/s")  # loads the script
        redis.flushall()
        self()

    def __call__(self) -> int:
        stats: dict[str, Any] = self._redis.info("commandstats")
        self._redis.config_resetstat()
        scripts = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_hdel")
        return sum(stats[name]["calls"] for name in scripts if name in stats)


@pytest.fixture
def trips(redis_client: Redis) -> Trips:
    return Trips(redis_client)


# check


def test_as_many_as_the_limit_pass_and_then_none() -> None:
    decisions = [check(get(), "api", rate="5/day") for _ in range(8)]
    assert [decision.allowed for decision in decisions] == [True] * 5 + [False] * 3
    assert [remaining(decision) for decision in decisions] == [
        [4],
        [3],
        [2],
        [1],
        [0],
        [0],
        [0],
        [0],
    ]
    assert all(decision.retry_after == 0 for decision in decisions[:5])
    assert all(decision.retry_after and decision.retry_after > 0 for decision in decisions[5:])


def test_clients_scopes_keys_and_windows_have_counters_of_their_own() -> None:
    def is_new(request: HttpRequest, *args: Any, **kwargs: Any) -> bool:
        return remaining(check(request, *args, **kwargs)) == [9]

    user = get(user=User(pk=7))
    assert is_new(get(), "api", rate="10/day")
    assert is_new(get("192.0.2.8"), "api", rate="10/day")
    assert is_new(get(), "other", rate="10/day")
    assert is_new(get(), "api", rate="10/2days")
    assert is_new(get(), "api", rate="10/day", key="ip")
    assert is_new(user, "api", rate="10/day")
    assert is_new(user, "api", rate="10/day", key="user")
    assert not is_new(get(), "api", rate="10/day")


def test_a_scope_and_a_key_are_not_one_text() -> None:
    """Names that read alike when put together share nothing."""
    names = {
        places.code_rule(s, k, frozenset(m), Rate(1, 1)).id
        for s, k, m in [
            ("a", "bip", ()),
            ("ab", "ip", ()),
            ("a", "b", ["IP"]),
            ("a,b", "ip", ()),
            ("a", "b,ip", ()),
            ("a", "ip", ["GET", "POST"]),
            ("a", "ip", ["GET"]),
            ("a", "ip", ["GETPOST"]),
        ]
    }
    assert len(names) == 8


def test_a_cost_that_does_not_fit_changes_nothing() -> None:
    assert remaining(check(get(), "api", rate="10/day", cost=7)) == [3]
    refused = check(get(), "api", rate="10/day", cost=5)
    assert (refused.allowed, remaining(refused)) == (False, [3])
    assert refused.retry_after
    assert remaining(check(get(), "api", rate="10/day", cost=3)) == [0]


def test_a_cost_above_the_limit_is_never_admitted_and_takes_nothing(trips: Trips) -> None:
    for rate, cost in (("10/day", 11), ("0/day", 1)):
        refused = check(get(), "api", rate=rate, cost=cost)
        assert (refused.allowed, refused.retry_after) == (False, None)
    assert trips() == 0
    assert remaining(peek(get(), "api", rate="10/day")) == [10]


def test_a_cost_of_0_reads_and_writes_nothing(redis_client: Redis) -> None:
    assert remaining(check(get(), "api", rate="10/day", cost=0)) == [10]
    assert not redis_client.keys("*:{*")
    check(get(), "api", rate="10/day", cost=10)
    assert check(get(), "api", rate="10/day", cost=0).allowed


@pytest.mark.parametrize("cost", [-1, 1.5, True, "1", None])
def test_a_wrong_cost_is_refused(cost: Any) -> None:
    with pytest.raises(ValueError, match="cost must be a whole number"):
        check(get(), "api", cost=cost)  # also where no rule asks for it


def test_a_wrong_rate_or_key_is_refused() -> None:
    for ask in (check, peek, reset):
        with pytest.raises(ValueError, match="number/unit"):
            ask(get(), "api", rate="10/month")
        with pytest.raises(ImproperlyConfigured, match="is not a key"):
            ask(get(), "api", key="usr")


def test_without_block_nothing_is_refused_and_only_what_fits_is_counted() -> None:
    decisions = [check(get(), "api", rate="3/day", block=False) for _ in range(5)]
    assert all(decision.allowed for decision in decisions)
    assert [decision.limited for decision in decisions] == [False] * 3 + [True] * 2
    assert remaining(decisions[-1]) == [0]
    assert not check(get(), "api", rate="3/day").allowed


def test_a_soft_limit_over_a_hard_one_does_not_shorten_it() -> None:
    passed = 0
    for _ in range(50):
        request = get()
        with limiter.walk(request) as walk:
            check(request, "api", rate="3/day", block=False)
            passed += check(request, "api", rate="10/day").allowed
            assert walk.decision.limited is (passed > 3 or not walk.decision.allowed)
    assert passed == 10


# Round trips


def test_any_number_of_rules_costs_one_trip(trips: Trips) -> None:
    for number in range(1, 7):
        rule(f"{number * 10}/day", key="ip")
        assert len(check(get(), "api", key="ip").answers) == number
        assert trips() == 1


def test_several_places_cost_one_trip(trips: Trips) -> None:
    places = [place("a", "9/day"), place("b", "8/h"), place("c", "7/min", key="global")]
    assert len(decide(get(), places, Walk()).answers) == 3
    assert trips() == 1


def test_where_nothing_asks_there_is_no_trip(trips: Trips) -> None:
    rule("1/day", mode="off")
    rule("1/day", methods="POST")
    rule("1/day", key="header:x", no_identity="allow")
    assert check(get(), "api") == peek(get(), "api") == Decision()
    reset(get(), "api")
    assert decide(get(), [place("api", "1/day", methods=frozenset({"POST"}))], Walk()).allowed
    assert decide(get(), [], Walk()) == Decision()
    assert trips() == 0


def test_what_a_walk_knows_costs_no_trip(trips: Trips) -> None:
    request = get()
    with limiter.walk(request):
        check(request, "api", rate="9/day")
        assert trips() == 1
        check(request, "api", rate="9/day")
        assert trips() == 0


# All or nothing


def test_one_that_refuses_leaves_the_others_uncharged() -> None:
    rule("2/min", key="user")
    rule("5/day", key="ip")
    request = get(user=User(pk=7))
    for _ in range(9):
        check(request, "api")
    connections.store().forget_refusals()
    decision = check(request, "api")
    assert told(decision) == [("api 2/min", False, 0), ("api 5/day", True, 3)]
    assert remaining(check(get(user=User(pk=8)), "api")) == [1, 2]


def test_the_wait_is_the_greatest_and_none_if_any_never_admits(memory: MemoryStore) -> None:
    places = [place("a", "1/min"), place("b", "1/day"), place("c", "5/min")]
    decide(get(), places, Walk())
    refused = decide(get(), places, Walk())
    waits = [answer.verdict.retry_after for answer in refused.answers]
    assert refused.retry_after == max(wait for wait in waits if wait is not None) >= DAY
    assert decide(get(), [*places, place("d", "0/min")], Walk()).retry_after is None


# Once a walk


def test_a_rule_is_counted_once_a_walk_whoever_asks() -> None:
    rule("10/day", key="ip")
    request = get()
    with limiter.walk(request) as walk:
        for _ in range(3):
            decision = check(request, "api", rate="20/day", key="user_or_ip")
        assert told(decision) == told(walk.decision)
    assert told(decision) == [("api 10/day", True, 9), ("api", True, 19)]


def test_outside_a_walk_each_check_counts() -> None:
    request = get()
    assert [remaining(check(request, "api", rate="9/day")) for _ in "12"] == [[8], [7]]


def test_the_same_request_sent_again_counts_again() -> None:
    request = get()
    left = []
    for _ in range(3):
        with limiter.walk(request), suppress(ZeroDivisionError):
            left += remaining(check(request, "api", rate="9/day"))
            raise ZeroDivisionError
        with suppress(ZeroDivisionError), limiter.walk(request):
            raise ZeroDivisionError
        assert limiter.walk_of(request) is None
    assert left == [8, 7, 6]


def test_an_inner_walk_is_the_outer_one() -> None:
    request = get()
    with limiter.walk(request) as outer:
        with limiter.walk(request) as inner:
            assert inner is outer
        assert limiter.walk_of(request) is outer
        with limiter.walk(Request(request)) as of_drf:
            assert of_drf is outer
        assert limiter.keep_walk(Request(request)) is outer


def test_a_kept_walk_lives_on_drfs_request_alone() -> None:
    request = get()
    first, other = Request(request), Request(request)
    walk = limiter.keep_walk(first)
    assert limiter.keep_walk(first) is walk
    assert limiter.walk_of(request) is None
    assert limiter.keep_walk(other) is not walk


def test_a_walk_opened_on_drfs_request_is_djangos() -> None:
    request = get()
    with limiter.walk(Request(request)) as walk:
        assert limiter.walk_of(request) is walk
    assert limiter.walk_of(request) is None


def test_a_later_refusal_gives_back_what_was_counted() -> None:
    blocked = place("blocked", "0/day")
    for _ in range(3):
        request = get()
        with limiter.walk(request) as walk:
            assert remaining(decide(request, [place("a", "9/day")], walk)) == [8]
            assert remaining(decide(request, [place("b", "5/day", cost=3)], walk)) == [2]
            assert not decide(request, [blocked], walk).allowed
            assert told(walk.decision) == [("a", True, 9), ("b", True, 5), ("blocked", False, 0)]
            assert walk.decision.charges == {}
    assert remaining(peek(get(), "a", key="ip", rate="9/day")) == [9]
    assert remaining(peek(get(), "b", key="ip", rate="5/day")) == [5]


def test_a_refused_walk_counts_nothing_more() -> None:
    walk = Walk()
    rates = [place("a", "1/day"), place("b", "9/day")]
    decide(get(), rates[:1], Walk())
    assert not decide(get(), rates[:1], walk).allowed
    assert not decide(get(), rates, walk).allowed
    assert told(walk.decision) == [("a", False, 0), ("b", True, 9)]
    assert remaining(peek(get(), "b", key="ip", rate="9/day")) == [9]


def test_the_stores_time_stays_known_after_a_refusal(memory: MemoryStore, clock: Clock) -> None:
    rule("9/day", scope="later", key="header:x-absent", no_identity="refuse")
    walk = Walk()
    assert decide(get(), [place("a", "9/day")], walk).time_ms == clock.now
    again = decide(get(), [place("a", "9/day")], walk)
    assert again.time_ms == clock.now
    assert not decide(get(), [place("later")], walk).allowed
    assert walk.decision.time_ms == clock.now


# The same counter, asked differently in one walk


@pytest.mark.parametrize("costs", [(1, 5), (5, 1)])
def test_the_same_question_at_two_costs_is_asked_at_the_greater(costs: tuple[int, int]) -> None:
    places = [place("a", "8/day", cost=cost) for cost in costs]
    first, then = (decide(get(), places, Walk()) for _ in "12")
    assert (first.allowed, remaining(first)) == (True, [3])
    assert (then.allowed, remaining(then)) == (False, [3])


def test_a_greater_cost_later_in_the_walk_charges_the_rest() -> None:
    walk = Walk()
    seen = [
        remaining(decide(get(), [place("a", "20/day", cost=cost)], walk))
        for cost in (1, 5, 3, 0, 9)
    ]
    assert seen == [[19], [15], [15], [15], [11]]
    assert remaining(peek(get(), "a", key="ip", rate="20/day")) == [11]
    assert not decide(get(), [place("b", "0/s")], walk).allowed
    assert remaining(peek(get(), "a", key="ip", rate="20/day")) == [20]
    assert told(walk.decision)[0] == ("a", True, 20)


def test_another_limit_on_the_same_counter_is_checked_and_charged_once() -> None:
    for number in range(1, 6):
        walk = Walk()
        decide(get(), [place("a", "10/day")], walk)
        decision = decide(get(), [place("a", "3/day")], walk)
        assert decision.allowed is (number <= 3)
    assert [a.verdict.remaining for a in walk.decision.answers] == [7, 0]
    assert remaining(peek(get(), "a", key="ip", rate="10/day")) == [7]


asks = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 9), st.booleans()), max_size=5)


@thorough
@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 59), asks)
def test_a_walk_on_one_counter_charges_the_greatest_cost_or_nothing(
    previous: int, current: int, second: int, asks: list[tuple[int, int, bool]]
) -> None:
    clock = Clock()
    connections.use(MemoryStore(clock))
    try:
        decide(get(), [place("a", "99/min", cost=previous)], Walk())
        clock.now += 60_000
        decide(get(), [place("a", "99/min", cost=current)], Walk())
        clock.now += second * 1000
        before = counted()

        walk, admitted = Walk(), [0]
        for limit, cost, observe in asks:
            decision = decide(get(), [place("a", f"{limit}/min", cost=cost, observe=observe)], walk)
            if decision.allowed and not decision.limited:
                admitted.append(cost)
        assert counted() - before == (max(admitted) if walk.decision.allowed else 0)

        for answer in walk.decision.answers:
            rate, cost = answer.hit.rule.rate, answer.hit.cost
            if answer.reading is None:
                assert (answer.verdict.allowed, cost > rate.limit) == (False, True)
                continue
            assert answer.verdict.allowed is admits(rate, answer.reading, cost)
            assert answer.charged <= counted() - before
        wait = walk.decision.retry_after
        refusing = [a.hit for a in walk.decision.enforced if not a.verdict.allowed]
        if wait:
            clock.now += wait - 1
            assert not connections.store().peek(refusing).allowed
            clock.now += 1
            assert connections.store().peek(refusing).allowed
    finally:
        connections.use(None)


def counted() -> int:
    """What the current window of counter "a" holds."""
    reading = peek(get(), "a", key="ip", rate="99/min").answers[0].reading
    assert reading is not None
    return reading.current


# peek and reset


def test_a_peek_says_what_check_would_and_counts_nothing(redis_client: Redis) -> None:
    for left in (2, 1, 0):
        seen = peek(get(), "api", rate="3/day")
        assert (seen.allowed, remaining(seen)) == (True, [left + 1])
        assert remaining(check(get(), "api", rate="3/day")) == [left]
    stored = {key: redis_client.hgetall(key) for key in redis_client.keys("*:{*")}
    seen = peek(get(), "api", rate="3/day")
    assert (seen.allowed, seen.limited, remaining(seen)) == (False, True, [0])
    assert seen.retry_after
    assert peek(get(), "api", rate="3/day", cost=4).retry_after is None
    assert {key: redis_client.hgetall(key) for key in redis_client.keys("*:{*")} == stored


def test_a_peek_is_not_recorded_as_usage(redis_client: Redis) -> None:
    peek(get(), "api", rate="3/day")
    recorder.flush()
    assert not redis_client.keys("*usage*")


def test_a_reset_forgets_one_client_alone() -> None:
    for address in ("192.0.2.7", "192.0.2.8"):
        check(get(address), "api", rate="3/day", cost=3)
    reset(get(), "api", rate="3/day")
    assert remaining(peek(get(), "api", rate="3/day")) == [3]
    assert remaining(peek(get("192.0.2.8"), "api", rate="3/day")) == [0]


def test_a_reset_forgets_the_previous_window_too(memory: MemoryStore, clock: Clock) -> None:
    check(get(), "api", rate="3/min", cost=3)
    clock.now += 60_000
    assert remaining(peek(get(), "api", rate="3/min")) == [0]
    reset(get(), "api", rate="3/min")
    assert remaining(peek(get(), "api", rate="3/min")) == [3]


def test_peek_and_reset_reach_each_rule_that_check_would() -> None:
    rule("10/day", key="ip")
    rule("20/day")
    rule("30/day", mode="observe")
    rule("40/day", key="header:x-key")
    rule("50/day", methods="POST")
    request = get(HTTP_X_KEY="secret")
    names = {answer.hit.rule.name for answer in check(request, "api", rate="60/day").answers}
    assert names == {"api 10/day", "api 20/day", "api 30/day", "api 40/day"}
    assert sorted(remaining(peek(request, "api", rate="60/day"))) == [9, 19, 29, 39]
    reset(request, "api", rate="60/day")
    assert sorted(remaining(peek(request, "api", rate="60/day"))) == [10, 20, 30, 40]


# What rules of the database do


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["api 7/day"]),
        ({"key": "ip"}, ["api 7/day"]),
        ({"key": "user_or_ip"}, ["api 7/day", "api"]),
        ({"key": "global"}, ["api 7/day", "api"]),
        ({"mode": "observe"}, ["api 7/day", "api"]),
        ({"mode": "observe", "key": "ip"}, ["api 7/day", "api"]),
        ({"mode": "off"}, ["api"]),
        ({"methods": "GET, POST"}, ["api 7/day"]),
        ({"methods": "POST"}, ["api"]),
        ({"scope": "other"}, ["api"]),
        ({"scope": "", "path": "*"}, ["api"]),
    ],
)
def test_an_enforcing_rule_of_the_same_scope_and_key_replaces_the_codes(
    fields: dict[str, str], names: list[str]
) -> None:
    Rule.objects.create(**{"name": "api 7/day", "scope": "api", "rate": "7/day", **fields})
    assert [name for name, *_ in told(check(get(), "api", rate="5/day", key="ip"))] == names


def test_a_rule_adds_a_limit_where_the_code_has_none() -> None:
    rule("2/day")
    assert [check(get(), "api").allowed for _ in range(3)] == [True, True, False]


def test_several_rules_of_a_scope_must_all_admit() -> None:
    rule("9/day")
    rule("2/day", key="ip")
    rule("5/day")
    decisions = [check(get(), "api", rate="1/day", key="ip") for _ in range(3)]
    assert [decision.allowed for decision in decisions] == [True, True, False]
    assert sorted(told(decisions[2])) == [
        *[("api 2/day", False, 0), ("api 5/day", True, 3), ("api 9/day", True, 7)],
    ]


def test_an_observing_rule_counts_what_it_would_admit_and_refuses_nothing() -> None:
    rule("2/day", mode="observe")
    decisions = [check(get(), "api", rate="9/day", key="ip") for _ in range(4)]
    assert all(decision.allowed for decision in decisions)
    assert [told(decision)[0][1:] for decision in decisions] == [
        *[(True, 1), (True, 0), (False, 0), (False, 0)],
    ]


def test_an_enforcing_rule_at_a_place_that_does_not_block_observes() -> None:
    rule("1/day")
    decisions = [check(get(), "api", rate="9/day", block=False) for _ in range(3)]
    assert all(decision.allowed for decision in decisions)
    assert [decision.limited for decision in decisions] == [False, True, True]


def test_a_rule_of_a_path_adds_and_replaces_nothing() -> None:
    Rule.objects.create(name="path", path="*", rate="7/day")
    Rule.objects.create(name="elsewhere", path="else/*", rate="7/day")
    found = decide(get(), [place("api", "5/day", by_path=True)], Walk())
    assert told(found) == [("path", True, 6), ("api", True, 4)]


def test_a_place_counts_its_methods_alone() -> None:
    asks = place("api", "5/day", methods=frozenset({"POST"}))
    assert decide(get(), [asks], Walk()) == Decision()
    request = RequestFactory().post("/")
    request.user = AnonymousUser()
    assert told(decide(request, [asks], Walk())) == [("api", True, 4)]


def test_a_place_that_needs_identity_exempts_from_all_but_rules_of_another_key() -> None:
    rule("7/day")
    rule("8/day", mode="observe")
    rule("9/day", key="ip")
    exempting = place("api", "5/day", key="user", needs_identity=True)
    assert told(decide(get(), [exempting], Walk())) == [("api 9/day", True, 8)]


# Nobody there


def test_without_identity_all_are_counted_together_and_it_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    left = [
        remaining(check(get(address), "api", rate="9/day", key="header:x-together"))
        for address in ("192.0.2.7", "192.0.2.8")
    ]
    assert left == [[8], [7]]
    assert ["header:x-together" in record.getMessage() for record in caplog.records] == [True]


def test_user_or_ip_without_a_user_is_counted_by_address(caplog: pytest.LogCaptureFixture) -> None:
    for address in ("192.0.2.7", "192.0.2.8"):
        assert remaining(check(get(address), "api", rate="9/day")) == [8]
    assert not caplog.records


def test_a_rule_lets_through_what_has_no_identity(trips: Trips) -> None:
    rule("1/day", key="header:x-key", no_identity="allow")
    for _ in range(3):
        assert check(get(), "api") == Decision()
    assert trips() == 0
    assert not check(get(HTTP_X_KEY="k"), "api").limited
    assert check(get(HTTP_X_KEY="k"), "api").limited


def test_a_rule_refuses_what_has_no_identity_without_trip_and_without_counting(
    trips: Trips, caplog: pytest.LogCaptureFixture
) -> None:
    rule("9/day", key="header:x-key", no_identity="refuse")
    for _ in range(3):
        decision = check(get(), "api", rate="5/day", key="ip")
        assert (decision.allowed, decision.retry_after) == (False, None)
        assert peek(get(), "api", rate="5/day", key="ip").retry_after is None
    assert trips() == 0
    assert not caplog.records
    assert remaining(check(get(HTTP_X_KEY="k"), "api", rate="5/day", key="ip")) == [8, 4]


def test_an_observing_rule_does_not_refuse_what_has_no_identity() -> None:
    rule("9/day", key="header:x-key", no_identity="refuse", mode="observe")
    assert told(check(get(), "api", rate="5/day")) == [("api", True, 4)]


def test_those_without_identity_are_counted_under_the_rules_own_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where the place counts by another key: it is one rule, and one counter."""
    rule("9/day", key="header:x-own-key")
    request = get()
    with limiter.walk(request) as walk:
        for key in ("ip", "global"):
            decide(request, [place("api", "5/day", key=key)], walk)
        asked = [answer.hit.client for answer in walk.decision.answers]
    assert asked.count(Client("header:x-own-key", "")) == 1
    assert {client.kind for client in asked} == {"header:x-own-key", "ip", "global"}
    assert "header:x-own-key" in caplog.text


# Redis away


@pytest.fixture
def away(settings: Settings) -> None:
    settings.CACHES = AWAY


@pytest.mark.usefixtures("away")
def test_while_redis_is_away_each_rule_chooses() -> None:
    rule("9/day", scope="open")
    rule("9/day", scope="shut", when_down="deny")
    for _ in range(3):
        assert check(get(), "code", rate="1/day").allowed
        assert check(get(), "open").allowed
        decision = check(get(), "shut")
        assert not decision.allowed
        assert decision.retry_after is not None
        assert decision.retry_after >= 1000
        assert decision.time_ms is None
        assert [answer.reading for answer in decision.answers] == [None]
        assert peek(get(), "shut").retry_after


@pytest.mark.usefixtures("away")
def test_while_redis_is_away_any_that_denies_wins() -> None:
    rule("9/day", when_down="deny", key="global")
    rule("9/day", when_down="allow")
    decision = check(get(), "api", rate="5/day", key="user_or_ip")
    assert not decision.allowed
    assert [answer.verdict.allowed for answer in decision.answers].count(False) == 1


@pytest.mark.usefixtures("away")
def test_while_redis_is_away_an_observing_rule_denies_nothing() -> None:
    rule("9/day", mode="observe", when_down="deny")
    rule("9/day", scope="soft", when_down="deny")
    assert check(get(), "api", rate="5/day").allowed
    assert not check(get(), "api", rate="5/day").limited
    assert check(get(), "soft", block=False).allowed


@pytest.mark.usefixtures("away")
def test_what_can_never_be_admitted_needs_no_redis_to_be_refused() -> None:
    for when_down in ("allow", "deny"):
        rule("0/day", scope=when_down, when_down=when_down)
        decision = check(get(), when_down)
        assert (decision.allowed, decision.retry_after) == (False, None)
    assert check(get(), "costly", rate="5/day", cost=6).retry_after is None
    assert check(get(), "soft", rate="0/day", block=False).allowed


@pytest.mark.usefixtures("away")
def test_a_reset_that_did_not_happen_is_an_error() -> None:
    with pytest.raises(StoreError):
        reset(get(), "api", rate="5/day")


@pytest.mark.usefixtures("away")
def test_what_asks_nothing_of_redis_does_not_take_it_for_answering(
    caplog: pytest.LogCaptureFixture,
) -> None:
    check(get(), "api", rate="5/day")
    assert connections.store().failure
    time.sleep(connections.store().retry_in_ms / 1000 + 0.01)
    for ask in (check, peek, reset):
        ask(get(), "no rules here")
    recorder.flush()
    assert connections.store().failure
    assert [record.levelname for record in caplog.records] == ["ERROR"]


# Arguments as the decorator's


def test_a_method_and_a_rate_reach_the_decorators_counter() -> None:
    rate = Rate(3, DAY)

    @ratelimit("api", key="ip", rate=rate, method=["POST", "PUT"])
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    asked: dict[str, Any] = {"key": "ip", "rate": rate, "method": "put, post"}
    post = RequestFactory().post("/", REMOTE_ADDR="192.0.2.7")
    view(post)
    assert remaining(check(post, "api", **asked)) == [1]
    assert check(get(), "api", **asked).answers == ()  # GET is not counted there
    assert remaining(peek(get(), "api", **asked)) == [1]
    assert remaining(peek(get(), "api", key="ip", rate=rate)) == [3]
    reset(get(), "api", **asked)
    assert remaining(peek(post, "api", **asked)) == [3]


@pytest.mark.parametrize("given", ["", [], "G T", [" "]])
def test_a_method_that_is_none_is_refused(given: Any) -> None:
    for ask in (check, peek, reset):
        with pytest.raises(ValueError, match="method"):
            ask(get(), "api", rate="1/day", method=given)


def test_a_reset_reaches_a_rule_that_admits_nothing() -> None:
    check(get(), "api", rate="3/day")
    reset(get(), "api", rate="0/day")
    assert remaining(peek(get(), "api", rate="3/day")) == [3]


# Who asks


def test_a_key_of_the_projects_own_is_asked_for_each_scope_and_others_once_a_request() -> None:
    asked = []

    def by_scope(group: str, request: HttpRequest) -> str:
        asked.append(group)
        return group

    own = [Place(scope, clients.key(by_scope), Rate(5, DAY)) for scope in ("a", "b")]
    told = decide(get(), own, Walk())
    assert [answer.hit.client.identity for answer in told.answers] == asked == ["a", "b"]

    class Noting(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            asked.append(name)
            return super().get(name, default)

    request = get()
    request.META = Noting(request.META)
    asked.clear()
    decide(request, [place("a", "5/day"), place("b", "5/day")], Walk())
    assert asked.count("REMOTE_ADDR") == 1
