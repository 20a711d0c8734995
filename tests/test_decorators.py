import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings
from pytest_django import DjangoAssertNumQueries
from redis import Redis

from django_slidinglimit import decorators, limiter
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.models import Rule

from . import decorator_views as views

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.decorator_views")]

# A decision must not be answered by the policy because the machine is busy.
PATIENT = {"RULES_POLL": 0, "TIMEOUT": 5}


@pytest.fixture(autouse=True)
def patient() -> Any:
    with override_settings(SLIDINGLIMIT=PATIENT):
        yield


def statuses(client: Client, path: str, times: int) -> list[int]:
    return [client.get(path).status_code for _ in range(times)]


def get(path: str = "/") -> HttpRequest:
    return RequestFactory().get(path)


def used(request: HttpRequest, scope: str, rate: str, **asked: Any) -> int:
    """What a request's client has used at a place."""
    (answer,) = limiter.peek(request, scope, rate=rate, **asked).answers
    return answer.verdict.limit - answer.verdict.remaining


def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return async_to_sync(main)()


class Deciding:
    """How many deciding commands a server gets in the meantime."""

    def __init__(self, redis_client: Redis) -> None:
        self._redis = redis_client
        self._before = self._count()

    def count(self) -> int:
        return self._count() - self._before

    def _count(self) -> int:
        stats: Any = self._redis.info("commandstats")
        names = ("cmdstat_evalsha", "cmdstat_eval")
        return sum(stats[name]["calls"] for name in names if name in stats)


# Counting


def test_admits_up_to_the_limit_and_answers_429_after_it(client: Client) -> None:
    assert statuses(client, "/plain/", 4) == [200, 200, 429, 429]


def test_headers_are_on_every_response(client: Client) -> None:
    first, _, refused = (client.get("/plain/") for _ in range(3))
    assert first["X-RateLimit-Limit"] == "2"
    assert first["X-RateLimit-Remaining"] == "1"
    assert first["RateLimit-Policy"] == '"plain";q=2;w=60'
    assert "Retry-After" not in first
    assert "Cache-Control" not in first
    assert refused["X-RateLimit-Remaining"] == "0"
    assert 1 <= int(refused["Retry-After"]) <= 90
    assert refused["Cache-Control"] == "no-store"


def test_the_headers_setting_is_obeyed(client: Client) -> None:
    with override_settings(SLIDINGLIMIT={**PATIENT, "HEADERS": ["ratelimit"]}):
        response = client.get("/plain/")
    assert "RateLimit" in response
    assert "X-RateLimit-Limit" not in response


def test_views_without_a_scope_never_share(client: Client) -> None:
    assert statuses(client, "/unnamed/", 2) == [200, 429]
    assert statuses(client, "/unnamed-too/", 2) == [200, 429]
    assert {f"tests.decorator_views.{name}" for name in ("unnamed", "unnamed_too")} <= (
        decorators.scopes
    )


def test_views_of_one_scope_share(client: Client) -> None:
    @ratelimit("plain", rate="2/min")
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    assert [view(get()).status_code for _ in range(2)] == [200, 200]
    assert client.get("/plain/").status_code == 429


def test_the_same_request_sent_twice_counts_twice() -> None:
    request = get()
    assert [views.plain(request).status_code for _ in range(3)] == [200, 200, 429]


def test_a_view_that_raises_is_counted_and_leaves_no_walk() -> None:
    request = get()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the view's own"):
            views.raises(request)
    assert limiter.walk_of(request) is None
    assert views.raises(request).status_code == 429


def test_no_walk_is_left_after_an_answer() -> None:
    request = get()
    views.plain(request)
    assert limiter.walk_of(request) is None


def test_options_is_not_counted(client: Client) -> None:
    Rule.objects.create(name="r", scope="options", rate="2/min", key="global")
    for _ in range(4):
        response = client.options("/options-free/")
        assert response.status_code == 200
        assert "RateLimit" not in response
    assert statuses(client, "/options-free/", 2) == [200, 429]


