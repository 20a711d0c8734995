from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import rest_framework.decorators
from django.contrib.auth.models import User
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from rest_framework.exceptions import PermissionDenied, Throttled
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIClient, APIRequestFactory

from django_slidinglimit import connections
from django_slidinglimit.core.decisions import Client
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.models import Rule
from django_slidinglimit.throttled import check_throttles
from django_slidinglimit.throttling import (
    AnonRateThrottle,
    RuleThrottle,
    ScopedRateThrottle,
    SimpleRateThrottle,
    UserRateThrottle,
)

from . import throttled_api
from .core.clock import Clock, ClockedWire
from .throttled_api import (
    ALICE,
    BOB,
    Burst,
    ButStaff,
    Limited,
    Scoped,
    Stranger,
    Sustained,
    ask,
    call,
    commands,
    counted,
    drf_request,
    rule,
    view_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from pytest_django import Settings
    from redis import Redis
    from rest_framework.views import APIView

    from example_project.server import EmbeddedServer

    Throttle: TypeAlias = type[SimpleRateThrottle]

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.throttled_api")]


@pytest.fixture(autouse=True)
def patient(settings: Settings) -> None:
    """A machine under load is slow, and a limit would let through what it cannot count in time."""
    settings.SLIDINGLIMIT = settings.SLIDINGLIMIT | {"TIMEOUT": 5}


@pytest.fixture
def clock(redis_server: EmbeddedServer) -> Iterator[Clock]:
    """Limits are counted in real Redis, by a clock that only the test moves."""
    clock = Clock()
    connections.use(RedisStore(ClockedWire(redis_server.url, clock)))
    yield clock
    connections.use(None)


# What DRF's own throttles do


def test_refuses_the_request_above_the_rate() -> None:
    assert ask(Limited.as_view(), 4) == [200, 200, 200, 429]


def test_refusal_is_drfs_own() -> None:
    client = APIClient()
    for _ in range(3):
        client.get("/limited/")
    response = client.get("/limited/")
    assert response.status_code == 429
    assert response.data["detail"].code == Throttled.default_code
    assert f"{response['Retry-After']} seconds" in response.data["detail"]


def test_admits_again_when_the_time_has_passed(clock: Clock) -> None:
    view = view_of(type("PerSecond", (UserRateThrottle,), {"rate": "3/sec"}))
    assert ask(view, 4) == [200, 200, 200, 429]
    clock.now += 2000
    assert ask(view, 4) == [200, 200, 200, 429]


def test_counts_each_user_alone() -> None:
    view = Limited.as_view()
    assert ask(view, 4, user=ALICE)[-1] == 429
    assert ask(view, user=BOB) == [200]


def test_counts_requests_that_are_not_signed_in_by_address() -> None:
    view = Limited.as_view()
    assert ask(view, 4, REMOTE_ADDR="192.0.2.1")[-1] == 429
    assert ask(view, REMOTE_ADDR="192.0.2.2") == [200]


def test_user_with_the_primary_key_of_an_address_is_somebody_else() -> None:
    view = Limited.as_view()
    assert ask(view, 4, REMOTE_ADDR="192.0.2.1")[-1] == 429
    assert ask(view, user=User(pk="192.0.2.1")) == [200]


def test_anonymous_throttle_does_not_count_signed_in_users() -> None:
    view = view_of(type("Few", (AnonRateThrottle,), {"rate": "1/min"}))
    assert ask(view, 3, user=ALICE) == [200, 200, 200]
    assert ask(view, 2) == [200, 429]


def test_options_counts_as_any_method() -> None:
    assert ask(Limited.as_view(), 3, method="OPTIONS") == [200, 200, 200]
    assert ask(Limited.as_view()) == [429]


def test_counts_a_request_object_at_each_dispatch() -> None:
    request = APIRequestFactory().get("/")
    view = Limited.as_view()
    assert [view(request).status_code for _ in range(4)] == [200, 200, 200, 429]


@pytest.mark.parametrize(("scope", "limit"), [("search", 30), ("upload", 2)])
def test_scoped_throttle_takes_the_views_scope(scope: str, limit: int) -> None:
    response = call(view_of(Scoped, throttle_scope=scope))
    assert response["X-RateLimit-Limit"] == str(limit)


def test_scopes_are_counted_apart_and_views_of_one_scope_together() -> None:
    first, second = (view_of(Scoped, throttle_scope="upload") for _ in range(2))
    assert [*ask(first), *ask(second), *ask(first)] == [200, 200, 429]
    assert ask(view_of(Scoped, throttle_scope="search")) == [200]


@pytest.mark.parametrize("attributes", [{}, {"throttle_scope": None}, {"throttle_scope": ""}])
def test_view_without_scope_is_not_limited(attributes: dict[str, Any]) -> None:
    response = call(view_of(Scoped, **attributes))
    assert response.status_code == 200
    assert "X-RateLimit-Limit" not in response


def test_actions_have_scopes_of_their_own() -> None:
    client = APIClient()
    assert [client.post("/files/upload/").status_code for _ in range(3)] == [201, 201, 429]
    assert client.get("/files/")["X-RateLimit-Limit"] == "30"
    assert "X-RateLimit-Limit" not in client.get("/files/free/")


def test_function_view_has_a_scope() -> None:
    assert ask(throttled_api.scoped(lambda request: Response(), "upload"), 3)[-1] == 429


@pytest.mark.skipif(
    not hasattr(rest_framework.decorators, "throttle_scope"),
    reason="this DRF has no decorator for it",
)
def test_function_view_has_a_scope_by_drfs_decorator() -> None:
    @rest_framework.decorators.api_view()
    @rest_framework.decorators.throttle_classes([Scoped])
    @rest_framework.decorators.throttle_scope("upload")
    def view(request: Request) -> Response:
        return Response()

    assert ask(view, 3) == [200, 200, 429]


def test_stranger_among_views_throttles_is_asked_once_and_its_refusal_stands() -> None:
    stranger: Any = type("Never", (Stranger,), {"answer": False, "wait_s": 7, "asked": 0})
    response = call(view_of(Burst, stranger, Sustained))
    assert response.status_code == 429
    assert response["Retry-After"] == "7"
    assert stranger.asked == 1


def test_strangers_refusal_leaves_ours_charged() -> None:
    stranger: Any = type("Never", (Stranger,), {"answer": False})
    for order in ((Burst, stranger), (stranger, Burst)):
        call(view_of(*order))
    assert counted(call(view_of(Burst))) == [("burst", "0")]


def test_stranger_that_admits_changes_nothing() -> None:
    assert ask(view_of(Stranger, Burst, Stranger), 4) == [200, 200, 200, 429]


# Keys, as a unit test of a project asks for them


@pytest.mark.parametrize(
    ("throttle", "user", "key", "client"),
    [
        (AnonRateThrottle, None, "throttle_anon_127.0.0.1", Client("ip", "127.0.0.1")),
        (AnonRateThrottle, ALICE, None, None),
        (UserRateThrottle, None, "throttle_user_127.0.0.1", Client("ip", "127.0.0.1")),
        (UserRateThrottle, ALICE, "throttle_user_42", Client("user", "42")),
    ],
)
def test_keys_read_as_drf_writes_them(
    throttle: Throttle, user: User | None, key: str | None, client: Client | None
) -> None:
    found = throttle().get_cache_key(drf_request(user), view={})
    assert found == key
    assert getattr(found, "client", None) == client


def test_scoped_throttles_key_reads_as_drf_writes_it() -> None:
    throttle, view = ScopedRateThrottle(), mock.Mock(spec=["throttle_scope"], throttle_scope="user")
    request = drf_request(ALICE)
    assert throttle.allow_request(request, view)
    assert throttle.get_cache_key(request, view) == "throttle_user_42"


def test_key_of_a_request_without_address_reads_as_drf_writes_it() -> None:
    assert AnonRateThrottle().get_cache_key(Request(HttpRequest()), {}) == "throttle_anon_None"


# Throttles on their own, as a unit test of a project asks them


def test_simple_throttle_leaves_the_key_to_subclasses() -> None:
    with mock.patch.object(SimpleRateThrottle, "scope", "anon"):
        throttle = SimpleRateThrottle()
    with pytest.raises(NotImplementedError):
        throttle.get_cache_key({}, {})


def test_rate_of_none_admits_without_asking_for_a_key() -> None:
    with mock.patch.object(SimpleRateThrottle, "scope", "anon"):
        throttle = SimpleRateThrottle()
        assert throttle.parse_rate(None) == (None, None)
        assert throttle.allow_request({}, {}) is True


def test_key_of_none_admits() -> None:
    throttle = UserRateThrottle()
    throttle.rate = "some rate"
    throttle.get_cache_key = lambda request, view: None  # type: ignore[method-assign]
    assert throttle.allow_request({}, {}) is True


def test_something_that_is_no_request_is_counted_alone() -> None:
    class ByAnything(SimpleRateThrottle):
        rate = "1/min"

        def get_cache_key(self, request: Any, view: Any) -> str:
            return str(request["who"])

    assert ByAnything().allow_request({"who": "a"}, {}) is True
    assert ByAnything().allow_request({"who": "a"}, {}) is False
    assert ByAnything().allow_request({"who": "b"}, {}) is True


def test_request_asked_about_without_a_view_is_counted_each_time() -> None:
    request = drf_request()
    throttles = [Burst() for _ in range(4)]
    assert [t.allow_request(request, {}) for t in throttles] == [True, True, True, False]
    assert vars(request).keys() == vars(drf_request()).keys()


def test_plain_django_request_keeps_nothing() -> None:
    request = APIRequestFactory().get("/")
    request.user = ALICE
    before = set(vars(request))
    answers = [Burst().allow_request(request, Limited()) for _ in range(4)]
    assert answers == [True, True, True, False]
    assert set(vars(request)) == before


def test_wait_is_none_unless_refused() -> None:
    throttle = Burst()
    assert throttle.wait() is None
    assert throttle.allow_request(drf_request(), {})
    assert throttle.wait() is None


# Waits


def test_retry_after_is_the_least_wait(clock: Clock) -> None:
    view = Limited.as_view()
    ask(view, 3)
    wait_ms = 60_000 + 20_000  # a third of the full window must have slid out
    assert call(view)["Retry-After"] == str(wait_ms // 1000)
    clock.now += wait_ms - 1
    assert call(view)["Retry-After"] == "1"
    clock.now += 1
    assert ask(view, 2) == [200, 429]


def test_wait_is_the_longest_of_all_that_refuse(clock: Clock) -> None:
    class Day(UserRateThrottle):
        scope = "day"
        rate = "3/day"

    view = view_of(Burst, Day)
    ask(view, 3)
    assert call(view)["Retry-After"] == str(86_400 + 86_400 // 3)
    assert ask(view_of(Burst)) == [429]


def test_each_refusing_throttle_tells_the_decisions_wait(clock: Clock) -> None:
    waits: list[float | None] = []

    class Telling(UserRateThrottle):
        def throttle_failure(self) -> bool:
            waits.append(self.wait())
            return super().throttle_failure()

    first = type("First", (Telling,), {"scope": "first", "rate": "1/s"})
    second = type("Second", (Telling,), {"scope": "second", "rate": "1/min"})
    view = view_of(first, second)
    assert ask(view, 2) == [200, 429]
    assert waits == [120.0, 120.0]


@pytest.mark.parametrize("order", [1, -1])
def test_no_wait_is_told_where_any_rule_never_admits(order: int) -> None:
    never = type("Never", (UserRateThrottle,), {"scope": "never", "rate": "0/min"})
    view = view_of(Burst, never)
    ask(view_of(Burst), 3)
    view = view_of(*(Burst, never)[::order])
    response = call(view)
    assert response.status_code == 429
    assert "Retry-After" not in response


def test_wait_can_be_overridden() -> None:
    class Patient(Burst):
        def wait(self) -> float | None:
            assert super().wait() is not None
            return 500.5

    assert [call(view_of(Patient)) for _ in range(4)][-1]["Retry-After"] == "501"


# Addresses


@pytest.fixture
def num_proxies(settings: Settings) -> Callable[[int | None], None]:
    def use(number: int | None) -> None:
        settings.REST_FRAMEWORK = {"NUM_PROXIES": number}

    return use


FORWARDED: dict[str, Any] = {
    "REMOTE_ADDR": "203.0.113.3",
    "HTTP_X_FORWARDED_FOR": "10.0.0.0, 1.1.1.1, 2.2.2.2",
}


def forwarded(addresses: str) -> dict[str, Any]:
    return FORWARDED | {"HTTP_X_FORWARDED_FOR": addresses}


def test_forwarded_addresses_are_ignored_unless_a_setting_says_otherwise() -> None:
    assert UserRateThrottle().get_ident(drf_request(**FORWARDED)) == "203.0.113.3"
    view = Limited.as_view()
    answers = [ask(view, **forwarded(f"198.51.100.{n}"))[0] for n in range(4)]
    assert answers == [200, 200, 200, 429]


@pytest.mark.parametrize(
    ("number", "ident"),
    [(0, "203.0.113.3"), (1, "2.2.2.2"), (2, "1.1.1.1"), (3, "10.0.0.0"), (9, "10.0.0.0")],
)
def test_num_proxies_is_honoured(
    num_proxies: Callable[[int | None], None], number: int, ident: str
) -> None:
    num_proxies(number)
    assert UserRateThrottle().get_ident(drf_request(**FORWARDED)) == ident


def test_num_proxies_without_forwarded_addresses_takes_the_peer(
    num_proxies: Callable[[int | None], None],
) -> None:
    num_proxies(2)
    assert UserRateThrottle().get_ident(drf_request(REMOTE_ADDR="203.0.113.3")) == "203.0.113.3"


def test_num_proxies_is_not_fooled_by_forged_entries(
    num_proxies: Callable[[int | None], None],
) -> None:
    view = view_of(type("Once", (UserRateThrottle,), {"rate": "1/day"}))
    num_proxies(1)
    assert ask(view, **FORWARDED) == [200]
    assert ask(view, **forwarded("4.4.4.4, 5.5.5.5, 2.2.2.2")) == [429]
    assert ask(view, **forwarded("10.0.0.0, 1.1.1.1, 7.7.7.7")) == [200]
    num_proxies(2)
    assert ask(view, **FORWARDED) == [200]
    assert ask(view, **forwarded("4.4.4.4, 1.1.1.1, 2.2.2.2")) == [429]
    assert ask(view, **forwarded("10.0.0.0, 7.7.7.8, 2.2.2.2")) == [200]


@pytest.mark.parametrize(
    ("entry", "ident"),
    [
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]:4711", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("rubbish", None),
        ("", None),
    ],
)
def test_num_proxies_reads_addresses_as_everywhere(
    num_proxies: Callable[[int | None], None], entry: str, ident: str | None
) -> None:
    num_proxies(1)
    assert UserRateThrottle().get_ident(drf_request(**forwarded(f"9.9.9.9, {entry}"))) == ident


def test_trusted_proxies_go_before_num_proxies(settings: Settings) -> None:
    settings.REST_FRAMEWORK = {"NUM_PROXIES": 1}
    settings.SLIDINGLIMIT = settings.SLIDINGLIMIT | {
        "TRUSTED_PROXIES": ["203.0.113.0/24", "2.2.2.2"]
    }
    assert UserRateThrottle().get_ident(drf_request(**FORWARDED)) == "1.1.1.1"
    settings.SLIDINGLIMIT = settings.SLIDINGLIMIT | {"TRUSTED_PROXIES": ["unix:"]}
    assert UserRateThrottle().get_ident(drf_request(**FORWARDED)) == "203.0.113.3"


def test_requests_without_address_are_counted_together_and_apart_from_an_address() -> None:
    view = Limited.as_view()
    assert ask(view, 2, REMOTE_ADDR="") == [200, 200]
    assert ask(view, 2, REMOTE_ADDR="rubbish") == [200, 429]
    assert ask(view) == [200]


def test_rule_says_what_happens_to_requests_without_address() -> None:
    stored = rule("burst", "5/min", no_identity="refuse")
    response = call(Limited.as_view(), REMOTE_ADDR="")
    assert response.status_code == 429
    assert "Retry-After" not in response
    Rule.objects.filter(pk=stored.pk).update(no_identity="allow")
    assert ask(Limited.as_view(), 9, REMOTE_ADDR="") == [200] * 9


# Rates


def test_rates_are_read_afresh_from_the_settings(settings: Settings) -> None:
    for limit in (7, 9):
        settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": {"user": f"{limit}/min"}}
        assert call(view_of(UserRateThrottle))["X-RateLimit-Limit"] == str(limit)


def test_rates_can_be_patched_on_the_base_class_and_on_a_subclass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(SimpleRateThrottle, "THROTTLE_RATES", {"user": "7/min", "anon": "9/min"})
        assert call(view_of(UserRateThrottle))["X-RateLimit-Limit"] == "7"
        patch.setattr(UserRateThrottle, "THROTTLE_RATES", {"user": "8/min"})
        assert call(view_of(UserRateThrottle))["X-RateLimit-Limit"] == "8"
        assert call(view_of(AnonRateThrottle))["X-RateLimit-Limit"] == "9"
    with mock.patch.dict(UserRateThrottle.THROTTLE_RATES, {"user": "6/min"}):
        assert call(view_of(UserRateThrottle))["X-RateLimit-Limit"] == "6"
    assert UserRateThrottle().rate is None


def test_declared_rate_of_none_is_no_limit() -> None:
    response = call(view_of(Scoped, throttle_scope="later"))
    assert response.status_code == 200
    assert "X-RateLimit-Limit" not in response


@pytest.mark.parametrize("exists", [False, True])
def test_undeclared_scope_is_an_error_that_no_rule_rescues(exists: bool) -> None:
    if exists:
        rule("serach", "5/min")
    with pytest.raises(ImproperlyConfigured) as caught:
        ask(view_of(Scoped, throttle_scope="serach"))
    for part in ("tests.throttled_api.Scoped", "'serach'", "DEFAULT_THROTTLE_RATES"):
        assert part in str(caught.value)


def test_throttle_without_scope_and_rate_is_an_error() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"SimpleRateThrottle.*`scope`.*`rate`"):
        SimpleRateThrottle()


@pytest.mark.parametrize("rate", ["10/month", "5/xyz", "/min", "-1/s", 5, "1.5/s", ""])
def test_wrong_rate_is_an_error_that_names_class_and_scope(rate: Any) -> None:
    with (
        mock.patch.object(UserRateThrottle, "THROTTLE_RATES", {"user": rate}),
        pytest.raises(ImproperlyConfigured) as caught,
    ):
        UserRateThrottle()
    assert "django_slidinglimit.throttling.UserRateThrottle" in str(caught.value)
    assert "'user'" in str(caught.value)
    assert "100/min" in str(caught.value)


@pytest.mark.parametrize(
    ("rate", "numbers"),
    [("3/sec", (3, 1)), ("10/5m", (10, 300)), ("1000/day", (1000, 86_400)), ("0/min", (0, 60))],
)
def test_rates_are_parsed_to_a_number_and_seconds(rate: str, numbers: tuple[int, int]) -> None:
    throttle = type("Some", (UserRateThrottle,), {"rate": rate})()
    assert (throttle.num_requests, throttle.duration) == numbers
    assert isinstance(throttle.duration, int)


def test_rate_of_zero_refuses_everything() -> None:
    assert ask(view_of(type("Never", (UserRateThrottle,), {"rate": "0/min"}))) == [429]


def test_class_without_scope_is_a_place_by_its_path() -> None:
    class Bare(SimpleRateThrottle):
        rate = "2/min"

        def get_cache_key(self, request: Any, view: Any) -> str:
            return "everybody"

    [(name, _)] = counted(call(view_of(Bare)))
    assert name == f"{__name__}.{Bare.__qualname__}"


# Extension points


def limit_of(throttle: type, **kwargs: Any) -> str:
    """The policy that a response tells of, such as "5;w=60"."""
    response = call(view_of(throttle), **kwargs)
    return str(response["RateLimit-Policy"].partition(";q=")[2])


def test_get_rate_can_be_overridden() -> None:
    class Own(UserRateThrottle):
        def get_rate(self) -> str:
            return "11/h"

    assert limit_of(Own) == "11;w=3600"


@pytest.mark.parametrize(
    ("numbers", "policy"), [((4, 15), "4;w=15"), ((4.0, 2.5), "4;w=3"), ((3.5, 60), "4;w=60")]
)
def test_two_numbers_of_an_overridden_parse_rate_are_used(
    numbers: tuple[float, float], policy: str
) -> None:
    class Own(UserRateThrottle):
        rate = "four in a quarter"

        def parse_rate(self, rate: str | None) -> tuple[float, float]:
            assert rate == self.rate
            return numbers

    assert limit_of(Own) == policy


@pytest.mark.parametrize(
    "numbers", [(None, None), (5, None), (5, 0), (-1, 60), (math.inf, 60), (5, "60"), (10**16, 60)]
)
def test_numbers_that_make_no_rate_are_an_error(numbers: tuple[Any, Any]) -> None:
    class Own(UserRateThrottle):
        rate = "5/min"

        def parse_rate(self, rate: str | None) -> tuple[Any, Any]:
            return numbers

    with pytest.raises(ImproperlyConfigured, match=r"Own, scope 'user'"):
        call(view_of(Own))


def test_numbers_set_before_super_is_asked_are_used() -> None:
    class ByPlan(UserRateThrottle):
        rate = "5/min"

        def allow_request(self, request: Any, view: Any) -> bool:
            if request.user == ALICE:
                self.num_requests, self.duration = 500, 30
            return super().allow_request(request, view)

    assert limit_of(ByPlan, user=ALICE) == "500;w=30"
    assert limit_of(ByPlan, user=BOB) == "5;w=60"


def test_several_rates_in_one_throttle_are_decided_together(redis_client: Redis) -> None:
    class Rates(UserRateThrottle):
        rate = "5/min"

        def allow_request(self, request: Any, view: Any) -> bool:
            for self.rate in ("5/min", "3/hour", "100/day"):
                self.num_requests, self.duration = self.parse_rate(self.rate)
                if not super().allow_request(request, view):
                    return False
            return True

    assert commands(redis_client, lambda: call(view_of(Rates))) == 1
    assert ask(view_of(Rates), 3) == [200, 200, 429]
    connections.store().forget_refusals()
    assert commands(redis_client, lambda: call(view_of(Rates))) == 1
    connections.store().forget_refusals()
    remaining = counted(call(view_of(Rates)))
    assert remaining == [("user", "2"), ("user-2", "0"), ("user-3", "97")]


def test_key_of_ones_own_says_who_is_counted() -> None:
    class ByTenant(UserRateThrottle):
        rate = "1/min"

        def get_cache_key(self, request: Any, view: Any) -> str:
            return f"tenant-{request.META['HTTP_TENANT']}"

    view = view_of(ByTenant)
    assert ask(view, 2, HTTP_TENANT="a") == [200, 429]
    assert ask(view, HTTP_TENANT="b") == [200]
    assert ask(view, HTTP_TENANT="a", user=ALICE) == [429]


def test_long_key_is_counted_whole() -> None:
    class ByTenant(UserRateThrottle):
        rate = "1/min"

        def get_cache_key(self, request: Any, view: Any) -> str:
            return "x" * 5000 + str(request.META["HTTP_TENANT"])

    view = view_of(ByTenant)
    assert [*ask(view, HTTP_TENANT="a"), *ask(view, HTTP_TENANT="b")] == [200, 200]
    assert ask(view, HTTP_TENANT="a") == [429]


def test_empty_key_is_no_client_and_no_exemption() -> None:
    class ByTenant(UserRateThrottle):
        rate = "1/min"

        def get_cache_key(self, request: Any, view: Any) -> str:
            return ""

    assert ask(view_of(ByTenant), 2) == [200, 429]


def test_key_of_super_counts_its_client() -> None:
    assert ask(view_of(ButStaff), 3, user=ALICE) == [200] * 3
    assert ask(view_of(Burst), user=ALICE) == [429]


def test_key_of_none_exempts() -> None:
    class Silent(ButStaff):
        def throttle_success(self) -> bool:
            pytest.fail("The request was not counted.")

    staff = User(pk=44, is_staff=True)
    responses = [call(view_of(Silent), user=staff) for _ in range(5)]
    assert [response.status_code for response in responses] == [200] * 5
    assert counted(responses[-1]) == []


def test_get_ident_can_be_overridden() -> None:
    class ByAgent(Burst):
        def get_ident(self, request: Any) -> str:
            return str(request.META["HTTP_USER_AGENT"])

    view = view_of(ByAgent)
    assert ask(view, 4, HTTP_USER_AGENT="a")[-1] == 429
    assert ask(view, HTTP_USER_AGENT="b") == [200]
    assert ByAgent().get_cache_key(drf_request(HTTP_USER_AGENT="a"), {}) == "throttle_burst_a"


def test_cache_format_says_who_is_counted_together() -> None:
    class Everybody(UserRateThrottle):
        rate = "2/min"
        cache_format = "all-%(scope)s"

    assert Everybody().get_cache_key(drf_request(ALICE), {}) == "all-user"
    view = view_of(Everybody)
    assert [*ask(view, user=ALICE), *ask(view, user=BOB), *ask(view)] == [200, 200, 429]


def test_scope_attr_names_the_views_attribute() -> None:
    class Other(Scoped):
        scope_attr = "quota"

    view = view_of(Other, quota="upload", throttle_scope="search")
    assert call(view)["X-RateLimit-Limit"] == "2"


def test_success_and_failure_are_called_once_and_their_answers_stand() -> None:
    called: list[str] = []

    class Contrary(Burst):
        def throttle_success(self) -> bool:
            assert super().throttle_success()
            called.append("success")
            return len(called) != 2

        def throttle_failure(self) -> bool:
            assert not super().throttle_failure()
            called.append("failure")
            return True

    assert ask(view_of(Contrary), 5) == [200, 429, 200, 200, 200]
    assert called == ["success"] * 3 + ["failure"] * 2


def test_own_refusal_of_a_throttle_tells_no_wait() -> None:
    class Contrary(Burst):
        def throttle_success(self) -> bool:
            return False

    response = call(view_of(Contrary))
    assert response.status_code == 429
    assert "Retry-After" not in response


def test_overridden_allow_request_can_let_pass_without_counting() -> None:
    class Reading(Burst):
        def allow_request(self, request: Any, view: Any) -> bool:
            return request.method == "GET" or super().allow_request(request, view)

    view = view_of(Reading)
    assert ask(view, 9) == [200] * 9
    assert ask(view, 4, method="POST") == [200, 200, 200, 429]


def test_throttle_within_a_throttle_is_decided_with_the_others(redis_client: Redis) -> None:
    class Both(SimpleRateThrottle):
        rate = "1/min"

        def allow_request(self, request: Any, view: Any) -> bool:
            self.parts = [Burst(), Sustained()]
            answers = [part.allow_request(request, view) for part in self.parts]
            return all(answers)

        def wait(self) -> float | None:
            return max((wait for part in self.parts if (wait := part.wait())), default=None)

    responses = [call(view_of(Both)) for _ in range(4)]
    assert [response.status_code for response in responses] == [200, 200, 200, 429]
    assert responses[-1]["Retry-After"]
    connections.store().forget_refusals()
    assert commands(redis_client, lambda: call(view_of(Both))) == 1


def test_decision_says_what_was_decided() -> None:
    seen: list[tuple[bool, list[int]]] = []

    class Telling(Burst):
        def allow_request(self, request: Any, view: Any) -> bool:
            allowed = super().allow_request(request, view)
            seen.append((allowed, [a.verdict.remaining for a in self.decision.answers]))
            return allowed

    ask(view_of(Telling))
    # First the twin, which only says what it would ask.
    assert seen == [(True, []), (True, [2])]


def test_views_own_throttled_is_called() -> None:
    def throttled(self: APIView, request: Request, wait: float) -> None:
        raise PermissionDenied(f"in {math.ceil(wait)}")

    view = view_of(Burst, throttled=throttled)
    assert ask(view, 4)[-1] == 403


# The system check


def told(throttle: type) -> list[str]:
    found = [m for m in check_throttles(None) if m.obj is throttle]
    assert {m.level for m in found} <= {checks.WARNING}
    assert all(m.hint for m in found)
    return [m.msg for m in found]


@pytest.mark.parametrize("name", ["timer", "cache", "history"])
def test_check_tells_of_attributes_without_meaning(name: str) -> None:
    wrong = type("Wrong", (Burst,), {name: None})
    [message] = told(wrong)
    assert f"Wrong sets `{name}`" in message


def test_check_tells_of_what_a_mixin_sets_and_only_of_the_class_that_brings_it_in() -> None:
    mixin = type("Mixin", (), {"timer": None})
    wrong = type("Wrong", (mixin, Burst), {})
    heir = type("Heir", (wrong,), {})
    assert len(told(wrong)) == 1
    assert told(heir) == []


def test_check_is_silent_about_our_own_and_ordinary_throttles() -> None:
    for throttle in (SimpleRateThrottle, AnonRateThrottle, RuleThrottle, Burst, Scoped):
        assert told(throttle) == []


def test_check_imports_views_and_default_throttles_first(tmp_path: Path) -> None:
    """In a process of its own: classes that it leaves would be warned of in other tests."""
    (tmp_path / "site_throttles.py").write_text(
        "from django_slidinglimit.throttling import UserRateThrottle\n"
        "class Default(UserRateThrottle):\n    cache = None\n"
    )
    (tmp_path / "site_urls.py").write_text(
        "from django_slidinglimit.throttling import UserRateThrottle\n"
        "class Local(UserRateThrottle):\n    timer = None\n"
        "urlpatterns = []\n"
    )
    (tmp_path / "site_settings.py").write_text(
        "from tests.settings import *\n"
        'ROOT_URLCONF = "site_urls"\n'
        'REST_FRAMEWORK = {"DEFAULT_THROTTLE_CLASSES": ["site_throttles.Default"]}\n'
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1])])
    told = subprocess.run(
        [sys.executable, "-m", "django", "check"],
        env={**os.environ, "PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "site_settings"},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert "site_throttles.Default sets `cache`" in told
    assert "site_urls.Local sets `timer`" in told


def test_check_does_without_views(settings: Settings) -> None:
    del settings.ROOT_URLCONF
    assert told(Burst) == []
