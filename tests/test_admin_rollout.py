"""Rules are tried out before they bite: what the form and the list say of that."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client as Browser
from django.test import override_settings
from django.urls import reverse
from django.utils import timezone

from django_slidinglimit.admin.rollout import tightened
from django_slidinglimit.core.decisions import Client
from django_slidinglimit.models import Rule
from django_slidinglimit.rules import compile_rule
from tests.recorded import record

pytestmark = pytest.mark.django_db

LIST = reverse("admin:django_slidinglimit_rule_changelist")
ADD = reverse("admin:django_slidinglimit_rule_add")
AWAY = {
    "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
}


def text_of(response: Any) -> str:
    text = unescape(re.sub(r"<[^>]*>", " ", response.content.decode()))
    return re.sub(r"\s+", " ", text)


def form_of(row: Rule) -> str:
    return reverse("admin:django_slidinglimit_rule_change", args=[row.pk])


def observing(**fields: Any) -> Rule:
    return Rule.objects.create(
        **{"name": "Search", "scope": "search", "rate": "3/min", "mode": "observe", **fields}
    )


def save(browser: Browser, row: Rule, **changes: Any) -> str:
    """Send the row's form with changes, and give the page that follows."""
    form = browser.get(form_of(row)).context["adminform"].form
    sent = {name: value for name, value in form.initial.items() if value is not None}
    sent |= {name: form[name].value() for name in form.fields if name not in sent}
    return text_of(browser.post(form_of(row), {**sent, **changes}, follow=True))


def test_the_form_of_a_new_rule_proposes_to_observe(admin_client: Browser) -> None:
    form = admin_client.get(ADD)
    assert form.context["adminform"].form["mode"].value() == "observe"
    assert "Begin with observe" in text_of(form)
    asked = admin_client.get(ADD, {"mode": "off"})
    assert asked.context["adminform"].form["mode"].value() == "off"
    assert Rule(name="x", scope="x", rate="5/min").mode == "enforce"  # in code as ever


def test_beside_enforce_stands_what_the_rule_has_seen(admin_client: Browser) -> None:
    row = observing()
    Rule.objects.update(updated=timezone.now() - timedelta(days=3, hours=2))
    rule = compile_rule(row).rule
    for number in range(9):
        record(rule, Client("user", str(number)), 10, ago=number)
    record(rule, Client("user", "quiet"), 2)
    seen = "In the last hour it would have refused 63 of 92 requests (68%), of 9 clients."
    assert f"In observe for 3 days. {seen}" in text_of(admin_client.get(form_of(row)))
    assert "63 of 92 over it in the last hour" in text_of(admin_client.get(LIST))


def test_it_has_observed_since_the_history_says_so(admin_client: Browser) -> None:
    row = observing(mode="enforce")
    save(admin_client, row, mode="observe")
    LogEntry.objects.update(action_time=timezone.now() - timedelta(days=5, hours=2))
    save(admin_client, row, description="Trying it out")  # which changes the row, not the mode
    assert "In observe for 5 days." in text_of(admin_client.get(form_of(row)))
    save(admin_client, row, mode="enforce")
    save(admin_client, row, mode="observe")
    assert "In observe for 0 minutes." in text_of(admin_client.get(form_of(row)))


def test_a_rule_that_was_never_edited_observes_since_it_was_saved(admin_client: Browser) -> None:
    row = observing()
    Rule.objects.update(updated=timezone.now() - timedelta(hours=4, minutes=1))
    page = text_of(admin_client.get(form_of(row)))
    assert "In observe for 4 hours. It has counted no request in the last hour." in page
    assert "over it in the last hour" not in text_of(admin_client.get(LIST))


def test_a_rule_made_in_the_admin_observes_since_then(admin_client: Browser) -> None:
    form = {"name": "A", "scope": "a", "rate": "5/min", "mode": "observe", "share": "100"}
    admin_client.post(ADD, {**form, "no_identity": "together", "when_down": "allow"})
    LogEntry.objects.update(action_time=timezone.now() - timedelta(days=2, hours=1))
    assert "In observe for 2 days." in text_of(admin_client.get(form_of(Rule.objects.get())))


def test_an_enforced_rule_says_nothing_of_it(admin_client: Browser) -> None:
    assert "In observe for" not in text_of(admin_client.get(form_of(observing(mode="enforce"))))


def test_why_it_is_not_known_is_said(admin_client: Browser) -> None:
    row = observing()
    with override_settings(CACHES=AWAY):
        assert "what it has seen is not known" in text_of(admin_client.get(form_of(row)))
        assert "only observed" in text_of(admin_client.get(LIST))
    with override_settings(SLIDINGLIMIT={"RULES_POLL": 0, "USAGE": False}):
        assert 'SLIDINGLIMIT["USAGE"] is False' in text_of(admin_client.get(form_of(row)))
    Rule.objects.update(rate="5/fortnight")
    assert "so it sees nothing" in text_of(admin_client.get(form_of(row)))
    assert "left out" in text_of(admin_client.get(LIST))


@pytest.mark.parametrize(
    ("before", "after", "warns"),
    [
        ("100/min", "49/min", True),
        ("100/min", "50/min", False),
        ("100/min", "100/3m", True),
        ("100/min", "3000/h", False),
        ("100/min", "2999/h", True),
        ("100/min", "0/min", True),
        ("0/min", "0/min", False),
        ("5/min", "100/min", False),
        ("5/fortnight", "1/day", False),
    ],
)
def test_a_rate_is_tightened_where_less_than_half_is_left(
    before: str, after: str, warns: bool
) -> None:
    assert bool(tightened(before, after)) == warns


def test_tightening_an_enforced_rule_by_more_than_half_warns(admin_client: Browser) -> None:
    warning = "admits less than half of what it did: 100/min became 40/min."
    row = observing(rate="100/min", mode="enforce")
    assert warning in save(admin_client, row, rate="40/min")
    assert Rule.objects.get().rate == "40/min"
    for mode, then in (("observe", "enforce"), ("enforce", "observe"), ("observe", "observe")):
        Rule.objects.update(rate="100/min", mode=mode)
        assert warning not in save(admin_client, row, rate="40/min", mode=then)
    Rule.objects.update(rate="100/min", mode="enforce")
    assert "less than half" not in save(admin_client, row, rate="60/min")


def test_a_share_is_edited_and_shown(admin_client: Browser) -> None:
    row = observing(mode="enforce")
    save(admin_client, row, share="30")
    assert Rule.objects.get().share == 30
    assert "enforced for 30% of clients" in text_of(admin_client.get(LIST))
    for wrong in ("0", "101", ""):
        save(admin_client, row, share=wrong)
        assert Rule.objects.get().share == 30
    Rule.objects.update(mode="observe")
    assert "30%" not in text_of(admin_client.get(LIST))


def test_the_list_reads_what_rules_saw_in_a_few_trips(admin_client: Browser) -> None:
    for number in range(30):
        row = observing(name=f"Rule {number}")
        record(compile_rule(row).rule, Client("user", "1"), 5)
    assert text_of(admin_client.get(LIST)).count("2 of 5 over it in the last hour") == 30