def test_options_is_counted_where_method_names_it(client: Client) -> None:
    assert client.options("/options-counted/").status_code == 200
    assert client.options("/options-counted/").status_code == 429
    assert client.get("/options-counted/").status_code == 429
    assert client.post("/options-counted/").status_code == 200


def test_only_the_methods_that_are_named_are_counted(client: Client) -> None:
    assert statuses(client, "/posts/", 3) == [200, 200, 200]
    assert client.post("/posts/").status_code == 200
    assert client.put("/posts/").status_code == 429
    assert client.get("/posts/").content == b"limited=False allowed=True"


def test_rate_and_cost_may_be_callables(client: Client) -> None:
    assert client.get("/callables/?rate=5/min&cost=3")["X-RateLimit-Remaining"] == "2"
    assert client.get("/callables/?rate=5/min&cost=3").status_code == 429
    assert client.get("/callables/?rate=5/min&cost=2")["X-RateLimit-Remaining"] == "0"
    assert client.get("/callables/?rate=9/min&cost=4")["X-RateLimit-Remaining"] == "0"


def test_a_rate_callable_may_return_a_rate_or_none() -> None:
    rates = iter([Rate(1, 60_000), None, Rate(1, 60_000)])
    view = ratelimit("x", rate=lambda group, request: next(rates))(views.told)
    assert [view(get()).status_code for _ in range(3)] == [200, 200, 429]


def test_callables_get_the_scope_and_the_request() -> None:
    seen = []

    def note(group: str, request: HttpRequest) -> int:
        seen.append((group, request))
        return 1

    request = get()
    ratelimit(group="grouped", rate="5/m", cost=note)(views.told)(request)
    assert seen == [("grouped", request)]


def test_callables_are_not_asked_about_methods_that_are_not_counted(client: Client) -> None:
    assert client.options("/callables/").status_code == 200  # its cost would be a KeyError


def test_a_callable_that_returns_rubbish_is_named(client: Client) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"ratelimit\('rubbish'\): 5 is not a rate"):
        client.get("/rubbish-rate/")
    with pytest.raises(ImproperlyConfigured, match=r"ratelimit\('rubbish'\): cost .* not '5'"):
        client.get("/rubbish-cost/")


@pytest.mark.parametrize("name", ["key", "rate", "cost"])
def test_a_callables_own_error_stays_its_own(name: str) -> None:
    def broken(group: str, request: HttpRequest) -> Any:
        raise ValueError("of the callable")

    asked: dict[str, Any] = {"rate": "5/m", name: broken}
    with pytest.raises(ValueError, match=r"^of the callable$"):
        ratelimit("x", **asked)(views.told)(get())


def test_a_key_by_dotted_path_is_imported_when_used(client: Client) -> None:
    assert client.get("/own-key/?who=a").status_code == 200
    assert client.get("/own-key/?who=b").status_code == 200
    assert client.get("/own-key/?who=a").status_code == 429
    absent = ratelimit("x", key="tests.decorator_views.absent", rate="1/m")(views.told)
    with pytest.raises(ImproperlyConfigured, match=r"tests\.decorator_views\.absent"):
        absent(get())


def test_a_registered_key_is_imported_when_used() -> None:
    keys = {"who": "tests.decorator_views.key_of_project", "absent": "tests.absent.key"}
    with override_settings(SLIDINGLIMIT={**PATIENT, "KEYS": keys}):
        view = ratelimit("x", key="who", rate="1/m")(views.told)
        absent = ratelimit("x", key="absent", rate="1/m")(views.told)
        assert [view(get(f"/?who={who}")).status_code for who in "aba"] == [200, 200, 429]
        with pytest.raises(ImproperlyConfigured, match=r"tests\.absent"):
            absent(get())


def test_a_view_may_stream(client: Client) -> None:
    response = client.get("/streamed/")
    assert response.getvalue() == b"ab"
    assert response["X-RateLimit-Remaining"] == "0"
    assert client.get("/streamed/").status_code == 429


def test_a_view_that_returns_no_response_is_left_to_django(client: Client) -> None:
    assert ratelimit("x", rate="5/m")(lambda request: None)(get()) is None


# What rules in the database do


