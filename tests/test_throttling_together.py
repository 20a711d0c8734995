from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import connections as databases
from django.utils.decorators import method_decorator
from rest_framework.exceptions import PermissionDenied
from rest_framework.response import Response
from rest_framework.test import APIClient, APIRequestFactory

from django_slidinglimit import connections, limiter
from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.models import Rule
from django_slidinglimit.throttling import (
    AnonRateThrottle,
    RuleThrottle,
    SimpleRateThrottle,
    UserRateThrottle,
)

from .throttled_api import (
    ALICE,
    Anonymous,
    Answers,
    Burst,
    ButStaff,
    Four,
    Limited,
    Scoped,
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
    from pytest_django import Settings
    from redis import Redis
    from rest_framework.request import Request

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.throttled_api")]


@pytest.fixture(autouse=True)
def patient(settings: Settings) -> None:
    """A machine under load is slow, and a limit would let through what it cannot count in time."""
    settings.SLIDINGLIMIT = settings.SLIDINGLIMIT | {"TIMEOUT": 5}


# Decided together


def test_four_throttles_cost_one_deciding_command(redis_client: Redis) -> None:
    view = Four.as_view()
    assert commands(redis_client, lambda: ask(view)) == 1
    assert counted(call(view)) == [
        ("burst", "1"),
        ("sustained", "98"),
        ("anon", "48"),
        ("search", "28"),
    ]


def test_refusal_of_one_charges_none(redis_client: Redis) -> None:
    view = Four.as_view()
    ask(view, 3)
    assert 1 <= commands(redis_client, lambda: ask(view, 5)) < 5  # the first is remembered
    assert ask(view) == [429]
    connections.store().forget_refusals()
    assert counted(call(view)) == [
        ("burst", "0"),
        ("sustained", "97"),
        ("anon", "47"),
        ("search", "27"),
    ]


def test_throttles_that_limit_nothing_cost_no_trip(redis_client: Redis) -> None:
    view = view_of(AnonRateThrottle, UserRateThrottle, RuleThrottle)
    assert commands(redis_client, lambda: ask(view)) == 0


def test_one_scope_with_several_windows_counts_each() -> None:
    minute = type("Minute", (UserRateThrottle,), {"scope": "s", "rate": "3/min"})
    hour = type("Hour", (UserRateThrottle,), {"scope": "s", "rate": "5/h"})
    assert counted(call(view_of(minute, hour))) == [("s", "2"), ("s-2", "4")]


def test_one_scope_twice_in_one_window_counts_once_and_checks_both() -> None:
    three = type("Three", (UserRateThrottle,), {"scope": "s", "rate": "3/min"})
    six = type("Six", (UserRateThrottle,), {"scope": "s", "rate": "6/min"})
    assert counted(call(view_of(three, six, three))) == [("s", "2"), ("s-2", "5")]
    assert ask(view_of(six, three), 3) == [200, 200, 429]


def test_same_scope_of_anonymous_and_user_throttle_is_counted_apart() -> None:
    anonymous = type("Anon", (AnonRateThrottle,), {"scope": "s", "rate": "1/min"})
    user = type("User", (UserRateThrottle,), {"scope": "s", "rate": "1/min"})
    assert ask(view_of(anonymous)) == [200]
    assert ask(view_of(user), 2) == [200, 429]


def test_fifty_threads_at_once_are_admitted_exactly_to_the_limit() -> None:
    view, codes, start = Four.as_view(), [], threading.Barrier(50)

    def work() -> None:
        start.wait()
        try:
            codes.append(call(view).status_code)
        finally:
            databases.close_all()

    threads = [threading.Thread(target=work) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200] * 3 + [429] * 47
    connections.store().forget_refusals()
    assert dict(counted(call(view)))["sustained"] == "97"


def test_error_of_a_throttle_surfaces_and_nothing_is_charged() -> None:
    class Broken(UserRateThrottle):
        rate = "5/min"

        def get_cache_key(self, request: Any, view: Any) -> str:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        call(view_of(Burst, Broken))
    assert counted(call(view_of(Burst))) == [("burst", "2")]


def test_drf_error_of_a_throttle_is_the_response() -> None:
    class Strict(Burst):
        def get_cache_key(self, request: Any, view: Any) -> str:
            raise PermissionDenied

    assert ask(view_of(Burst, Strict)) == [403]


class Changing(Answers):
    """Its throttles are others when they are asked for again."""

    now: tuple[type, ...] = ()
    then: tuple[type, ...] = ()

    def get_throttles(self) -> Any:
        throttles, self.now = self.now, self.then
        return [throttle() for throttle in throttles]


@pytest.mark.parametrize("twins", [(Sustained,), (Burst,), (Anonymous,), ()])
def test_list_that_changes_is_decided_in_turn(twins: tuple[type, ...]) -> None:
    view = Changing.as_view(now=(Sustained, Burst), then=twins)
    responses = [call(view, user=ALICE) for _ in range(5)]
    assert [response.status_code for response in responses] == [200] * 3 + [429] * 2
    assert dict(counted(responses[-1])) == {"sustained": "97", "burst": "0"}
    assert counted(call(view_of(Sustained), user=ALICE)) == [("sustained", "96")]


def test_throttle_that_is_asked_after_a_refusal_charges_nothing() -> None:
    day = type("Day", (UserRateThrottle,), {"scope": "day", "rate": "3/day"})
    view = Changing.as_view(now=(Burst, Sustained, day), then=(Burst,))
    responses = [call(view) for _ in range(5)]
    assert [response.status_code for response in responses] == [200] * 3 + [429] * 2
    assert dict(counted(responses[-1])) == {"burst": "0", "sustained": "97", "day": "0"}
    # Its wait is told all the same: a third of the day must slide out.
    assert int(responses[-1]["Retry-After"]) >= 86_400 // 3


def test_view_that_hands_out_the_same_throttles_each_time_counts_once() -> None:
    class Keeping(Answers):
        def get_throttles(self) -> Any:
            self.kept = getattr(self, "kept", [Burst(), Sustained()])
            return self.kept

    assert counted(call(Keeping.as_view())) == [("burst", "2"), ("sustained", "99")]


def test_asking_the_same_view_again_counts_once() -> None:
    class Twice(Answers):
        throttle_classes = [Burst]  # noqa: RUF012

        def get(self, request: Request, answer: str = "") -> Response:
            self.check_throttles(request)
            return Response()

    assert counted(call(Twice.as_view())) == [("burst", "2")]


def test_view_called_within_a_view_counts_for_itself() -> None:
    class Outer(Answers):
        throttle_classes = [Burst]  # noqa: RUF012

        def get(self, request: Request, answer: str = "") -> Response:
            inner: Response = view_of(Sustained)(request._request)
            return Response({"inner": counted(inner)})

    response = call(Outer.as_view())
    assert counted(response) == [("burst", "2")]
    assert response.data["inner"] == [("sustained", "99")]


def test_refusal_gives_back_what_an_outer_walk_counted() -> None:
    def wrapped(request: Any) -> Response:
        with limiter.walk(request):
            limiter.check(request, "outer", rate="100/min", key="ip")
            return Limited.as_view()(request)

    assert ask(wrapped, 6) == [200] * 3 + [429] * 3
    left = limiter.peek(APIRequestFactory().get("/"), "outer", rate="100/min", key="ip")
    assert left.answers[0].verdict.remaining == 97


def test_throttle_that_is_asked_without_a_view_joins_the_walk_that_is_open() -> None:
    request = drf_request()
    with limiter.walk(request) as walk:
        answers = [Burst().allow_request(request, {}) for _ in range(5)]
    assert answers == [True] * 5
    assert [answer.charged for answer in walk.decision.answers] == [1]


def test_throttle_joins_the_walk_that_is_open() -> None:
    seen: list[str] = []

    def wrapped(request: Any) -> Response:
        with limiter.walk(request) as walk:
            response: Response = Limited.as_view()(request)
            seen.extend(a.hit.rule.name for a in walk.decision.answers)
            return response

    ask(wrapped)
    assert seen == ["burst"]


# Headers


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/limited/", "get", 200),
        ("/limited/bad/", "get", 400),
        ("/limited/missing/", "get", 404),
        ("/limited/", "delete", 405),
        ("/limited/", "options", 200),
    ],
)
def test_every_response_tells_of_the_limit(path: str, method: str, status: int) -> None:
    response = getattr(APIClient(), method)(path)
    assert response.status_code == status
    assert response["X-RateLimit-Limit"] == "3"
    assert response["X-RateLimit-Remaining"] == "2"
    assert response["RateLimit-Policy"] == '"burst";q=3;w=60'
    assert response["RateLimit"].startswith('"burst";r=2;t=')
    assert "Retry-After" not in response
    assert "Cache-Control" not in response


