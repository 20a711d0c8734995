"""How the usage pages keep themselves fresh, in Chromium, under a strict policy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from django_slidinglimit.core.decisions import Client, Rule
from django_slidinglimit.core.rates import Rate
from tests.recorded import record

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request, Response, Route
    from pytest_django import Settings

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.admin_site")]

OVERVIEW = "/admin/django_slidinglimit/usage/"
LIST = Rule("c1", Rate(10, 3_600_000), "list")
# Enough for a refresh or two on a busy machine.
SOON = 15_000
# Longer than the interval, in milliseconds.
A_WHILE = 2500
PART = "**/*fragment=1"


@pytest.fixture(autouse=True)
def quick(settings: Settings) -> None:
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 10, "USAGE_POLL": 1}


def refuse(name: str, times: int = 1) -> None:
    """Have a client refused so often."""
    record(LIST, Client("key", name), times, used=10)


def names(page: Page) -> list[str]:
    """Who is limited, from above."""
    return page.locator(".sl-limits bdi").all_inner_texts()


def mode(page: Page, word: str) -> None:
    """Wait until the page says how it is refreshed.

    Raises:
        AssertionError: it does not.
    """
    expect(page.locator("[data-sl-mode]")).to_have_text(word, timeout=SOON)


def parts(page: Page) -> list[str]:
    """The requests for the live part from now on."""
    asked: list[str] = []

    def note(request: Request) -> None:
        if "fragment=1" in request.url:
            asked.append(request.url)

    page.on("request", note)
    return asked


def set_hidden(page: Page, hidden: bool) -> None:
    """Put the tab behind others, or before them."""
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", {get: () => hidden, configurable: true});
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_a_new_client_appears_without_a_reload(page: Page) -> None:
    page.goto(OVERVIEW)
    page.evaluate("window.slSame = true")
    expect(page.locator("#sl-none")).to_contain_text("There is no rule in the database")
    refuse("ann", 3)
    row = page.get_by_role("row", name="ann")
    expect(row).to_contain_text("list 10/h", timeout=SOON)
    expect(page.locator("#sl-none")).to_have_count(0)
    assert page.evaluate("window.slSame")


def test_an_unchanged_part_is_not_sent_again(page: Page) -> None:
    record(LIST, Client("key", "ann"), 3, ago=5)
    page.goto(OVERVIEW)

    def unchanged(response: Response) -> bool:
        return response.status == 304

    with page.expect_response(unchanged, timeout=SOON):
        pass
    mode(page, "live")
    refuse("ben")
    expect(page.get_by_role("row", name="ben")).to_be_visible(timeout=SOON)


def test_times_pass_without_being_sent(page: Page) -> None:
    refuse("ann")
    page.goto(OVERVIEW)
    since = page.locator(".sl-limits [data-sl-since]")
    before = since.inner_text()
    page.route(PART, lambda route: route.abort())
    expect(since).not_to_have_text(before, timeout=SOON)
    expect(since).to_have_text(re.compile(r"^(\d+ min )?\d+ s$|^\d+ min$"))


def test_the_focus_stays_where_it_is(page: Page) -> None:
    refuse("ann")
    page.goto(OVERVIEW)
    link = page.get_by_role("link", name="ann")
    link.focus()
    refuse("ann", 4)
    expect(page.get_by_role("row", name="ann").get_by_role("cell").nth(2)).to_have_text(
        "5", timeout=SOON
    )
    expect(link).to_be_focused()


def test_rows_stay_under_the_pointer_and_move_once_it_is_gone(page: Page) -> None:
    refuse("ann", 3)
    refuse("ben", 2)
    page.goto(OVERVIEW)
    page.get_by_role("row", name="ben").hover()
    refuse("ben", 4)
    refuse("eve", 9)
    row = page.get_by_role("row", name="ben")
    expect(row.get_by_role("cell").nth(2)).to_have_text("6", timeout=SOON)
    expect(page.get_by_role("row", name="eve")).to_be_visible()
    assert names(page) == ["ann", "ben", "eve"]
    page.mouse.move(0, 0)
    expect(page.locator(".sl-limits bdi").first).to_have_text("eve", timeout=SOON)
    assert names(page) == ["eve", "ben", "ann"]


def test_what_is_unfolded_and_scrolled_stays_so(page: Page) -> None:
    record(LIST, Client("key", "ann"), 3, ago=5)
    page.goto(OVERVIEW)
    page.get_by_text("The same numbers in a table").click()
    table = page.locator("#sl-hour-scroll")
    table.evaluate("(element) => element.scrollTop = 200")
    page.evaluate("scrollTo(0, 150)")
    page.mouse.move(0, 0)
    refuse("ben")
    expect(page.get_by_role("row", name="ben")).to_be_attached(timeout=SOON)
    expect(table).to_be_visible()
    assert table.evaluate("(element) => element.scrollTop") == 200
    assert page.evaluate("scrollY") > 0


def test_it_rests_while_text_is_selected_or_a_question_is_open(page: Page) -> None:
    refuse("ann")
    page.goto(OVERVIEW)
    row = page.get_by_role("row", name="ann")
    for begin, end in (
        (
            "getSelection().selectAllChildren(document.querySelector('.sl-limits bdi'))",
            "getSelection().removeAllRanges()",
        ),
        (
            "document.getElementById('sl-ask').showModal()",
            "document.getElementById('sl-ask').close()",
        ),
    ):
        page.evaluate(begin)
        page.wait_for_timeout(500)  # a refresh that was under way
        asked = parts(page)
        page.wait_for_timeout(A_WHILE)
        assert asked == []
        page.evaluate(end)
        with page.expect_request(PART, timeout=SOON):
            pass
    expect(row).to_be_visible()


def test_a_paused_page_stays_as_it_is_until_it_is_resumed(page: Page) -> None:
    refuse("ann")
    page.goto(OVERVIEW)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_have_text("Paused.")
    since = page.locator(".sl-limits [data-sl-since]").inner_text()
    refuse("ben")
    asked = parts(page)
    page.wait_for_timeout(A_WHILE)
    assert (names(page), asked) == (["ann"], [])
    assert page.locator(".sl-limits [data-sl-since]").inner_text() == since
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("row", name="ben")).to_be_visible(timeout=SOON)
    expect(page.get_by_role("status")).to_have_text("Live again.")


def test_a_hidden_tab_asks_for_nothing_and_looks_as_soon_as_it_is_seen(page: Page) -> None:
    page.goto(OVERVIEW)
    mode(page, "live")
    set_hidden(page, True)
    page.wait_for_timeout(500)  # a refresh that was under way
    asked = parts(page)
    page.wait_for_timeout(A_WHILE)
    assert asked == []
    with page.expect_request(PART, timeout=SOON):
        set_hidden(page, False)


def test_a_page_that_nobody_touches_stops_and_goes_on_when_it_is_told_to(page: Page) -> None:
    page.goto(OVERVIEW)
    mode(page, "live")
    assert page.locator("[data-sl-live]").get_attribute("data-idle") == "900"
    set_idle = "(s) => document.querySelector('[data-sl-live]').dataset.idle = s"
    page.evaluate(set_idle, "0")
    mode(page, "stopped")
    expect(page.get_by_role("status")).to_contain_text("nobody has touched the page for long")
    asked = parts(page)
    page.wait_for_timeout(A_WHILE)
    assert asked == []
    page.evaluate(set_idle, "900")
    refuse("ann")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("row", name="ann")).to_be_visible(timeout=SOON)
    mode(page, "live")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_signs_of_a_person_keep_it_alive(page: Page) -> None:
    page.goto(OVERVIEW)
    mode(page, "live")
    page.evaluate("document.querySelector('[data-sl-live]').dataset.idle = '6'")
    signs = (
        lambda n: page.mouse.move(100 + n, 100),
        lambda _n: page.keyboard.press("Shift"),
        lambda _n: page.mouse.wheel(0, 10),
    )
    for n in range(25):  # longer than that
        signs[n % 3](n)
        page.wait_for_timeout(300)
    expect(page.locator("[data-sl-mode]")).to_have_text("live")


@pytest.mark.parametrize("loss", ["session", "permission"])
def test_the_page_stops_and_says_so_when_it_may_not_be_seen_any_more(page: Page, loss: str) -> None:
    page.goto(OVERVIEW)
    mode(page, "live")
    if loss == "session":
        page.context.clear_cookies()
    else:
        User.objects.update(is_superuser=False)
    expect(page.get_by_role("status")).to_contain_text("Stopped", timeout=SOON)
    mode(page, "stopped")
    expect(page.get_by_role("button", name="Pause")).to_be_hidden()
    asked = parts(page)
    page.wait_for_timeout(A_WHILE)
    assert asked == []


@pytest.mark.parametrize("failure", ["away", "error", "another page"])
def test_a_page_that_cannot_be_refreshed_is_marked_as_old_and_recovers(
    page: Page, failure: str
) -> None:
    def fail(route: Route) -> None:
        if failure == "away":
            route.abort()
        else:
            status = 500 if failure == "error" else 200
            route.fulfill(status=status, body="<h1>Back soon</h1>", content_type="text/html")

    page.goto(OVERVIEW)
    page.route(PART, fail)
    mode(page, "old")
    expect(page.get_by_role("status")).to_contain_text("what it shows is old. It keeps trying.")
    expect(page.locator("#sl-none")).to_be_visible()
    page.unroute(PART)
    mode(page, "live")
    expect(page.get_by_role("status")).to_have_text("Live again.")


def test_while_refreshing_fails_it_tries_less_and_less_often_up_to_once_a_minute(
    page: Page,
) -> None:
    page.clock.install()
    page.goto(OVERVIEW)
    page.route(PART, lambda route: route.abort())
    tries = parts(page)
    step = 250  # in milliseconds of the page's clock

    def passed_until_next() -> float:
        known, passed = len(tries), 0
        while len(tries) == known:
            assert passed < 90_000
            page.clock.run_for(step)
            passed += step
        return passed / 1000

    first, *waits = [passed_until_next() for _ in range(9)]
    assert first <= 2
    # The page may learn of a failure a few steps after its clock has gone on.
    for wait, least in zip(waits, (2, 4, 8, 16, 32, 60, 60, 60), strict=True):
        assert least - 0.5 <= wait <= least + 3


def test_no_refresh_begins_before_the_last_one_is_over(page: Page) -> None:
    page.goto(OVERVIEW)
    mode(page, "live")
    page.evaluate(
        """() => {
            const fetched = window.fetch;
            let now = 0;
            window.slMost = 0;
            window.fetch = async (...all) => {
                window.slMost = Math.max(window.slMost, ++now);
                try {
                    await new Promise((resolve) => setTimeout(resolve, 1500));
                    return await fetched(...all);
                } finally {
                    now--;
                }
            };
        }"""
    )
    live = "document.querySelector('[data-sl-live]')"
    for _ in range(10):
        page.evaluate(f"{live}.dispatchEvent(new Event('sl:due'))")
        set_hidden(page, False)
        page.wait_for_timeout(200)
    assert page.evaluate("slMost") == 1


def test_without_a_script_there_are_the_same_numbers_and_a_link(page: Page) -> None:
    refuse("ann", 2)
    page.goto(OVERVIEW)
    browser = page.context.browser
    assert browser is not None
    with browser.new_context(
        java_script_enabled=False,
        base_url=re.sub(r"/admin/.*", "", page.url),
        storage_state=page.context.storage_state(),
    ) as context:
        plain = context.new_page()
        plain.goto(OVERVIEW)
        row = plain.get_by_role("row", name="ann")
        expect(row.locator("[data-sl-since]")).to_have_text(re.compile(r"\d s|\d min"))
        expect(plain.get_by_role("button", name="Pause")).to_be_hidden()
        refuse("ben", 3)
        plain.get_by_role("link", name="Refresh").click()
        expect(plain.locator(".sl-limits bdi").first).to_have_text("ben")
