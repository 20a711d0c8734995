"""What the survey of a site finds; `scoped_site.py` is the site."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from django.test import override_settings
from django.urls import path, resolve
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.views import APIView

from django_slidinglimit import scopes
from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.models import Rule
from django_slidinglimit.throttling import RuleThrottle

if TYPE_CHECKING:
    from collections.abc import Iterator

SITE = "tests.scoped_site"
RATES = {"site.write": "1/min", "site.declared": None}


@pytest.fixture(autouse=True)
def site() -> Iterator[None]:
    with override_settings(ROOT_URLCONF=SITE, REST_FRAMEWORK={"DEFAULT_THROTTLE_RATES": RATES}):
        yield


def uses(scope: str) -> list[tuple[str, bool]]:
    return [(use.where, use.limited) for use in scopes.survey().scopes[scope]]


@pytest.mark.parametrize(
    ("scope", "where"),
    [
        # throttle classes, of a view, of an action, of a function view
        ("site.burst", [f"Burst on {SITE}.Files.later", f"Burst on {SITE}.function"]),
        (f"{SITE}.Nameless", [f"Nameless on {SITE}.Plain"]),
        # throttle_scope, of a view set and of its actions
        ("site.list", [f"Scoped on {SITE}.Files.create,list"]),
        ("site.upload", [f"Scoped on {SITE}.Files.upload"]),
        # decorators: of functions, under other decorators and above as_view(), of methods
        ("site.login", [f"@ratelimit on {SITE}.login"]),
        ("site.login.soft", [f"@ratelimit on {SITE}.login"]),
        ("site.function", [f"@ratelimit on {SITE}.function"]),
        ("site.given", [f"@ratelimit on {SITE}.Reports"]),
        ("site.class", [f"@ratelimit on {SITE}.Reports"]),
        ("site.action", [f"@ratelimit on {SITE}.Files.decorated"]),
        (f"{SITE}.Reports.post", [f"@ratelimit on {SITE}.Reports"]),
        # one that a view's own get_throttles chooses
        ("site.write", ["DEFAULT_THROTTLE_RATES"]),
    ],
)
def test_a_scope_is_found_with_where_it_is_used(scope: str, where: list[str]) -> None:
    assert uses(scope) == [(place, True) for place in where]


@pytest.mark.parametrize(
    ("scope", "where"),
    [
        ("site.later", f"Scoped on {SITE}.Files.later"),
        ("site.declared", "DEFAULT_THROTTLE_RATES"),
        (f"{SITE}.bare", f"@ratelimit on {SITE}.bare"),
    ],
)
def test_a_scope_without_a_rate_is_told_apart(scope: str, where: str) -> None:
    assert uses(scope) == [(where, False)]
    assert scope in scopes.survey().unlimited([])
    assert scope not in scopes.survey().unlimited([Rule(scope=scope, rate="1/min")])
    assert scope in scopes.survey().unlimited([Rule(scope=scope, rate="1/min", mode="off")])


def test_scopes_that_no_rule_reaches_are_not_offered() -> None:
    """Throttles of REST framework's own; a view's scope that it never reads."""
    assert "site.theirs" not in scopes.survey().scopes
    assert "user" not in scopes.survey().scopes


def test_default_throttles_are_found_if_no_view_uses_them() -> None:
    defaults = [f"{SITE}.Burst", f"{SITE}.Scoped", "django_slidinglimit.throttling.RuleThrottle"]
    with override_settings(REST_FRAMEWORK={"DEFAULT_THROTTLE_CLASSES": defaults}):
        assert ("DEFAULT_THROTTLE_CLASSES", True) in uses("site.burst")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/files/",
        "/api/v1/files/upload/",
        "/api/v1/ruled/7/",
        "/api/v1/function/",
        "/login/",
        "/bare/",
        "/given/",
        "/admin/",
    ],
)
def test_views_are_known_by_the_name_that_requests_carry(path: str) -> None:
    assert resolve(path).view_name in scopes.survey().views


@pytest.mark.parametrize(
    ("fields", "lacking"),
    [
        ({"scope": "site.login"}, False),
        ({"scope": "site.logn"}, True),
        ({"path": "api:ruled"}, False),
        ({"path": "api:rules"}, True),
        ({"path": "ruled"}, True),
        ({"path": "nowhere/*"}, False),
        ({"path": "<broken"}, False),
    ],
)
def test_a_rule_for_what_nobody_has_is_told_of(fields: dict[str, str], lacking: bool) -> None:
    assert scopes.survey().lacks(Rule(**fields)) is lacking


ONE = {"scope": "a", "rate": "5/min", "methods": "GET, POST", "key": "header:X-Key"}


@pytest.mark.parametrize(
    ("other", "double"),
    [
        ({}, True),
        ({"rate": "7/60s"}, True),
        ({"methods": "post,get"}, True),
        ({"key": "header:x-key"}, True),
        ({"rate": "5/h"}, False),
        ({"methods": "GET"}, False),
        ({"methods": ""}, False),
        ({"key": ""}, False),
        ({"scope": "b"}, False),
        ({"mode": "observe"}, False),
        ({"mode": "off"}, False),
        ({"rate": "nonsense"}, False),
        ({"key": "nonsense"}, False),
    ],
)
def test_rules_say_the_same_if_only_their_limits_differ(
    other: dict[str, str], double: bool
) -> None:
    rules = [Rule(**ONE), Rule(**{**ONE, **other})]
    assert scopes.doubles(rules) == ([rules] if double else [])


@pytest.mark.parametrize(
    ("paths", "double"),
    [(("/api/x/", "api/x/"), True), (("/about", "about"), False), (("a:b", "a:b"), True)],
)
def test_paths_are_the_same_whatever_the_leading_slash(paths: Any, double: bool) -> None:
    assert bool(scopes.doubles(Rule(path=path, rate="5/min") for path in paths)) is double


def test_odd_views_are_passed_over() -> None:
    @method_decorator(ratelimit(rate="5/min"), name="get")
    class Local(View):
        def get(self, request: object) -> None: ...

    class NoViewAtAll:
        pass

    def claims(request: object) -> None: ...

    claims.view_class = NoViewAtAll  # type: ignore[attr-defined]

    class Partly(APIView):
        throttle_classes = (partial(RuleThrottle), RuleThrottle)  # type: ignore[assignment]
        throttle_scope = "site.declared"

    views: list[Any] = [Local.as_view(), claims, Partly.as_view()]
    urlpatterns[:] = [path("a/", view) for view in views]
    with override_settings(ROOT_URLCONF=__name__):
        assert (
            "RuleThrottle on tests.test_scopes.test_odd_views_are_passed_over.<locals>.Partly",
            False,
        ) in uses("site.declared")


urlpatterns: list[Any] = []