def test_refusal_tells_of_the_limit_and_is_not_to_be_stored() -> None:
    client = APIClient()
    for _ in range(3):
        client.get("/limited/")
    response = client.get("/limited/")
    assert response["X-RateLimit-Remaining"] == "0"
    assert response["Cache-Control"] == "no-store"
    assert f";t={response['Retry-After']}" in response["RateLimit"]


def test_response_before_throttling_tells_nothing() -> None:
    class Closed(Answers):
        throttle_classes = [Burst]  # noqa: RUF012

        def check_permissions(self, request: Request) -> None:
            raise PermissionDenied

    response = call(Closed.as_view())
    assert response.status_code == 403
    assert "X-RateLimit-Limit" not in response


def test_families_of_headers_are_a_setting(settings: Settings) -> None:
    settings.SLIDINGLIMIT = settings.SLIDINGLIMIT | {"HEADERS": []}
    assert "RateLimit" not in call(Limited.as_view())


def test_headers_tell_of_what_is_decided_within_the_view() -> None:
    class Costly(Limited):
        def get(self, request: Request, answer: str = "") -> Response:
            if not limiter.check(request, "cost", key="ip", rate="1/min").allowed:
                return Response(status=402)
            return Response()

    view = Costly.as_view()
    assert counted(call(view)) == [("burst", "2"), ("cost", "0")]
    refused = call(view)
    assert refused.status_code == 402
    assert counted(refused) == [("burst", "2"), ("cost", "0")]  # burst was given back


