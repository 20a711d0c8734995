from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client as Browser
from django.test import override_settings
from django.urls import include, path
from rest_framework.response import Response
from rest_framework.views import APIView

from django_slidinglimit import clients, keeper
from django_slidinglimit.models import Rule
from django_slidinglimit.paths import DEEPEST, PathPattern, places_near
from django_slidinglimit.places import Place, asked_of, rules_at
from django_slidinglimit.throttling import RuleThrottle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rest_framework.request import Request


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("api/items/", ["/api/items/"], ["/api/items", "/api/items/7", "/x/api/items/"]),
        ("/api/items/", ["/api/items/"], ["/api/items", "//api/items/"]),
        ("api/items/<int:pk>/", ["/api/items/7/"], ["/api/items/x/", "/api/items/7/more/"]),
        ("<slug:kind>/<path:rest>", ["/a/b/c", "/a/b"], ["/a", "/a/"]),
        ("api/*", ["/api/", "/api/items/7/"], ["/api", "/apiary", "/v1/api/"]),
        ("api*", ["/api", "/apiary", "/api/x"], ["/ap"]),
        ("*", ["/", "/anything/"], []),
        ("/", ["/"], ["/anything", "//"]),
        ("/about", ["/about"], ["/about/", "/", "//about"]),
        ("a.c/", ["/a.c/"], ["/abc/"]),
        ("süß/<str:x>", ["/süß/日本"], ["/süß/"]),
        (f"{'a/' * 20}", [f"/{'a/' * 20}"], [f"/{'a/' * 19}"]),
        (f"{'a/' * 20}<int:pk>", [f"/{'a/' * 20}7"], [f"/{'a/' * 19}7"]),
        (f"{'a/' * 20}*", [f"/{'a/' * 20}", f"/{'a/' * 21}"], [f"/{'a/' * 19}"]),
    ],
)
def test_matches_paths_as_django_does_or_by_their_beginning(
    text: str, matching: list[str], other: list[str]
) -> None:
    pattern = PathPattern(text)
    assert [path for path in matching if not pattern.matches(path, "view")] == []
    assert [path for path in other if pattern.matches(path, "view")] == []
    # and is kept where an index of patterns looks for it, once
    for found in matching:
        assert list(places_near(found, "view")).count(pattern.near) == 1


@pytest.mark.parametrize("text", ["api:item-list", "login", "a:b:c", "shop.views.report", "süß"])
def test_a_text_without_slash_angle_bracket_or_star_is_a_views_name(text: str) -> None:
    pattern = PathPattern(text)
    assert pattern.matches("/anything/", text)
    assert pattern.near in places_near("/anything/", text)
    assert not pattern.matches(f"/{text}", None)
    assert not pattern.matches(f"/{text}", f"{text}2")


def test_a_number_of_thousands_of_digits_is_no_match_and_no_error() -> None:
    assert not PathPattern("<int:pk>/").matches(f"/{'9' * 5000}/")


def test_an_index_is_searched_in_few_places_however_deep_the_path() -> None:
    assert len(list(places_near("/a" * 10_000, "view"))) == DEEPEST + 3


def test_no_place_of_an_index_is_searched_twice() -> None:
    for asked in ("/", "//", "///", "/a", "/a/", "//a/", "/a/b"):
        for view in (None, "", "a", "a/", "/"):
            found = list(places_near(asked, view))
            assert len(found) == len(set(found)), (asked, view)


def test_narrower_patterns_are_told_from_wider_ones() -> None:
    wider = [
        {"api/items/", "/about"},
        {"api/items/<int:pk>/", "<slug:x>/", "api:item-list"},
        {"api/items/*"},
        {"api/*"},
        {"*"},
    ]
    narrowness = [{PathPattern(text).narrowness for text in texts} for texts in wider]
    assert [len(equal) for equal in narrowness] == [1] * len(wider)
    assert sorted(narrowness, key=min) == narrowness


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("api/*/items", "only at the end"),
        ("api/**", "only at the end"),
        ("<int:pk>/*", "only at the end"),
        ("<number:pk>/", "converter 'number'"),
        ("<int:1>/", "identifier"),
        ("<int: pk>/", "whitespace"),
        ("<int:pk/", "bracket"),
        ("int:pk>/", "bracket"),
        ("<int:a>/<int:a>/", "redefinition"),
        ("^api/", "begins with"),
        ("api/$", "ends with"),
        ("(?P<pk>[0-9]+)/", "contains"),
        ("//api/", "'/'"),
        ("api items", "no view's name"),
        ("^about$", "lacks a slash, such as /about"),
        ("int:pk>", "lacks a slash"),
    ],
)
def test_refuses_what_would_never_match_and_says_why(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"path pattern|only at the end") as refusal:
        PathPattern(text)
    assert problem in str(refusal.value)
    assert repr(text) in str(refusal.value)


