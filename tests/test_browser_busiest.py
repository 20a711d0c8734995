"""The page of one rule in Chromium, under a strict Content-Security-Policy."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from django_slidinglimit.core.decisions import Client
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.rules import compile_rule
from tests.odd import ODD
from tests.recorded import ask

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from pytest_django import Settings

    from django_slidinglimit.core.decisions import Rule

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.admin_site")]

RULE = "/admin/django_slidinglimit/usage/rule/?rule="
# Enough for a refresh or two on a busy machine.
SOON = 15_000


@pytest.fixture
def rule(settings: Settings) -> Rule:
    """A rule that counts users."""
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 10}
    return compile_rule(Row.objects.create(name="Search", scope="search", rate="10/h")).rule


def query(page: Page) -> dict[str, str]:
    """What the address asks for."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def test_a_search_goes_on_over_orders_pages_and_refreshes(page: Page, rule: Rule) -> None:
    for n in range(60):
        ask(rule, Client("ip", f"192.0.2.{n}"), 1 + n % 2)
    ask(rule, Client("ip", "198.51.100.1"), 12)
    page.goto(RULE + rule.id)
    table = page.get_by_role("table", name="clients")
    expect(table).to_have_accessible_name("1 to 50 of 61 clients")
    expect(table.get_by_role("row").nth(1)).to_contain_text("198.51.100.1")
    page.get_by_role("searchbox", name="Client").fill("192.0.2.")
    page.get_by_label("Kind").select_option("ip")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Show").click()
    expect(table).to_have_accessible_name("1 to 50 of 60 clients")
    page.get_by_role("link", name="Refused").click()
    expect(page.get_by_role("columnheader", name="Refused")).to_have_attribute(
        "aria-sort", "descending"
    )
    page.get_by_role("link", name="Next").click()
    expect(table).to_have_accessible_name("51 to 60 of 60 clients")
    asked = {"rule": rule.id, "text": "192.0.2.", "kind": "ip", "order": "over", "page": "2"}
    assert query(page) == asked
    expect(page.get_by_role("searchbox", name="Client")).to_have_value("192.0.2.")
    page.evaluate("window.slSame = true")
    ask(rule, Client("ip", "192.0.2.200"))
    expect(table).to_have_accessible_name("51 to 61 of 61 clients", timeout=SOON)
    assert page.evaluate("window.slSame")
    assert query(page) == asked
    page.get_by_role("link", name="Clear filters").click()
    expect(table).to_have_accessible_name("1 to 50 of 62 clients")


def test_a_state_is_chosen_and_nobody_is_in_it(page: Page, rule: Rule) -> None:
    ask(rule, Client("user", "7000"), 12)
    ask(rule, Client("user", "8000"), 2)
    page.goto(RULE + rule.id)
    page.get_by_label("State").select_option("limited")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("row", name="user 7000")).to_be_visible()
    expect(page.get_by_role("row", name="user 8000")).to_be_hidden()
    page.get_by_label("State").select_option("near the limit")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("No client of this rule matches.")).to_be_visible()
    page.locator("#filters-clear").click()
    expect(page.get_by_role("row", name="user 8000")).to_be_visible()


def test_what_is_typed_and_unfolded_stays_across_refreshes(page: Page, rule: Rule) -> None:
    ask(rule, Client("user", "7000"))
    page.goto(RULE + rule.id)
    search = page.get_by_role("searchbox", name="Client")
    search.fill("192.0")
    page.get_by_text("The last hour:").click()
    numbers = page.get_by_role("table", name="The last hour on Search, by the minute")
    expect(numbers).to_be_visible()
    search.focus()
    ask(rule, Client("user", "7000"))
    expect(page.get_by_role("row", name="user 7000")).to_contain_text("2 of 10", timeout=SOON)
    expect(search).to_have_value("192.0")
    expect(search).to_be_focused()
    expect(numbers).to_be_visible()


def test_the_keyboard_alone_blocks_a_client_from_its_row(page: Page, rule: Rule) -> None:
    maria = User.objects.create_user("maria")
    client = Client("user", str(maria.pk))
    ask(rule, client)
    page.goto(RULE + rule.id)
    page.get_by_role("button", name="Block user maria on Search").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Block user maria on Search?")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Block").focus()
    page.keyboard.press("Enter")
    row = page.get_by_role("row", name="user maria")
    expect(row).to_contain_text("blocked")
    assert query(page) == {"rule": rule.id}
    expect(row.get_by_role("button", name="Unblock user maria on Search")).to_be_visible()


def test_odd_identities_are_links_that_lead_to_their_page(page: Page, rule: Rule) -> None:
    odd = [client for client in ODD if client.identity.isprintable() and client.identity]
    for client in odd:
        ask(rule, client)
    for client in odd:
        page.goto(RULE + rule.id)
        link = page.get_by_role("link", name=client.identity, exact=True)
        link.click(position={"x": 4, "y": 4})  # what does not fit is cut off
        expect(page.locator(".sl-client-line code")).to_have_text(client.identity)
        expect(page.locator("[data-sl=used]")).to_have_text("1")


def test_the_times_pass_by_themselves(page: Page, settings: Settings) -> None:
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 10}
    row = Row.objects.create(name="Quick", scope="quick", rate="1/4s")
    ask(compile_rule(row).rule, Client("user", "7000"), 2)
    page.goto(f"{RULE}d{row.pk}")
    cells = page.get_by_role("row", name="user 7000").get_by_role("cell")
    expect(cells.nth(3)).to_have_text("now", timeout=SOON)
    expect(cells.nth(0)).to_have_text("ok", timeout=SOON)
