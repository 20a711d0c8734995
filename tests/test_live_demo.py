"""The overview in Chromium while the demo's traffic runs."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect, sync_playwright

from example_project import samples

from .browser import ARGUMENTS
from .conftest import need
from .smoke import PATIENCE, Browser, demo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from .smoke import Demo

__all__ = ["demo"]  # the fixture


@pytest.fixture
def tab(demo: Demo) -> Iterator[Page]:
    """The demo's overview, signed in."""
    name, password = demo.wait_for(r"Sign in as: (\S+) / (\S+)\n").groups()
    Browser(demo.site).wait_until_it_serves()
    with sync_playwright() as playwright:
        chromium = need("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(base_url=demo.site)
        page.goto("/admin/login/?next=/admin/django_slidinglimit/usage/")
        page.get_by_label("Username").fill(name)
        page.get_by_label("Password").fill(password)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Limited right now")).to_be_visible(timeout=15_000)
        yield page
        browser.close()


def attack(site: str) -> tuple[int, str]:
    """One request more of the attacker; its status, and what it is told."""
    request = Request(f"{site}/api/items/", headers={"X-Forwarded-For": samples.ATTACKER})
    try:
        with urlopen(request, timeout=10) as response:
            return int(response.status), ""
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_attacker_stands_first_within_five_seconds(demo: Demo, tab: Page) -> None:
    deadline = time.monotonic() + PATIENCE
    while attack(demo.site)[0] != 429:
        assert time.monotonic() < deadline
    first = tab.locator(".sl-limits tbody tr").first
    expect(first).to_contain_text(samples.ATTACKER, timeout=5000)
    expect(first).to_contain_text("Item list")


def test_the_attacker_is_blocked_from_its_page_and_undoing_lets_it_in_again(
    demo: Demo, tab: Page
) -> None:
    tab.get_by_role("link", name=samples.ATTACKER).first.click(timeout=60_000)
    tab.get_by_role("button", name=f"Block ip {samples.ATTACKER} on all rules").click()
    tab.get_by_role("dialog").get_by_role("button", name="Block", exact=True).click()
    expect(tab.locator(".messagelist")).to_contain_text("is blocked until")
    status, told = attack(demo.site)
    assert status == 429
    assert json.loads(told)["detail"].startswith("Blocked until 20")
    tab.get_by_role("button", name="Undo").click()
    expect(tab.locator(".messagelist")).to_contain_text("as it was before")
    assert "Blocked" not in attack(demo.site)[1]
    deadline = time.monotonic() + PATIENCE
    while attack(demo.site)[0] != 200:  # it is over its limit, which lets one in now and then
        assert time.monotonic() < deadline
        time.sleep(0.05)