def test_a_place_without_a_rate_has_no_limit_until_a_rule(
    client: Client, redis_client: Redis
) -> None:
    deciding = Deciding(redis_client)
    assert statuses(client, "/until-a-rule/", 3) == [200, 200, 200]
    assert deciding.count() == 0
    Rule.objects.create(name="r", scope="until a rule", rate="1/min")
    assert statuses(client, "/until-a-rule/", 2) == [200, 429]


def test_a_rule_in_shadow_mode_does_not_show_in_limited(client: Client) -> None:
    Rule.objects.create(name="r", scope="until a rule", rate="1/min", mode="observe")
    for path in ("/until-a-rule/", "/soft-until-a-rule/"):
        for _ in range(2):
            assert client.get(path).content == b"limited=False allowed=True"


def test_a_rule_under_a_soft_decorator_shows_in_limited(client: Client) -> None:
    Rule.objects.create(name="r", scope="until a rule", rate="1/min")
    assert client.get("/soft-until-a-rule/").content == b"limited=False allowed=True"
    assert client.get("/soft-until-a-rule/").content == b"limited=True allowed=True"


def test_when_redis_is_away_code_lets_through_and_a_rule_may_refuse(client: Client) -> None:
    nowhere = {**settings.CACHES["default"], "LOCATION": "unix:///nowhere/redis.sock"}
    with override_settings(CACHES={"default": nowhere}):
        passed = statuses(client, "/plain/", 3)
        Rule.objects.create(name="r", scope="plain", rate="9/min", when_down="deny")
        refused = client.get("/plain/")
    assert passed == [200, 200, 200]
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) >= 1


# block=False


@pytest.mark.parametrize("path", ["soft-over-hard", "soft-apart-from-hard", "in-a-list"])
def test_soft_3_over_hard_10_admits_10_of_50(client: Client, path: str) -> None:
    responses = [client.get(f"/{path}/") for _ in range(50)]
    assert [r.status_code for r in responses] == [200] * 10 + [429] * 40
    limited = [r.content.startswith(b"limited=True") for r in responses[:10]]
    assert limited == [False] * 3 + [True] * 7
    assert all(r["RateLimit-Policy"] == '"hard";q=10;w=60' for r in responses)
    assert used(get(), "soft", "3/min") == 3
    assert used(get(), "hard", "10/min") == 10


def test_a_soft_limit_alone_never_refuses(client: Client) -> None:
    view = ratelimit("x", rate="0/min", block=False)(views.told)
    responses = [view(get()) for _ in range(3)]
    assert {r.content for r in responses} == {b"limited=True allowed=True"}
    assert "Retry-After" not in responses[0]


def test_a_soft_limit_is_not_charged_by_a_request_that_a_later_limit_refuses() -> None:
    refusing = views.soft(views.foreign(ratelimit("none", rate="0/min")(views.told)))
    assert refusing(get()).status_code == 429
    assert used(get(), "soft", "3/min") == 0


# Several at once


def test_adjacent_decorators_cost_one_deciding_command(client: Client, redis_client: Redis) -> None:
    client.get("/four/")  # loads the script
    deciding = Deciding(redis_client)
    response = client.get("/four/")
    assert deciding.count() == 1
    assert response["RateLimit-Policy"].count(";w=") == 4


def test_when_one_of_them_refuses_none_is_charged(client: Client, redis_client: Redis) -> None:
    statuses(client, "/four/", 2)
    deciding = Deciding(redis_client)
    assert statuses(client, "/four/", 7) == [429] * 7
    assert 1 <= deciding.count() < 7  # the first is remembered
    assert used(get(), "burst", "5/day") == 2
    assert used(get(), "ip", "50/min", key="ip") == 2


def test_a_list_for_method_decorator_costs_one_deciding_command(
    client: Client, redis_client: Redis
) -> None:
    client.get("/in-a-list/")
    deciding = Deciding(redis_client)
    client.get("/in-a-list/")
    assert deciding.count() == 1