# What rules of paths do to requests, among one another.


class Item(APIView):
    def get(self, request: Request, pk: int = 0) -> Response:
        return Response(pk)

    throttle_classes = [RuleThrottle]  # noqa: RUF012


urlpatterns = [
    path("api/", include(([path("items/<int:pk>/", Item.as_view(), name="item")], "api"))),
    path("api/bulk/", Item.as_view()),
]


def admitted(address: str, asked: int = 9, **meta: Any) -> int:
    return sum(Browser().get(address, **meta).status_code == 200 for _ in range(asked))


@pytest.fixture
def rules(db: None) -> Iterator[Callable[..., None]]:
    def make(*rows: tuple[str, str], **fields: Any) -> None:
        for text, rate in rows:
            Rule.objects.create(name=f"{text} {rate}", path=text, rate=rate, **fields)

    patient = {"RULES_POLL": 0, "TIMEOUT": 10}  # a busy machine is no outage
    with override_settings(ROOT_URLCONF=__name__, SLIDINGLIMIT=patient):
        yield make


def test_a_rule_of_a_views_name_counts_that_view(rules: Callable[..., None]) -> None:
    rules(("api:item", "2/min"))
    assert admitted("/api/items/7/") == 2
    assert admitted("/api/items/8/") == 0
    assert admitted("/api/bulk/") == 9


@pytest.mark.parametrize("narrow", ["/api/items/7/", "api:item", "api/items/<int:pk>/", "api/i*"])
@pytest.mark.parametrize("rate", ["2/min", "7/min"])
def test_a_narrower_pattern_takes_the_place_of_a_wider_one(
    rules: Callable[..., None], narrow: str, rate: str
) -> None:
    rules(("api/*", "4/min"), (narrow, rate), ("*", "1/min"))
    assert admitted("/api/items/7/") == int(rate[0])
    assert admitted("/api/bulk/") == 4


@pytest.mark.parametrize(
    "narrow",
    [
        {"rate": "7/h"},
        {"key": "ip"},
        {"mode": "observe"},
        {"mode": "off"},
        {"methods": "POST"},
    ],
)
def test_it_does_so_only_if_enforced_for_the_same_clients_time_and_method(
    rules: Callable[..., None], narrow: dict[str, str]
) -> None:
    rules(("api/*", "4/min"))
    Rule.objects.create(**{"name": "r", "path": "api:item", "rate": "7/min"} | narrow)
    assert admitted("/api/items/7/") == 4


def test_clients_outside_the_share_stay_under_the_wider_rule(rules: Callable[..., None]) -> None:
    rules(("api/*", "3/min"))
    rules(("api:item", "1/min"), key="user_or_ip", share=50)
    found = {admitted("/api/items/7/", 4, REMOTE_ADDR=f"10.0.0.{i}") for i in range(12)}
    assert found == {1, 3}


def test_rules_equally_narrow_must_all_admit(rules: Callable[..., None]) -> None:
    rules(("api:item", "5/min"), ("api/items/<int:pk>/", "2/min"), ("api:item", "8/min"))
    assert admitted("/api/items/7/") == 2


def test_an_observing_rule_that_would_give_way_does_not_count(rules: Callable[..., None]) -> None:
    rules(("api/*", "1/min"), mode="observe")
    rules(("api:item", "3/min"))
    response = Browser().get("/api/items/7/")
    assert "RateLimit" in response
    observed = rules_at(
        Place("", clients.key("ip"), by_path=True), response.wsgi_request, keeper.current()
    )
    assert len(observed) == 2
    asked = asked_of(Place("", clients.key("ip")), response.wsgi_request, observed)
    assert [one.rule.name for one in asked] == ["api:item 3/min"]
