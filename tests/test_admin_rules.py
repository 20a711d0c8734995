"""The rules in the admin."""

from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client as Browser
from django.test import override_settings
from django.urls import reverse
from redis import Redis

from django_slidinglimit import keeper, rules
from django_slidinglimit.models import Rule
from tests.operators import staff

pytestmark = pytest.mark.django_db

LIST = reverse("admin:django_slidinglimit_rule_changelist")
ADD = reverse("admin:django_slidinglimit_rule_add")
FORM = {
    "name": "Search",
    "scope": "search",
    "rate": "100/min",
    "mode": "enforce",
    "share": "100",
    "no_identity": "together",
    "when_down": "allow",
}


def act(browser: Browser, action: str, *selected: Rule) -> Any:
    data = {"action": action, "_selected_action": [rule.pk for rule in selected]}
    return browser.post(LIST, data, follow=True)


def text_of(response: Any) -> str:
    return unescape(response.content.decode())


def test_a_rule_is_added_and_listed(admin_client: Browser) -> None:
    response = admin_client.post(ADD, FORM, follow=True)
    assert response.status_code == 200
    assert str(rules.compile_rule(Rule.objects.get()).rule.rate) == "100/min"
    for shown in ("Search", "scope", "search", "100/min", "as the place counts", "enforced"):
        assert shown in text_of(response)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rate": "10/month"}, "'month' in '10/month' is not a unit"),
        ({"key": "myapp.keys.tenant"}, "'myapp.keys.tenant' is not a key. Known: ip, user"),
        ({"methods": "GET, FETCH"}, "'FETCH' is not a method"),
        ({"scope": "", "path": "api/<int:"}, "is not a path pattern"),
        ({"path": "api/*"}, "Give either a scope or a path."),
        ({"scope": ""}, "Give either a scope or a path."),
    ],
)
def test_a_wrong_field_is_named_and_nothing_saved(
    admin_client: Browser, wrong: dict[str, str], message: str
) -> None:
    response = admin_client.post(ADD, {**FORM, **wrong})
    assert message in text_of(response)
    assert not Rule.objects.exists()


def test_the_form_says_what_a_rule_replaces_and_adds(admin_client: Browser) -> None:
    form = text_of(admin_client.get(ADD))
    assert "replaces the rates that the code sets there for the same key" in form
    assert "another key adds a limit" in form
    assert "only in views that use RuleThrottle" in form


def test_the_forms_help_shows_its_angle_brackets(admin_client: Browser) -> None:
    form = admin_client.get(ADD).content.decode()
    assert "api/items/&lt;int:pk&gt;/" in form
    assert "header:&lt;name&gt;" in form


def test_the_list_tells_why_a_row_is_left_out(admin_client: Browser) -> None:
    Rule.objects.bulk_create(
        [
            Rule(name="Broken", scope="x", rate="5/fortnight"),
            Rule(name="<b>", scope="<i>", rate="5/min", key="<u>"),
        ]
    )
    response = admin_client.get(LIST)
    assert "left out:" in text_of(response)
    assert "'fortnight' in '5/fortnight' is not a unit" in text_of(response)
    assert b"<u>" not in response.content
    assert b"<i>" not in response.content


def test_the_list_is_searched_and_filtered(admin_client: Browser) -> None:
    Rule.objects.create(name="One", scope="search", rate="5/min")
    Rule.objects.create(name="Two", path="api/*", rate="5/min", mode="observe")
    assert [r.name for r in admin_client.get(LIST, {"q": "api"}).context["cl"].result_list] == [
        "Two"
    ]
    found = admin_client.get(LIST, {"mode__exact": "enforce"}).context["cl"].result_list
    assert [rule.name for rule in found] == ["One"]


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ("enforce", "off", "enforce"),
        ("observe", "enforce", "observe"),
        ("switch_off", "enforce", "off"),
    ],
)
def test_an_action_switches_the_selected_rules_and_writes_their_history(
    admin_client: Browser, action: str, before: str, after: str
) -> None:
    one = Rule.objects.create(name="One", scope="a", rate="5/min", mode=before)
    two = Rule.objects.create(name="Two", scope="b", rate="5/min", mode=before)
    rest = Rule.objects.create(name="Rest", scope="c", rate="5/min", mode=before)
    response = act(admin_client, action, one, two)
    assert f"2 rules are now set to {after}." in text_of(response)
    assert [rule.mode for rule in Rule.objects.order_by("scope")] == [after, after, before]
    assert {entry.object_id for entry in LogEntry.objects.all()} == {str(one.pk), str(two.pk)}
    assert {entry.get_change_message() for entry in LogEntry.objects.all()} == {
        f"Changed mode: {before} → {after}."
    }
    assert Rule.objects.get(pk=one.pk).updated > one.updated
    rest.refresh_from_db()
    assert rest.mode == before


def test_an_action_leaves_rules_alone_that_are_in_that_mode_already(
    admin_client: Browser,
) -> None:
    rule = Rule.objects.create(name="One", scope="a", rate="5/min")
    assert "0 rules are now set to enforce." in text_of(act(admin_client, "enforce", rule))
    assert not LogEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_action_tells_every_process(admin_client: Browser, redis_client: Redis) -> None:
    rule = Rule.objects.create(name="One", scope="a", rate="5/min")
    before = redis_client.get(keeper.token_key())
    act(admin_client, "switch_off", rule)
    assert redis_client.get(keeper.token_key()) not in (None, before)


def test_who_may_only_look_has_no_actions() -> None:
    rule = Rule.objects.create(name="One", scope="a", rate="5/min")
    browser = staff("view_rule")
    assert "Switch off" not in text_of(browser.get(LIST))
    act(browser, "switch_off", rule)
    assert Rule.objects.get().mode == "enforce"
    assert staff_can_change("switch_off", rule) == "off"


def staff_can_change(action: str, rule: Rule) -> str:
    User.objects.all().delete()
    act(staff("view_rule", "change_rule"), action, rule)
    return Rule.objects.get(pk=rule.pk).mode


@pytest.mark.parametrize("key", ["ip", "user_or_ip"])
def test_a_rule_by_address_warns_where_no_proxy_is_trusted(admin_client: Browser, key: str) -> None:
    warning = 'SLIDINGLIMIT["TRUSTED_PROXIES"] is empty'
    assert warning in text_of(admin_client.post(ADD, {**FORM, "key": key}, follow=True))
    proxies = {"RULES_POLL": 0, "TRUSTED_PROXIES": ["10.0.0.0/8"]}
    with override_settings(SLIDINGLIMIT=proxies):
        assert warning not in text_of(admin_client.post(ADD, {**FORM, "key": key}, follow=True))
    assert warning not in text_of(admin_client.post(ADD, {**FORM, "key": "user"}, follow=True))


def test_the_bar_of_actions_stands_on_top_alone(admin_client: Browser) -> None:
    Rule.objects.create(name="One", scope="a", rate="5/min")
    page = admin_client.get(LIST).content.decode()
    assert page.count('name="action"') == 1
    assert "style=" not in page
