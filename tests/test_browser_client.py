"""What is done about a client on its page, in Chromium, under a strict Content-Security-Policy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from django_slidinglimit.models import Override, Rule
from django_slidinglimit.usage import recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import APIResponse, Locator, Page, Route

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.admin_site"),
    pytest.mark.usefixtures("patient"),
]

CLIENT = "/admin/django_slidinglimit/usage/client/?kind=ip&identity=127.0.0.1"
# Enough for a refresh or two on a busy machine.
SOON = 15_000


@pytest.fixture
def ask(page: Page) -> Callable[[int], list[APIResponse]]:
    """Send so many real requests to the limited view."""

    def send(times: int = 1) -> list[APIResponse]:
        found = [page.request.get("/search/") for _ in range(times)]
        recorder.flush()
        return found

    return send


def told(page: Page) -> Locator:
    return page.locator(".messagelist")


def press(page: Page, name: str) -> Locator:
    """Press an action's button, and wait for what it asks."""
    page.get_by_role("button", name=name).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    return dialog


def test_who_is_blocked_from_the_page_is_refused_and_told_so_until_it_is_undone(
    page: Page, ask: Callable[..., list[APIResponse]]
) -> None:
    assert ask(3)[-1].status == 200
    page.goto(CLIENT)
    dialog = press(page, "Block ip 127.0.0.1 on all rules")
    expect(dialog).to_have_accessible_name("Block ip 127.0.0.1 on all rules?")
    dialog.get_by_label("For how long").select_option("10 minutes")
    dialog.get_by_role("button", name="Block", exact=True).click()
    expect(told(page)).to_contain_text("Ip 127.0.0.1 is blocked until")
    [refused] = ask()
    assert refused.status == 429
    assert re.search(r"Blocked until \d{4}-\d\d-\d\d \d\d:\d\d UTC\.", refused.text())
    expect(page.locator(".sl-rule-head .sl-state")).to_have_text("blocked")
    expect(page.locator(".sl-refusing")).to_contain_text("Refused for", timeout=SOON)
    page.get_by_role("button", name="Undo").click()
    expect(told(page)).to_contain_text("as it was before")
    assert ask()[0].status == 200
    assert page.url.endswith(CLIENT)


def test_a_reset_gives_the_whole_limit_and_its_undoing_the_counts(
    page: Page, ask: Callable[..., list[APIResponse]]
) -> None:
    ask(10)
    page.goto(CLIENT)
    press(page, "Reset ip 127.0.0.1 on search").get_by_role("button", name="Reset").click()
    expect(told(page)).to_contain_text("Ip 127.0.0.1 starts afresh on search.")
    expect(page.locator("[data-sl=used]")).to_have_text("0")
    page.get_by_role("button", name="Undo").click()
    expect(told(page)).to_contain_text("is counted again")
    expect(page.locator("[data-sl=used]")).to_have_text("10")
    assert ask()[0].status == 429


def test_the_keyboard_alone_gives_another_rate_and_takes_it_back(
    page: Page, ask: Callable[..., list[APIResponse]]
) -> None:
    Rule.objects.create(name="Search", scope="search", rate="10/h")
    ask(10)
    page.goto(CLIENT)
    button = page.get_by_role("button", name="Another rate for ip 127.0.0.1 on Search")
    tab_to(page, button)
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Give ip 127.0.0.1 another rate on Search?")
    expect(dialog).to_be_visible()
    rate = dialog.get_by_label("Rate")
    expect(rate).to_be_focused()
    expect(rate).to_have_value("10/h")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(rate).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("20/h")
    page.keyboard.press("Enter")
    expect(told(page)).to_contain_text("Ip 127.0.0.1 has 20/h until")
    assert ask()[0].status == 200
    tab_to(page, page.get_by_role("button", name="Undo"))
    page.keyboard.press("Enter")
    expect(told(page)).to_contain_text("as it was before")
    assert ask()[0].status == 429


def test_a_question_that_is_answered_twice_is_answered_once(
    page: Page, ask: Callable[..., list[APIResponse]]
) -> None:
    ask(1)
    page.goto(CLIENT)
    press(page, "Block ip 127.0.0.1 on all rules")
    answers: list[Route] = []
    page.route("**/usage/block/", lambda route: answers.append(route))
    page.evaluate(
        """async () => {
          const button = document.querySelector("dialog .sl-primary");
          for (let click = 0; click < 3; click += 1) {
            button.click();
            await new Promise((resume) => setTimeout(resume, 100));
          }
        }"""
    )
    for answer in answers:
        answer.continue_()
    expect(told(page)).to_contain_text("is blocked until")
    assert Override.objects.count() == len(answers) == 1