def test_decorated_handler_refuses_for_the_throttles_too() -> None:
    class Decorated(Limited):
        @method_decorator(ratelimit("handler", key="ip", rate="1/min"))
        def get(self, request: Request, answer: str = "") -> Response:
            return Response()

    view = Decorated.as_view()
    assert counted(call(view)) == [("burst", "2"), ("handler", "0")]
    refused = call(view)
    assert refused.status_code == 429
    assert counted(refused) == [("burst", "2"), ("handler", "0")]
    assert refused["X-RateLimit-Remaining"] == "0"
    assert refused["Retry-After"]
    assert counted(call(view_of(Burst))) == [("burst", "1")]


def test_decorator_around_a_view_tells_of_both() -> None:
    view = ratelimit("around", key="ip", rate="100/min")(Limited.as_view())
    responses = [call(view) for _ in range(4)]
    assert [response.status_code for response in responses] == [200, 200, 200, 429]
    assert counted(responses[0]) == [("around", "99"), ("burst", "2")]
    assert counted(responses[3]) == [("around", "97"), ("burst", "0")]


# Rules of the database


def test_rule_replaces_the_codes_rate() -> None:
    rule("burst", "1/min", name="less")
    view = Limited.as_view()
    assert ask(view, 2) == [200, 429]
    Rule.objects.update(rate="9/min")
    assert counted(call(view)) == [("less", "7")]


def test_rule_sets_a_limit_where_the_code_declares_none() -> None:
    view = view_of(Scoped, throttle_scope="later")
    assert ask(view, 3) == [200, 200, 200]
    rule("later", "1/min")
    assert ask(view, 2) == [200, 429]


def test_rule_of_the_same_key_replaces_and_one_of_another_key_adds() -> None:
    rule("burst", "5/min", name="same", key="user_or_ip")
    rule("burst", "9/min", name="other", key="ip")
    assert sorted(counted(call(Limited.as_view(), user=ALICE))) == [("other", "8"), ("same", "4")]


def test_rule_of_another_key_leaves_the_codes_rate() -> None:
    rule("burst", "9/min", name="other", key="global")
    assert sorted(counted(call(Limited.as_view()))) == [("burst", "2"), ("other", "8")]


def test_rule_of_key_ip_replaces_the_anonymous_throttles_rate() -> None:
    throttle = type("Few", (AnonRateThrottle,), {"rate": "1/min"})
    rule("anon", "9/min", name="more", key="ip")
    assert counted(call(view_of(throttle))) == [("more", "8")]


