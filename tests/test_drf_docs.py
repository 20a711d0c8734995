"""docs/drf.md: its examples run, and do what is said beside them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from rest_framework.settings import api_settings

from .throttled_api import ALICE, BOB, ask, call, counted, rule, view_of

if TYPE_CHECKING:
    from pytest_django import Settings

pytestmark = pytest.mark.django_db

DOCUMENT = Path(__file__).parents[1] / "docs" / "drf.md"


@pytest.fixture
def examples(settings: Settings) -> Any:
    """Everything that the document's examples define, under the settings it gives."""
    names: dict[str, Any] = {"__name__": "shop.throttling"}
    settings.SLIDINGLIMIT = settings.SLIDINGLIMIT | {"TIMEOUT": 5}  # the machine may be slow
    for code in re.findall(r"(?ms)^```python\n(.*?)^```$", DOCUMENT.read_text()):
        exec(compile(code, str(DOCUMENT), "exec"), names)  # in the order of the document
        settings.REST_FRAMEWORK = names["REST_FRAMEWORK"]
    return SimpleNamespace(**names)


def test_settings_name_throttles_and_rates(examples: Any) -> None:
    default: Any = api_settings.DEFAULT_THROTTLE_CLASSES
    view = view_of(*default)
    assert counted(call(view, user=ALICE)) == [("user", "999")]
    assert counted(call(view)) == [("anon", "19"), ("user", "999")]


def test_actions_have_scopes(examples: Any) -> None:
    documents = examples.Documents
    assert counted(call(documents.as_view({"get": "list"}))) == [("search", "29")]
    export = documents.as_view({"get": "export"}, **documents.export.kwargs)
    assert counted(call(export)) == []
    rule("export", "5/min")
    assert counted(call(export)) == [("rule", "4")]


def test_burst_is_counted_in_five_seconds(examples: Any) -> None:
    assert call(view_of(examples.BurstThrottle))["RateLimit-Policy"] == '"burst";q=10;w=5'


def test_tenants_are_counted_and_a_request_without_one_is_not(examples: Any) -> None:
    view = view_of(examples.TenantThrottle)
    assert counted(call(view, user=ALICE, HTTP_X_TENANT="a")) == [("tenant", "599")]
    assert counted(call(view, user=BOB, HTTP_X_TENANT="a")) == [("tenant", "598")]
    assert counted(call(view)) == []


def test_plans_have_limits_of_their_own_and_staff_has_none(examples: Any) -> None:
    view = view_of(examples.PlanThrottle)
    assert counted(call(view)) == [("plan", "59")]
    assert counted(call(view, user=ALICE)) == [("plan", "599")]
    assert counted(call(view, user=User(pk=44, is_staff=True))) == []


def test_rule_throttle_applies_rules_of_the_path(examples: Any) -> None:
    rule(path="*", rate="2/min")
    assert ask(examples.Reports.as_view(), 3) == [200, 200, 429]


def test_decision_tells_who_has_used_all(examples: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(view_of(examples.LowThrottle), 6, user=ALICE) == [200] * 5 + [429]
    assert capsys.readouterr().out == "42 has used all of 5\n"
