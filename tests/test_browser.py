"""The admin's pages in Chromium, under a strict Content-Security-Policy."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from django_slidinglimit import limiter
from django_slidinglimit.admin.charts import picture
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.window import Reading
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.rules import compile_rule
from django_slidinglimit.usage import recorder
from tests.recorded import record

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.admin_site"),
    pytest.mark.usefixtures("patient"),
]

OVERVIEW = "/admin/django_slidinglimit/usage/"
CLIENT = "/admin/django_slidinglimit/usage/client/?kind=ip&identity=127.0.0.1"
# Enough for a refresh or two on a busy machine.
SOON = 15_000


@pytest.fixture
def ask(page: Page) -> Callable[[int], list[int]]:
    """Send so many real requests to the limited view, and give their statuses."""

    def send(times: int) -> list[int]:
        found = [page.request.get("/search/").status for _ in range(times)]
        recorder.flush()
        return found

    return send


def test_the_client_pages_figures_change_without_a_reload(
    page: Page, ask: Callable[[int], list[int]]
) -> None:
    ask(3)
    page.goto(CLIENT)
    page.evaluate("window.slSame = true")
    expect(page.locator("[data-sl=used]")).to_have_text("3")
    assert ask(9) == [200] * 7 + [429] * 2
    expect(page.locator("[data-sl=used]")).to_have_text("10", timeout=SOON)
    expect(page.locator(".sl-rule-head .sl-state")).to_have_text("limited")
    expect(page.locator("[data-sl=left]")).to_have_text("0")
    assert page.evaluate("window.slSame")


def test_the_overview_shows_who_is_refused_without_a_reload(
    page: Page, ask: Callable[[int], list[int]]
) -> None:
    page.goto(OVERVIEW)
    assert ask(12)[-2:] == [429] * 2
    row = page.get_by_role("row", name="127.0.0.1")
    expect(row).to_contain_text("limited search 10/h 2", timeout=SOON)
    page.get_by_role("link", name="search", exact=True).click()
    expect(page.get_by_role("row", name="127.0.0.1")).to_contain_text("10 of 10")


def test_the_rules_list_and_form_work_under_the_policy(page: Page) -> None:
    row = Row.objects.create(name="Search", scope="search", rate="5/min")
    page.goto("/admin/django_slidinglimit/rule/")
    expect(page.get_by_text("enforced")).to_be_visible()
    page.goto(f"/admin/django_slidinglimit/rule/{row.pk}/change/")
    rate = page.get_by_label("Rate:")
    echo = page.locator(".sl-echo")
    expect(echo).to_have_text("5 requests in 60 s, about 5 a minute")
    for typed, said in {
        "100/min": "100 requests in 60 s, about 1.7 a second",
        " 1000 / Day ": "1000 requests in 86400 s, about 42 an hour",
        "10/5m": "10 requests in 300 s, about 2 a minute",
        "1/2w": "1 requests in 1209600 s, about 0.5 a week",
        "0/s": "Refuses every request.",
        "5/ms": "",
        "5/0s": "",
        "ten": "",
    }.items():
        rate.fill(typed)
        expect(echo).to_have_text(said)


def test_the_keyboard_alone_resets_a_client(page: Page, ask: Callable[[int], list[int]]) -> None:
    ask(11)
    page.goto(OVERVIEW)
    button = page.get_by_role("button", name="Reset ip 127.0.0.1 on search")
    for _ in range(60):
        page.keyboard.press("Tab")
        if button.evaluate("(element) => element === document.activeElement"):
            break
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Reset ip 127.0.0.1 on search?")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Reset", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".messagelist")).to_have_text(
        re.compile(r"Ip 127\.0\.0\.1 starts afresh on search\.")
    )
    assert ask(1) == [200]


def test_a_paused_page_stays_as_it_is_until_it_is_resumed(
    page: Page, ask: Callable[[int], list[int]]
) -> None:
    ask(2)
    page.goto(CLIENT)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_have_text("Paused.")
    ask(3)
    page.wait_for_timeout(3000)  # longer than the interval
    expect(page.locator("[data-sl=used]")).to_have_text("2")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("[data-sl=used]")).to_have_text("5", timeout=SOON)
    expect(page.get_by_role("status")).to_have_text("Live again.")


def test_the_script_draws_what_the_server_draws_and_moves_on_by_time(
    page: Page, ask: Callable[[int], list[int]]
) -> None:
    ask(1)
    page.goto(CLIENT)
    page.get_by_role("button", name="Pause").click()

    def drawn_at(elapsed: int) -> dict[str, dict[str, float]]:
        """The shapes of a counter read just now: 80 before, 30 now, a limit of 100 an hour."""
        given = {"limit": 100, "window": 3_600_000, "previous": 80, "current": 30, "free": 0}
        given["elapsed"] = elapsed
        page.evaluate(
            """(data) => {
                const live = document.querySelector("[data-sl-live]");
                data.began = Number(live.dataset.ahead) + performance.now() - data.elapsed;
                Object.assign(live.querySelector("[data-sl-picture]").dataset, data);
                live.dataset.slState = "live";
                live.dispatchEvent(new CustomEvent("sl:shown"));
            }""",
            given,
        )
        page.wait_for_timeout(200)
        found: dict[str, dict[str, float]] = page.evaluate(
            """() => Object.fromEntries([...document.querySelectorAll("svg [data-sl]")].map(
                (shape) => [shape.dataset.sl, Object.fromEntries([...shape.attributes].filter(
                    ({name}) => ["x", "y", "width", "height"].includes(name)
                ).map(({name, value}) => [name, Number(value)]))]
            ))"""
        )
        return found

    drawn = drawn_at(900_000)
    ours = picture(Rate(100, 3_600_000), Reading(80, 30, 900_000))
    for name, box in {
        "slid": ours.slid,
        "counted-block": ours.counted,
        "current-block": ours.current,
        "sliding": ours.sliding,
        "gauge-counted": ours.gauge_counted,
        "gauge-current": ours.gauge_current,
    }.items():
        for attribute, value in drawn[name].items():
            if name != "sliding" or attribute in ("x", "width"):
                assert value == pytest.approx(getattr(box, attribute), abs=0.5), (name, attribute)
    sentence = page.locator(".sl-sentence")
    expect(sentence).to_contain_text("60 of the previous 80 still count, 30 now: 90 of")

    drawn = drawn_at(3_599_900)  # the window ends while one looks
    expect(sentence).to_contain_text("30 of the previous 30 still count, 0 now: 30 of")
    assert drawn["counted-block"]["width"] == pytest.approx(500, abs=1)


def test_odd_identities_are_links_that_lead_to_their_page(page: Page) -> None:
    rule = Rule("c1", Rate(10, 3_600_000), "list")
    odd = ["2001:db8::/64", "a/b?c#d", "<script>alert(1)</script>", "..", "🦊", "é" * 128]
    for identity in odd:
        limiter.take([Hit(rule, Client("key", identity))])
        record(rule, Client("key", identity), used=10)
    recorder.flush()
    for identity in odd:
        page.goto(OVERVIEW)
        page.get_by_role("link", name=identity, exact=True).click()
        expect(page.locator(".sl-client-line code")).to_have_text(identity)
        expect(page.locator("[data-sl=used]")).to_have_text("1")


@pytest.mark.urls("tests.scoped_site")
def test_the_page_on_rules_works_by_keyboard_under_the_policy(page: Page) -> None:
    Row.objects.create(name="Files", scope="site.list", rate="6/min")
    Row.objects.create(name="Lost", scope="site.nowhere", rate="6/min")
    page.goto("/admin/django_slidinglimit/rule/")
    expect(page.locator(".sl-mark")).to_have_text("nothing in the code is known to have it")
    page.get_by_role("link", name="Which rules apply?").click()
    page.get_by_label("Path").fill("/api/v1/files/")
    page.keyboard.press("Enter")
    expect(page.get_by_role("row", name="Files 6/min")).to_contain_text("replaces the code's rate")
    page.goto("/admin/django_slidinglimit/rule/add/")
    assert page.get_by_label("Scope:").evaluate("(e) => e.list.options.length") > 5
    page.get_by_text("Scopes in the code").click()
    expect(page.get_by_text("Burst on tests.scoped_site.Files.later")).to_be_visible()


def test_the_form_of_an_override_asks_only_for_what_its_choices_need(page: Page) -> None:
    page.goto("/admin/django_slidinglimit/override/add/")
    fields = {
        name: page.locator(f"#id_{name}")
        for name in ("kind", "identity", "group", "network", "rate")
    }

    def shown() -> set[str]:
        return {name for name, field in fields.items() if field.is_visible()}

    assert shown() == set()
    for choice, asked in {
        "a group of users": {"group"},
        "a network of IP addresses": {"network"},
        "requests that lack": {"kind"},
        "everyone": set(),
        "one client": {"kind", "identity"},
    }.items():
        page.get_by_label(choice).check()
        assert shown() == asked
    fields["kind"].fill("global")
    assert shown() == {"kind"}
    page.get_by_label("another rate").check()
    assert shown() == {"kind", "rate"}
    page.get_by_label("block").check()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".messagelist")).to_contain_text("block for global")
    expect(page.get_by_role("row", name="all clients together")).to_contain_text("blocked")


def test_the_preview_stands_on_the_form_and_is_asked_anew(page: Page) -> None:
    row = Row.objects.create(name="Search", scope="search", rate="100/min")
    for number in range(3):
        record(compile_rule(row).rule, Client("user", str(number)), 4 * number + 2, ago=5)
    page.goto(f"/admin/django_slidinglimit/rule/{row.pk}/change/")
    region = page.get_by_role("region", name="Preview")
    expect(region).to_be_hidden()
    page.get_by_label("Rate:").fill("5/min")
    page.get_by_role("button", name="Preview").press("Enter")
    expect(region).to_contain_text("5/min would have refused 6 of 18 requests")
    expect(region.get_by_role("img", name="Clients and the limit of 5/min")).to_be_visible()
    expect(region.get_by_role("table", name="Most affected").get_by_role("row")).to_have_count(3)
    changed = page.get_by_role("status").filter(has_text="The form has changed since")
    expect(changed).to_be_hidden()
    page.get_by_label("Rate:").fill("8/min")
    expect(changed).to_be_visible()
    page.get_by_role("button", name="Preview").click()
    expect(region).to_contain_text("8/min would have refused 2 of 18 requests")
    expect(changed).to_be_hidden()
    page.get_by_label("Rate:").fill("8/moon")
    page.get_by_role("button", name="Preview").click()
    expect(region).to_contain_text("'moon' in '8/moon' is not a unit")
    assert page.url.endswith(f"/rule/{row.pk}/change/")
    User.objects.update(is_superuser=False)
    page.get_by_role("button", name="Preview").click()
    expect(region).to_contain_text("You are signed out, or may not do this any more.")
    row.refresh_from_db()
    assert row.rate == "100/min"


def test_the_share_is_asked_for_where_a_rule_enforces_alone(page: Page) -> None:
    page.goto("/admin/django_slidinglimit/rule/add/")
    share = page.get_by_label("Enforced for:")
    expect(page.get_by_label("Mode:")).to_have_value("observe")
    expect(share).to_be_hidden()
    page.get_by_label("Mode:").select_option("enforce")
    expect(share).to_be_visible()
    expect(share).to_have_value("100")