def test_observing_rule_counts_beside_the_codes_rate_and_refuses_nothing() -> None:
    rule("burst", "0/min", mode="observe")
    view = Limited.as_view()
    assert ask(view, 4) == [200, 200, 200, 429]
    assert counted(call(view)) == [("burst", "0")]


def test_rule_that_is_off_is_as_if_absent() -> None:
    rule("burst", "0/min", mode="off")
    assert counted(call(Limited.as_view())) == [("burst", "2")]


def test_methods_outside_the_rule_keep_the_codes_rate() -> None:
    rule("burst", "1/min", name="posts", methods="POST")
    view = Limited.as_view()
    assert counted(call(view)) == [("burst", "2")]
    assert counted(call(view, method="POST")) == [("posts", "0")]
    assert ask(view, method="POST") == [429]
    assert ask(view) == [200]


def test_several_rules_must_all_admit() -> None:
    rule("burst", "9/min", name="a")
    rule("burst", "2/hour", name="b")
    view = Limited.as_view()
    assert counted(call(view)) == [("a", "8"), ("b", "1")]
    assert ask(view, 2) == [200, 429]


@pytest.mark.parametrize("key", ["", "user_or_ip"])
def test_key_of_none_exempts_from_the_replacement(key: str) -> None:
    rule("burst", "1/min", key=key)
    assert ask(view_of(ButStaff), 2, user=ALICE) == [200, 429]
    assert ask(view_of(ButStaff), 9, user=User(pk=44, is_staff=True)) == [200] * 9


def test_key_of_none_does_not_exempt_from_a_rule_of_another_key() -> None:
    rule("burst", "1/min", key="global")
    assert ask(view_of(ButStaff), 2, user=User(pk=44, is_staff=True)) == [200, 429]


@pytest.mark.parametrize(("key", "names"), [("", ["rule"]), ("user_or_ip", ["rule", "burst"])])
def test_key_of_ones_own_is_replaced_by_a_rule_without_key_alone(
    key: str, names: list[str]
) -> None:
    class ByTenant(Burst):
        def get_cache_key(self, request: Any, view: Any) -> str:
            return "tenant"

    rule("burst", "9/min", key=key)
    assert [name for name, _ in counted(call(view_of(ByTenant)))] == names


def test_rule_says_what_happens_where_the_key_is_empty() -> None:
    class ByTenant(Burst):
        def get_cache_key(self, request: Any, view: Any) -> str:
            return ""

    class ByAgent(Burst):
        def get_ident(self, request: Any) -> str:
            return ""

    rule("burst", "9/min", no_identity="refuse")
    assert ask(view_of(ByTenant)) == ask(view_of(ByAgent)) == [429]


def test_class_without_scope_is_ruled_by_its_path() -> None:
    class Bare(SimpleRateThrottle):
        rate = "2/min"

        def get_cache_key(self, request: Any, view: Any) -> str:
            return "everybody"

    rule(f"{__name__}.{Bare.__qualname__}", "7/min")
    assert call(view_of(Bare))["X-RateLimit-Limit"] == "7"


def test_rule_that_refuses_those_without_identity_charges_none(redis_client: Redis) -> None:
    rule("later", "9/min", key="header:x-api-key", no_identity="refuse")
    view = view_of(Burst, Scoped, Sustained, throttle_scope="later")
    assert commands(redis_client, lambda: ask(view)) == 0
    response = call(view)
    assert response.status_code == 429
    assert "Retry-After" not in response
    assert counted(call(view, HTTP_X_API_KEY="secret")) == [
        ("burst", "2"),
        ("rule", "8"),
        ("sustained", "99"),
    ]


def test_rule_denies_when_redis_is_away(settings: Settings) -> None:
    rule("burst", "9/min", when_down="deny")
    settings.CACHES = {"default": settings.CACHES["default"] | {"LOCATION": "redis://127.0.0.1:1"}}
    response = call(view_of(Burst, Sustained))
    assert response.status_code == 429
    assert int(response["Retry-After"]) >= 1
    assert response["Cache-Control"] == "no-store"
    assert "X-RateLimit-Limit" not in response
    Rule.objects.update(when_down="allow")
    assert ask(view_of(Burst, Sustained), 9) == [200] * 9


