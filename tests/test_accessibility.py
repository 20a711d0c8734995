"""The admin's pages under axe-core's automatic checks, in light and dark, wide and narrow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.urls import reverse
from playwright.sync_api import expect

from django_slidinglimit import limiter
from django_slidinglimit.core.decisions import Client, Hit
from django_slidinglimit.models import Override, Rule
from django_slidinglimit.rules import compile_rule
from django_slidinglimit.usage import recorder
from tests.conftest import missing
from tests.recorded import record

if TYPE_CHECKING:
    from django.test import Client as Browser
    from playwright.sync_api import Page

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.scoped_site")]

ADMIN = "/admin/django_slidinglimit"
LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 400)]
# Faults of the admin's own templates, on elements that are not ours: axe's rule, and the element.
DJANGOS_OWN = {
    # The label of the search is a picture; with a help text axe takes that for the only label.
    ("label-title-only", "#searchbar"),
}
# Contrast that axe cannot judge, for something seems to lie above the text, is a fault as well.
FIND = """async () => {
  for (const each of document.getAnimations()) if (each instanceof CSSTransition) each.finish();
  const found = await axe.run(document, {resultTypes: ["violations", "incomplete"]});
  const unseen = found.incomplete.filter(({id}) => id === "color-contrast").map((fault) => ({
    ...fault,
    nodes: fault.nodes.filter((node) =>
      node.any.some(({data}) => data?.messageKey === "bgOverlap")),
  }));
  return [...found.violations, ...unseen].flatMap(({id, nodes}) =>
    nodes.map(({target, html, failureSummary}) =>
      ({id, target: target.join(" "), html, summary: failureSummary})));
}"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, whose file the environment names."""
    path = os.environ.get("AXE_CORE")
    return Path(path).read_text() if path else missing("AXE_CORE names no axe.min.js")


@pytest.fixture
def rule(admin_client: Browser) -> Rule:
    """A rule with a history and traffic, among rules in every state and overrides of each sort."""
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
        found: list[dict[str, Any]] = page.evaluate(FIND)
        faults += [
            f"{scheme} {width}: {fault['id']} at {fault['target']}: {fault['html']}\n"
            f"{fault['summary']}"
            for fault in found
            if (fault["id"], fault["target"]) not in DJANGOS_OWN
        ]
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
    "client": "/usage/client/?kind=user&identity=4",
}


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES.keys())
def test_axe_finds_no_fault_of_ours(page: Page, axe: str, rule: Rule, path: str) -> None:
    override = Override.objects.latest("pk").pk
    page.goto(ADMIN + path.format(pk=rule.pk, override=override))
    check(page, axe)


def test_axe_finds_no_fault_in_a_preview(page: Page, axe: str, rule: Rule) -> None:
    page.goto(f"{ADMIN}/rule/{rule.pk}/change/")
    page.get_by_label("Rate:").fill("5/min")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("table", name="Most affected")).to_be_visible()
    check(page, axe)