def test_a_date_is_asked_for_where_it_is_chosen_alone(
    page: Page, ask: Callable[..., list[APIResponse]]
) -> None:
    ask()
    page.goto(CLIENT)
    dialog = press(page, "Exempt ip 127.0.0.1 on all rules")
    until = dialog.get_by_label("Until, if a date is chosen")
    expect(until).to_be_hidden()
    dialog.get_by_label("For how long").select_option("until a date")
    expect(until).to_be_visible()
    until.fill("2090-01-02T03:04")
    dialog.get_by_role("link", name="Cancel").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Exempt ip 127.0.0.1 on all rules")).to_be_focused()
    dialog = press(page, "Exempt ip 127.0.0.1 on all rules")
    dialog.get_by_label("For how long").select_option("until a date")
    dialog.get_by_role("button", name="Exempt", exact=True).click()
    # What is wrong is told on the page that it would be without a script.
    expect(page.get_by_role("alert")).to_have_text("Say until when.")
    page.get_by_label("Until, if a date is chosen").fill("2090-01-02T03:04")
    page.get_by_role("button", name="Exempt", exact=True).click()
    expect(told(page)).to_contain_text("is exempt until Jan. 2, 2090")
    expect(page.locator(".sl-rule-head .sl-state")).to_have_text("exempt")


def test_without_the_dialogs_script_the_question_is_a_page(
    page: Page, ask: Callable[..., list[APIResponse]]
) -> None:
    ask()
    page.route("**/actions.js", lambda route: route.abort())
    page.goto(CLIENT)
    page.get_by_role("button", name="Block ip 127.0.0.1 on all rules").click()
    expect(page.get_by_role("heading", name="Block ip 127.0.0.1 on all rules?")).to_be_visible()
    page.get_by_role("link", name="Cancel").click()
    assert page.url.endswith(CLIENT)
    assert not Override.objects.exists()


def test_where_the_question_cannot_be_fetched_the_page_itself_is_asked(
    page: Page, ask: Callable[..., list[APIResponse]]
) -> None:
    ask()
    page.goto(CLIENT)
    page.route("**/block/?fragment=1", lambda route: route.abort())
    page.get_by_role("button", name="Block ip 127.0.0.1 on all rules").click()
    expect(page.get_by_role("heading", name="Block ip 127.0.0.1 on all rules?")).to_be_visible()
    assert page.url.endswith("/usage/block/")


def test_the_numbers_of_the_hour_stay_unfolded_across_refreshes(
    page: Page, ask: Callable[..., list[APIResponse]]
) -> None:
    ask(3)
    page.goto(CLIENT)
    page.locator(".sl-numbers summary").click()
    ask(2)
    expect(page.locator(".sl-numbers")).to_contain_text("5 within the limit", timeout=SOON)
    expect(page.get_by_role("table", name="The last hour on search")).to_be_visible()
    expect(page.locator("svg.sl-columns")).to_have_accessible_name(
        re.compile("The last hour on search, by the minute 5 within the limit")
    )
    expect(page.get_by_role("img", name="What counts on search")).to_have_accessible_name(
        re.compile("the last 1 h until now, covers what counts")
    )


def test_where_nothing_may_move_the_figures_still_follow(
    page: Page, ask: Callable[..., list[APIResponse]]
) -> None:
    ask(3)
    page.emulate_media(reduced_motion="reduce")
    page.goto(CLIENT)
    ask(4)
    expect(page.locator("[data-sl=used]")).to_have_text("7", timeout=SOON)
    now = page.locator("[data-sl=now]")
    expect(now).to_have_attribute("d", re.compile(r"^M[\d.]+ 100V0$"))
    width = page.locator("[data-sl=gauge-current]").get_attribute("width")
    assert float(width or 0) == pytest.approx(700, abs=5)


def tab_to(page: Page, element: Locator) -> None:
    """Press Tab until an element has the focus.

    Raises:
        AssertionError: it cannot be reached.
    """
    for _ in range(100):
        page.keyboard.press("Tab")
        if element.evaluate("(element) => element === document.activeElement"):
            return
    raise AssertionError(f"Tab does not reach {element}.")