# RuleThrottle


@pytest.mark.parametrize("pattern", ["rules/", "rules/*", "<str:place>/"])
def test_rule_throttle_applies_rules_of_paths(pattern: str) -> None:
    rule(path=pattern, rate="2/min")
    client = APIClient()
    assert [client.get("/rules/").status_code for _ in range(3)] == [200, 200, 429]


def test_rule_throttle_leaves_other_paths_and_methods_alone() -> None:
    rule(path="rules/bad/", rate="0/min")
    rule(path="rules/", rate="0/min", methods="POST")
    client = APIClient()
    assert client.get("/rules/").status_code == 200
    assert client.post("/rules/").status_code == 429
    assert client.get("/rules/bad/").status_code == 429


def test_rules_of_paths_do_not_bite_without_the_rule_throttle() -> None:
    rule(path="limited/", rate="0/min")
    assert APIClient().get("/limited/").status_code == 200


def test_rule_throttle_counts_users_and_else_addresses() -> None:
    rule(path="*", rate="1/min")
    view = view_of(RuleThrottle)
    assert ask(view, 2, user=ALICE) == [200, 429]
    assert ask(view, 2) == [200, 429]


def test_rule_throttle_counts_by_the_rules_key() -> None:
    rule(path="*", rate="1/min", key="header:x-api-key")
    view = view_of(RuleThrottle)
    assert ask(view, 2, HTTP_X_API_KEY="a") == [200, 429]
    assert ask(view, HTTP_X_API_KEY="b") == [200]


def test_rule_throttle_applies_rules_of_the_views_scope_if_it_is_declared(
    settings: Settings,
) -> None:
    rule("reports", "1/min")
    view = view_of(RuleThrottle, throttle_scope="reports")
    with pytest.raises(ImproperlyConfigured, match="no rate is declared for the scope 'reports'"):
        call(view)
    settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": {"reports": None}}
    assert ask(view, 2) == [200, 429]
    assert ask(view_of(RuleThrottle)) == [200]


def test_another_throttle_may_declare_the_scope_that_the_rule_throttle_applies() -> None:
    view = view_of(Scoped, RuleThrottle, throttle_scope="later")
    assert ask(view) == [200]
    rule("later", "1/min")
    assert ask(view, 2) == [200, 429]


@pytest.mark.parametrize("order", [1, -1])
def test_rule_throttle_leaves_a_scope_to_the_throttle_that_applies_it(order: int) -> None:
    class ByTenant(Scoped):
        def get_cache_key(self, request: Any, view: Any) -> str:
            return str(request.META["HTTP_TENANT"])

    rule("upload", "9/min", name="upload")
    rule(path="*", rate="90/min", name="path")
    view = view_of(*(ByTenant, RuleThrottle)[::order], throttle_scope="upload")
    responses = [call(view, HTTP_TENANT=tenant) for tenant in ("a", "a", "b")]
    assert [dict(counted(response)) for response in responses] == [
        {"upload": "8", "path": "89"},
        {"upload": "7", "path": "88"},
        {"upload": "8", "path": "87"},
    ]


def test_rule_throttle_costs_no_trip_of_its_own(redis_client: Redis) -> None:
    rule(path="*", rate="9/min")
    view = view_of(RuleThrottle, Burst, Sustained)
    assert commands(redis_client, lambda: ask(view)) == 1


def test_rate_of_a_rule_throttle_is_an_error_and_not_ignored() -> None:
    wrong = type("Wrong", (RuleThrottle,), {"rate": "5/min"})
    with pytest.raises(ImproperlyConfigured, match="Wrong"):
        call(view_of(wrong))


@pytest.mark.parametrize(("others", "times"), [((), 1), ((AnonRateThrottle,), 2)])
def test_a_lone_throttle_has_no_twin(others: tuple[Any, ...], times: int) -> None:
    asked = []

    class Noting(UserRateThrottle):
        rate = "5/min"

        def get_cache_key(self, request: Any, view: Any) -> str | None:
            asked.append(self)
            return super().get_cache_key(request, view)

    assert call(view_of(Noting, *others)).status_code == 200
    assert len({id(throttle) for throttle in asked}) == len(asked) == times