def test_a_foreign_decorator_between_is_not_passed_over(client: Client) -> None:
    seen = []

    def notes(view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def between(request: HttpRequest) -> Any:
            seen.append(request)
            return view(request)

        return between

    inner = ratelimit("inner", rate="9/m")(views.told)
    request = get()
    ratelimit("outer", rate="9/m")(notes(inner))(request)
    assert seen == [request]
    assert used(request, "inner", "9/m") == 1
    assert used(request, "outer", "9/m") == 1


def test_decorators_apart_ask_in_turn_and_give_back(client: Client) -> None:
    assert statuses(client, "/many-apart-from-few/", 5) == [200, 200, 429, 429, 429]
    assert used(get(), "many", "9/day") == 2
    response = client.get("/many-apart-from-few/")
    assert response["RateLimit-Policy"] == '"many";q=9;w=86400, "few";q=2;w=60'


def test_a_middleware_that_asks_first_does_not_count_twice(client: Client) -> None:
    middleware = "tests.decorator_views.ChecksFirst"
    with override_settings(MIDDLEWARE=[middleware]):
        assert statuses(client, "/checked/", 6) == [200] * 4 + [429] * 2


# The refusal


@pytest.mark.parametrize("path", ["/nothing/", "/dear/"])
def test_a_request_that_can_never_be_admitted_is_not_told_to_wait(
    client: Client, path: str
) -> None:
    response = client.get(path)
    assert response.status_code == 429
    assert "Retry-After" not in response


def test_the_answer_and_the_header_tell_the_same_wait(client: Client) -> None:
    statuses(client, "/plain/", 2)
    response = client.get("/plain/", headers={"accept": "application/json"})
    assert response.json()["retry_after"] == int(response["Retry-After"]) >= 1


def test_a_refused_request_does_not_reach_the_view(client: Client) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        raise AssertionError("reached")

    assert ratelimit("x", rate="0/m")(view)(get()).status_code == 429


# The request


def test_the_first_argument_must_be_a_request(client: Client) -> None:
    with pytest.raises(TypeError, match=r"called with Misused .*@method_decorator"):
        client.get("/misused/")


def test_the_request_holds_the_decision(client: Client) -> None:
    request = get()
    views.plain(request)
    assert [a.verdict.remaining for a in request.ratelimit.answers] == [1]  # type: ignore[attr-defined]
    views.plain(request)
    views.plain(request)
    assert (request.limited, request.ratelimit.allowed) == (True, False)  # type: ignore[attr-defined]


def test_limited_is_of_this_walk_alone() -> None:
    request = get()
    nothing = ratelimit("x", rate="0/m", block=False)(views.told)
    assert nothing(request).content == b"limited=True allowed=True"
    assert views.plain(request).content == b"limited=False allowed=True"


def test_attributes_of_the_view_survive() -> None:
    assert views.exempt.csrf_exempt  # type: ignore[attr-defined]
    assert views.plain.__name__ == "plain"
    assert Client(enforce_csrf_checks=True).post("/exempt/").status_code == 200


# Classes


def test_method_decorator_limits_one_method(client: Client) -> None:
    assert statuses(client, "/on-method/1/", 3) == [200, 200, 429]
    assert client.post("/on-method/1/").status_code == 200


def test_a_class_that_inherits_a_limited_dispatch_has_a_limit_of_its_own(client: Client) -> None:
    assert statuses(client, "/parent/", 2) == [200, 429]
    assert statuses(client, "/child/", 2) == [200, 429]
    assert {f"tests.decorator_views.{name}.dispatch" for name in ("Parent", "Child")} <= (
        decorators.scopes
    )


def test_classes_decorated_in_urls_have_limits_of_their_own(client: Client) -> None:
    assert statuses(client, "/class/", 2) == [200, 429]
    assert statuses(client, "/class-too/", 2) == [200, 429]


# Coroutines


def test_an_async_view_stays_a_coroutine_function() -> None:
    assert iscoroutinefunction(views.async_view)
    assert iscoroutinefunction(views.async_soft_over_hard)
    assert not iscoroutinefunction(views.plain)


@pytest.mark.parametrize(
    "path", ["async-class", "async-class-between", "async-method", "async-class-in-urls"]
)
def test_async_views_are_limited_under_asgi_and_wsgi(client: Client, path: str) -> None:
    async def main() -> list[Any]:
        asynchronous = AsyncClient()
        return [await asynchronous.get(f"/{path}/") for _ in range(2)]

    admitted = run(main)
    assert [r.status_code for r in admitted] == [200, 200]
    assert admitted[1]["X-RateLimit-Remaining"] == "0"
    assert admitted[1].content == b"limited=False allowed=True"
    refused = client.get(f"/{path}/")
    assert refused.status_code == 429
    assert "Try again" in refused.content.decode()


def test_a_plain_decorator_may_answer_for_an_async_class(client: Client) -> None:
    response = client.get("/async-class-answered/")
    assert response.content == b"instead"
    assert response["X-RateLimit-Remaining"] == "0"
    assert client.get("/async-class-answered/").status_code == 429


def test_async_soft_3_over_hard_10_admits_10_of_50() -> None:
    async def main() -> list[Any]:
        client = AsyncClient()
        return [await client.get("/async-soft-over-hard/") for _ in range(50)]

    responses = run(main)
    assert [r.status_code for r in responses] == [200] * 10 + [429] * 40
    limited = [r.content.startswith(b"limited=True") for r in responses[:10]]
    assert limited == [False] * 3 + [True] * 7


def test_an_async_view_that_raises_is_counted_and_leaves_no_walk() -> None:
    request = get()

    async def main() -> int:
        with pytest.raises(RuntimeError, match="the view's own"):
            await views.async_raises(request)
        assert limiter.walk_of(request) is None
        return (await views.async_raises(request)).status_code

    assert run(main) == 429


def test_an_async_view_may_be_limited_by_user() -> None:
    """The key loads the user from the database, which the event loop may not."""
    user = User.objects.create_user("someone")

    async def main() -> list[int]:
        client = AsyncClient()
        await client.aforce_login(user)
        return [(await client.get("/async-user/")).status_code for _ in range(2)]

    assert run(main) == [200, 429]


@pytest.mark.django_db(transaction=True)
def test_of_100_concurrent_async_requests_exactly_5_are_admitted() -> None:
    application = get_asgi_application()  # each request has a thread of its own
    communicate: Any = ApplicationCommunicator

    async def ask() -> int:
        scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": "/async/"} | {
            "query_string": b"",
            "headers": [],
            "client": ["192.0.2.1", 1],
        }
        communicator: Any = communicate(application, scope)
        await communicator.send_input({"type": "http.request"})
        status = (await communicator.receive_output(timeout=30))["status"]
        await communicator.receive_output(timeout=30)
        await communicator.wait()
        return int(status)

    async def main() -> list[int]:
        return await asyncio.gather(*(ask() for _ in range(100)))

    with override_settings(SLIDINGLIMIT={"TIMEOUT": 5}):
        found = run(main)
    assert (found.count(200), found.count(429)) == (5, 95)


