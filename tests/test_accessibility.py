"""The admin's pages under axe-core's automatic checks, in light and dark, wide and narrow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.urls import reverse
from playwright.sync_api import expect

from django_slidinglimit import connections, keeper, limiter
from django_slidinglimit.core.decisions import Client, Hit
from django_slidinglimit.models import Override, Rule
from django_slidinglimit.rules import compile_rule
from django_slidinglimit.usage import processes, recorder
from django_slidinglimit.usage.layout import rule_field
from tests.conftest import missing
from tests.recorded import record

if TYPE_CHECKING:
    from django.test import Client as Browser
    from playwright.sync_api import Page
    from pytest_django import Settings

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.scoped_site")]

ADMIN = "/admin/django_slidinglimit"
LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 400)]
# Faults of Django's own templates and sheets: axe's rule, and where they are.
DJANGOS_OWN = {
    # The label of the search is a picture; with a help text axe takes that for the only label.
    "label-title-only": "#searchbar",
    # Until Django 6.1 the links there differ from the text by their shade alone.
    "link-in-text-block": ".breadcrumbs",
}
# Under a theme other than Django's: what is ours. None of it stands on the form of an override.
OURS = ".sl, .sl-state, .sl-kind" if apps.is_installed("unfold") else "html"
# Unfold asks for the scheme once, when a page is loaded.
DARK = "(on) => document.documentElement.classList.toggle('dark', on)"
# Contrast in our pages that axe cannot judge, for something seems to lie above the text, is a fault
# as well; but a theme may have bars that stay above the page while it is scrolled.
FIND = """async ([ours, djangosOwn]) => {
  for (const each of document.getAnimations()) if (each instanceof CSSTransition) each.finish();
  if (!document.querySelector(ours)) return [];
  const found = await axe.run(ours, {resultTypes: ["violations", "incomplete"]});
  const faults = ({id, nodes}) => nodes.map((node) => ({id, target: node.target.join(" "), node}));
  const within = (fault, selector) => document.querySelector(fault.target).closest(selector);
  const unseen = ours !== "html" ? [] : found.incomplete
    .filter(({id}) => id === "color-contrast").flatMap(faults)
    .filter(({node}) => node.any.some(({data}) => data?.messageKey === "bgOverlap"))
    .filter((fault) => within(fault, ".sl"));
  const violations = found.violations.flatMap(faults)
    .filter((fault) => !(fault.id in djangosOwn && within(fault, djangosOwn[fault.id])));
  return [...violations, ...unseen].map(({id, target, node}) =>
    `${id} at ${target}: ${node.html} ${node.failureSummary}`);
}"""


# What of ours is wider than its place.
OVERFLOWING = """() => [...document.querySelectorAll(".sl")]
  .filter(({scrollWidth, clientWidth}) => scrollWidth > clientWidth)
  .map(({scrollWidth, clientWidth}) => `${scrollWidth} wide in ${clientWidth}`)"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, whose file the environment names."""
    path = os.environ.get("AXE_CORE")
    return Path(path).read_text() if path else missing("AXE_CORE names no axe.min.js")


@pytest.fixture
def rule(admin_client: Browser, settings: Settings) -> Rule:
    """A rule with a history and traffic, among rules in every state and overrides of each sort."""
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 5}
    rule = Rule.objects.create(name="Search", scope="search", rate="10/h", key="user")
    Rule.objects.create(name="Files", scope="site.list", rate="6/min", mode="observe")
    Rule.objects.create(name="Upload", path="/api/*", rate="6/min", share=20, key="ip")
    Rule.objects.create(name="Off", scope="site.nowhere", rate="6/min", mode="off")
    Rule.objects.bulk_create([Rule(name="Broken", scope="site.burst", rate="6/moon")])
    group = Group.objects.create(name="partners")
    for fields in (
        {"kind": "user", "identity": "3", "effect": "block", "reason": "abuse"},
        {"kind": "user", "identity": "2", "effect": "exempt", "rule": rule},
        {"group": group, "effect": "rate", "rate": "100/h"},
        {"network": "192.0.2.0/24", "effect": "exempt", "expires": "2020-01-01T00:00Z"},
    ):
        Override.objects.create(**fields)
    url = reverse("admin:django_slidinglimit_rule_changelist")
    for action in ("observe", "enforce"):
        admin_client.post(url, {"action": action, "_selected_action": [rule.pk]})
    compiled = compile_rule(rule).rule
    for identity, times in {"1": 3, "2": 2, "4": 9, "5": 12, "é" * 100: 1}.items():
        for _ in range(times):
            limiter.take([Hit(compiled, Client("user", identity))])
        record(compiled, Client("user", identity), times, ago=5)
    recorder.flush()
    return rule


