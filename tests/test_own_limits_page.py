"""The page of a user's own limits in Chromium, under a strict Content-Security-Policy."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import expect

from django_slidinglimit.models import Override, Rule
from tests.test_accessibility import axe, check  # noqa: F401

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from pytest_django import Settings

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.own_limits_site"),
]


@pytest.fixture
def in_every_state(page: Page, settings: Settings) -> None:
    """Limits in every state, some under names that no page expects."""
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 5}
    user = str(User.objects.get().pk)
    soon = timezone.now() + timedelta(hours=1)
    Rule.objects.create(name="<script>alert(1)</script>", scope="forms", rate="1000000/day")
    Rule.objects.create(name="Everything under api, whoever it is " * 2, path="/api/*", rate="9/h")
    plan = Rule.objects.create(name="Plan", scope="plan", rate="7/h", key="user", methods="GET")
    Rule.objects.create(name="Closed", scope="free", rate="0/min", key="user")
    daily = Rule.objects.create(name="Daily", scope="free", rate="10/day", key="user")
    other = Rule.objects.create(name="Other", scope="free", rate="9/day", key="user")
    Override.objects.create(rule=plan, kind="user", identity=user, effect="exempt")
    Override.objects.create(rule=daily, kind="user", identity=user, effect="block", expires=soon)
    Override.objects.create(
        rule=other, kind="user", identity=user, effect="rate", rate="99/day", expires=soon
    )
    for path, times in (("/report/", 3), ("/api/files/", 5)):
        for _ in range(times):
            page.request.get(path)


def test_it_shows_what_is_left_and_works_without_a_script(page: Page, in_every_state: None) -> None:
    page.goto("/limits/")
    assert page.locator("script").count() == 0
    table = page.get_by_role("table", name="Signed in as admin")
    report = table.get_by_role("row", name="report")
    expect(report).to_contain_text("Used up. Free in")
    page.get_by_role("link", name="Refresh").click()
    expect(table.get_by_role("row", name="alert(1)")).to_contain_text("Available")


@pytest.mark.parametrize("away", [False, True])
def test_axe_finds_no_fault(
    page: Page,
    axe: str,  # noqa: F811
    in_every_state: None,
    settings: Settings,
    away: bool,
) -> None:
    if away:
        settings.SLIDINGLIMIT = {"CACHE": "none", "RULES_POLL": 0}
        settings.CACHES = settings.CACHES | {
            "none": settings.CACHES["default"] | {"LOCATION": "redis://127.0.0.1:1/0"}
        }
    page.goto("/limits/")
    expect(page.get_by_role("status")).to_have_count(int(away))
    check(page, axe)


@pytest.mark.parametrize("width", [1100, 400])
def test_it_fits_the_window(page: Page, in_every_state: None, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/limits/")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.get_by_role("row", name="burst").bounding_box()
    assert box
    assert box["height"] < 250
    meter = page.locator(".sl-meter").first.bounding_box()
    assert meter
    assert 30 < meter["width"] < 300