def test_100_concurrent_calls_of_an_async_view_admit_exactly_5() -> None:
    async def main() -> list[HttpResponse]:
        return await asyncio.gather(*(views.async_view(get()) for _ in range(100)))

    assert sorted(r.status_code for r in run(main)) == [200] * 5 + [429] * 95


# DRF


@pytest.mark.parametrize("path", ["/drf-inside/", "/drf-list/", "/drf-extra/"])
def test_a_drf_view_finds_the_decision_on_its_request_and_djangos(
    client: Client, path: str
) -> None:
    response = client.get(path)
    assert response.json() == {"limited": [False, False]}
    assert response["X-RateLimit-Remaining"] == "1"
    assert statuses(client, path, 2) == [200, 429]


def test_a_soft_limit_on_a_drf_view_tells_both_requests(client: Client) -> None:
    statuses(client, "/drf-soft/", 2)
    assert client.get("/drf-soft/").json() == {"limited": [True, True]}


def test_actions_of_a_view_set_have_limits_of_their_own(client: Client) -> None:
    assert statuses(client, "/drf-list/", 3) == [200, 200, 429]
    assert statuses(client, "/drf-extra/", 3) == [200, 200, 429]


def test_drf_function_views_decorated_outside_have_limits_of_their_own(client: Client) -> None:
    assert statuses(client, "/drf-outside/", 2) == [200, 429]
    assert statuses(client, "/drf-outside-too/", 2) == [200, 429]