def check(page: Page, axe: str) -> None:
    """Run axe on what a tab shows, in each look.

    Raises:
        AssertionError: it finds faults of ours.
    """
    faults: list[str] = []
    page.evaluate(axe)
    for scheme, width in LOOKS:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate(DARK, scheme == "dark")
        found: list[str] = page.evaluate(FIND, [OURS, DJANGOS_OWN])
        faults += [f"{scheme} {width}: {fault}" for fault in found]
        faults += [f"{scheme} {width}: {fault}" for fault in page.evaluate(OVERFLOWING)]
    assert not faults, "\n".join(faults)


PAGES = {
    "rules": "/rule/",
    "rule add": "/rule/add/",
    "rule change": "/rule/{pk}/change/",
    "rule history": "/rule/{pk}/history/",
    "explain": "/rule/explain/?path=/api/v1/ruled/3/&method=POST&user=admin",
    "explain error": "/rule/explain/?path=&method=POST&user=nobody&address=x",
    "overrides": "/override/",
    "override add": "/override/add/",
    "override change": "/override/{override}/change/",
    "usage": "/usage/",
    "usage of a rule": "/usage/rule/?rule=d{pk}",
    "nobody of a rule": "/usage/rule/?rule=d{pk}&text=nobody&order=over",
    "client": "/usage/client/?kind=user&identity=4",
}


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES.keys())
def test_axe_finds_no_fault_of_ours(page: Page, axe: str, rule: Rule, path: str) -> None:
    override = Override.objects.latest("pk").pk
    page.goto(ADMIN + path.format(pk=rule.pk, override=override))
    check(page, axe)


def test_axe_finds_no_fault_in_a_preview(page: Page, axe: str, rule: Rule) -> None:
    page.goto(f"{ADMIN}/rule/{rule.pk}/change/")
    page.locator("#id_rate").fill("5/min")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("table", name="Most affected")).to_be_visible()
    check(page, axe)


def tab_to(page: Page, name: str) -> None:
    """Press Tab until an element of this name has the focus.

    Raises:
        AssertionError: it cannot be reached.
    """
    named = (
        "(name) => (document.activeElement.ariaLabel ?? document.activeElement.innerText) === name"
    )
    for _ in range(100):
        page.keyboard.press("Tab")
        if page.evaluate(named, name):
            return
    raise AssertionError(f"Tab does not reach {name}.")


def test_the_keyboard_alone_previews_a_rule_and_restores_it(page: Page, rule: Rule) -> None:
    page.goto(f"{ADMIN}/rule/{rule.pk}/change/")
    tab_to(page, "Preview")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Preview")).to_be_visible()
    page.goto(f"{ADMIN}/rule/{rule.pk}/history/")
    name = page.get_by_role("button", name="Restore the state of").first.get_attribute("aria-label")
    assert name
    tab_to(page, name)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Restore an earlier state")).to_be_visible()
    tab_to(page, "Restore")
    page.keyboard.press("Enter")
    expect(page.get_by_text("is restored")).to_be_visible()
    rule.refresh_from_db()
    assert rule.mode == "observe"


def test_axe_finds_no_fault_where_a_reset_is_confirmed(page: Page, axe: str, rule: Rule) -> None:
    page.goto(f"{ADMIN}/usage/client/?kind=user&identity=4")
    page.get_by_role("button", name="Reset user 4 on Search").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    check(page, axe)


def test_axe_finds_no_fault_where_an_exemption_is_asked_for_and_can_be_undone(
    page: Page, axe: str, rule: Rule
) -> None:
    limiter.take([Hit(compile_rule(rule).rule, Client("user", "3"))])
    recorder.flush()
    page.goto(f"{ADMIN}/usage/client/?kind=user&identity=3")  # blocked on all rules
    page.locator("#exempt-all").click()
    expect(page.get_by_role("dialog")).to_contain_text("is stronger, and ends by it")
    page.get_by_label("For how long").select_option("until a date")
    check(page, axe)
    page.get_by_role("button", name="Exempt", exact=True).click()
    expect(page.get_by_role("alert")).to_be_visible()  # without a date
    check(page, axe)
    page.get_by_label("For how long").select_option("1 day")
    page.get_by_role("button", name="Exempt", exact=True).click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    page.locator("details summary").last.click()
    check(page, axe)


def test_axe_finds_no_fault_in_the_overview_unfolded(page: Page, axe: str, rule: Rule) -> None:
    store = connections.store()
    store.run([processes.beat(b"older"), ("SET", keeper.token_key(), "newer")])
    store.run([("HSET", f"{store.prefix}usage:dropped", rule_field(compile_rule(rule).rule), 1)])
    page.goto(f"{ADMIN}/usage/")
    for name in ("1 seen, 1 behind", "The same numbers in a table"):
        page.get_by_text(name).click()
    expect(page.get_by_role("table").filter(has_text="behind")).to_be_visible()
    expect(page.get_by_text("clients not kept")).to_be_visible()
    check(page, axe)


def test_axe_finds_no_fault_in_an_overview_without_rules(page: Page, axe: str) -> None:
    page.goto(f"{ADMIN}/usage/")
    expect(page.get_by_role("link", name="Add a rule")).to_be_visible()
    check(page, axe)