def test_a_drf_view_may_be_limited_at_dispatch(client: Client) -> None:
    assert client.get("/drf-dispatch/").json() == {"limited": False}
    assert client.get("/drf-dispatch/").status_code == 429


def test_what_was_counted_around_a_drf_view_is_given_back_when_a_throttle_refuses(
    client: Client,
) -> None:
    assert statuses(client, "/drf-throttled/", 5) == [200, 200, 429, 429, 429]
    assert used(get(), "around", "9/day") == 2
    policies = client.get("/drf-throttled/")["RateLimit-Policy"]
    assert policies == '"around";q=9;w=86400, "throttle";q=2;w=86400'


def test_what_throttles_counted_is_given_back_when_a_decorator_within_refuses(
    client: Client,
) -> None:
    assert statuses(client, "/drf-throttled-around/", 4) == [200, 429, 429, 429]
    assert client.get("/drf-throttled/").status_code == 200
    assert client.get("/drf-throttled/").status_code == 429


def test_a_refusal_inside_drf_is_in_the_format_that_drf_negotiated(client: Client) -> None:
    statuses(client, "/drf-inside/", 2)
    assert client.get("/drf-inside/").json()["detail"] == "Too many requests."
    browsed = client.get("/drf-inside/", headers={"accept": "text/html"})
    assert "Try again" in browsed.content.decode()
    assert client.get("/drf-inside/?format=json", headers={"accept": "*/*"}).json()


# What is wrong is told when the module is imported


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"rate": "10/month"}, "'month' in '10/month' is not a unit"),
        ({"rate": 5}, "5 is not a rate"),
        ({"method": "FETCH"}, "'FETCH' is not a method"),
        ({"method": []}, "names no method"),
        ({"method": [None]}, "'NONE' is not a method"),
        ({"method": 5}, "not iterable"),
        ({"cost": -1}, "cost must be a whole number"),
        ({"cost": True}, "cost must be a whole number"),
        ({"cost": "1"}, "cost must be a whole number"),
        ({"key": "usr"}, "'usr' is not a key"),
        ({"key": "header:"}, "'header:' is not a key"),
        ({"group": "other"}, "group is another word for scope, and says 'other'"),
    ],
)
def test_wrong_arguments_are_told_at_once_with_the_scope(
    arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=rf"ratelimit\('x'\): .*{problem}"):
        ratelimit("x", **arguments)


def test_a_scope_must_be_a_text_that_says_something() -> None:
    for scope in ("", 5):
        with pytest.raises(ImproperlyConfigured, match="a scope is a text"):
            ratelimit(scope)  # type: ignore[arg-type]


def test_the_parentheses_may_not_be_left_out() -> None:
    with pytest.raises(ImproperlyConfigured, match="with parentheses"):
        ratelimit(views.told)  # type: ignore[arg-type]


def test_group_is_another_word_for_scope() -> None:
    ratelimit("declared once", group="declared once")
    ratelimit(group="declared by group")
    assert {"declared once", "declared by group"} <= decorators.scopes


def test_a_class_cannot_be_decorated_without_method_decorator() -> None:
    with pytest.raises(TypeError, match="@method_decorator"):
        ratelimit("x")(views.Plain)


def test_a_view_without_a_path_of_its_own_needs_a_scope() -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    with pytest.raises(ImproperlyConfigured, match=r"<locals>\.view .*name the scope"):
        ratelimit(rate="5/m")(view)
    ratelimit("x", rate="5/m")(view)


# The work that a request costs


def test_a_decision_costs_no_query_but_the_rules(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(2):  # RULES_POLL is 0: rules and overrides
        client.get("/plain/")


@pytest.mark.parametrize("asked", [views.plain, views.InAList.as_view()])
def test_decorating_again_at_each_request_declares_nothing_new(asked: Any) -> None:
    asked(get())
    before = len(decorators.scopes)
    asked(get())
    assert len(decorators.scopes) == before
