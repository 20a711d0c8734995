"""The page of one rule, as a browser without JavaScript gets it."""

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser
from django.test import override_settings
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries, Settings
from redis import Redis

from django_slidinglimit import clients, connections, limiter
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.models import Override
from django_slidinglimit.usage import recorder
from django_slidinglimit.usage.layout import rule_field
from tests.odd import ODD
from tests.operators import staff, text_of
from tests.recorded import ask, stored

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("patient")]

RULE = reverse("admin:django_slidinglimit_usage_rule")
CLIENT = reverse("admin:django_slidinglimit_usage_client")
RESET, BLOCK, END = (
    reverse(f"admin:django_slidinglimit_usage_{action}") for action in ("reset", "block", "end")
)
LIST = Rule("c1", Rate(10, 3_600_000), "list")
MARIA = Client("user", "77")


def look(browser: Browser, rule: Rule = LIST, /, **query: str) -> Any:
    key = rule.id if rule.id.startswith("d") else rule_field(rule)
    return browser.get(RULE, {"rule": key, **query})


def links(response: Any) -> dict[str, dict[str, str]]:
    """The queries of the page's own links, by their ids."""
    found = re.findall(r'<a id="([^"]+)"[^>]* href="(\?[^"]*)"', response.content.decode())
    found += re.findall(
        r'<a id="([^"]+)" class="[^"]*" href="(\?[^"]*)"', response.content.decode()
    )
    return {
        name: {part: values[0] for part, values in parse_qs(urlsplit(unescape(href)).query).items()}
        for name, href in found
    }


def test_it_lists_the_rules_clients_with_their_numbers(admin_client: Browser) -> None:
    ask(LIST, MARIA, 12)
    ask(LIST, Client("ip", "192.0.2.1"), 3)
    page = text_of(look(admin_client))
    assert "10/h set in code" in page
    assert "The last hour: 13 within the limit, 2 over it; at most" in page
    assert "1 to 2 of 2 clients" in page
    assert re.search(r"user 77 limited 10 of 10 0 \d+ (min|h|s).* 10 2 Reset Block…", page)
    assert "ip 192.0.2.1 ok 3 of 10 7 now 3 0 Reset Block…" in page


def test_it_says_where_a_rule_of_the_database_holds(admin_client: Browser) -> None:
    rule = stored(key="user_or_ip", methods="POST", mode="observe")
    ask(rule, MARIA, 12)
    response = look(admin_client, rule)
    form = reverse("admin:django_slidinglimit_rule_change", args=[rule.id[1:]])
    assert f'href="{form}"' in response.content.decode()
    page = text_of(response)
    assert "10/h only observed scope search · POST · counts by user_or_ip Open the rule" in page
    assert "The last hour: 10 within the limit, 2 over it" in page
    assert "Would refuse" in page
    assert "user 77 over, observed 10 of 10" in page
    other = stored(name="Other", scope="", path="/api/*", share=20)
    assert "enforced path /api/* · counts as the place does · for 20% of the clients" in text_of(
        look(admin_client, other)
    )


def test_a_field_of_a_row_leads_to_the_rule_too(admin_client: Browser) -> None:
    rule = stored()
    ask(rule, MARIA)
    page = admin_client.get(RULE, {"rule": rule_field(rule)})
    assert "user 77 ok 1 of 10" in text_of(page)


@pytest.mark.parametrize(
    ("key", "status"),
    [("", 400), ("x", 400), ("d", 400), ("c1:5", 400), ("d\u0661", 400), ("d999", 404)],
)
def test_an_address_without_a_rule_is_refused(admin_client: Browser, key: str, status: int) -> None:
    assert admin_client.get(RULE, {"rule": key}).status_code == status


@pytest.mark.parametrize("client", ODD, ids=ascii)
def test_any_identity_is_listed_linked_opened_and_acted_upon(
    admin_client: Browser, client: Client
) -> None:
    rule = stored()
    ask(rule, client, 4)
    page = look(admin_client, rule).content.decode()
    assert "<script>alert" not in page
    [href] = re.findall(rf'href="({CLIENT}[^"]*)"', page)
    assert admin_client.get(unescape(href)).status_code == 200
    targets = dict(re.findall(r'name="target" value="([^"]*)" id="(reset|block)', page))
    for target, action in targets.items():
        data = {"target": unescape(target)}
        asked = admin_client.post({"reset": RESET, "block": BLOCK}[action], data)
        assert asked.status_code == 200
        assert "<script>alert" not in asked.content.decode()
    [target, *_] = targets
    admin_client.post(RESET, {"target": unescape(target), "confirmed": "yes"})
    answer = connections.store().peek([Hit(rule, client)]).answers[0]
    assert answer.verdict.remaining == 10


def test_a_user_is_named_and_found_by_name_by_those_who_may_see_users() -> None:
    maria, marek = (User.objects.create_user(name) for name in ("maria", "marek"))
    for client in (maria.pk, marek.pk, "not-a-number", "9" * 30):
        ask(LIST, Client("user", str(client)))
    browser = staff("view_usage", "view_user")
    assert "user maria ok 1 of 10" in text_of(look(browser))
    assert "1 to 2 of 2 clients" in text_of(look(browser, text="mar"))
    page = text_of(look(browser, text="maria"))
    assert "user maria ok 1 of 10" in page
    assert "1 to 1 of 1 clients" in page
    User.objects.get(username="staff").delete()
    browser = staff("view_usage")
    page = look(browser).content.decode()
    assert "maria" not in page
    assert f"<bdi>{maria.pk}</bdi>" in page
    assert "No client of this rule matches." in text_of(look(browser, text="maria"))


def test_a_secret_is_told_and_found_by_its_end(admin_client: Browser) -> None:
    client = clients.concealed("header:x-api-key", "a-long-secret-9f31")
    ask(LIST, client)
    ask(LIST, MARIA)
    for text in ("9f31", client.identity[:6], "a-long-secret-9f31"):
        response = look(admin_client, text=text)
        assert f"header:x-api-key …9f31 ({client.identity[:6]}) ok" in text_of(response)
        assert "1 to 1 of 1 clients" in text_of(response)


def test_a_hashed_client_is_said_to_be_one_and_found_by_what_it_was(
    admin_client: Browser, settings: Settings
) -> None:
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 10, "USAGE_HASHED": True}
    maria = User.objects.create_user("maria")
    ask(LIST, Client("ip", "192.0.2.1"), 12)
    ask(LIST, Client("user", str(maria.pk)), 3)
    response = look(admin_client)
    page = text_of(response)
    assert "192.0.2.1" not in page
    assert re.search(r"ip, hashed [0-9a-f]{16} limited 10 of 10", page)
    assert '<option value="hashed:ip">ip, hashed</option>' in response.content.decode()
    assert "Block…" not in page
    for text, kind, used in (
        ("192.0.2.1", "", 10),
        ("192.0.2.1", "hashed:ip", 10),
        ("maria", "", 3),
    ):
        page = text_of(look(admin_client, text=text, kind=kind))
        assert "1 to 1 of 1 clients" in page
        assert f"{used} of 10" in page
    Override.objects.create(kind="ip", identity="192.0.2.1", effect="block")
    assert "ip 192.0.2.1 blocked" in text_of(look(admin_client, state="blocked"))


@override_settings(USE_THOUSAND_SEPARATOR=True, LANGUAGE_CODE="de")
def test_it_is_drawn_with_plain_numbers_in_any_language(admin_client: Browser) -> None:
    rule = Rule("c1", Rate(3000, 3_600_000), "list")
    limiter.take([Hit(rule, MARIA, 1500)])
    recorder.flush()
    page = look(admin_client, rule).content.decode()
    assert re.findall(r'class="sl-fill" width="([^"]*)"', page) == ["50.0"]
    assert 'viewBox="0 0 60 100"' in page
    assert "1.500" in text_of(look(admin_client, rule))


def test_orders_and_filters_stand_in_the_address_and_go_on_in_the_links(
    admin_client: Browser,
) -> None:
    for n in range(51):
        ask(LIST, Client("ip", f"192.0.2.{n}"))
    ask(LIST, Client("ip", "198.51.100.1"), 12)
    response = look(admin_client, kind="ip", text="192", order="over", page="2")
    assert "51 to 51 of 51 clients" in text_of(response)
    assert "Page 2 of 2" in text_of(response)
    kept = {"rule": rule_field(LIST), "kind": "ip", "text": "192"}
    assert links(response) == {
        "order-used": kept,
        "order-over": {**kept, "order": "over"},
        "page-before": {**kept, "order": "over", "page": "1"},
    }
    page = response.content.decode()
    assert re.findall(r"<th[^>]*aria-sort[^>]*><a id=\"([^\"]*)", page) == ["order-over"]
    assert 'name="text" value="192"' in page
    assert '<option value="ip" selected>ip</option>' in page
    assert links(look(admin_client))["page-after"]["page"] == "2"


def test_what_makes_no_sense_in_an_address_is_left_out(admin_client: Browser) -> None:
    ask(LIST, MARIA)
    response = look(admin_client, state="x", order="y", page="z")
    assert "1 to 1 of 1 clients" in text_of(response)
    for query in ({"text": "\0"}, {"text": "x" * 5000}, {"kind": "\0"}, {"page": "9" * 5000}):
        assert look(admin_client, **query).status_code == 200


def test_a_state_alone_says_how_many_were_looked_at(admin_client: Browser) -> None:
    ask(LIST, MARIA, 12)
    ask(LIST, Client("user", "78"), 3)
    page = text_of(look(admin_client, state="limited"))
    assert "1 in this state, of 2 that were looked at" in page
    assert "user 78" not in page
    page = look(admin_client, state="near")
    assert "No client of this rule matches. 2 were looked at. Clear filters" in text_of(page)
    assert links(page)["filters-clear"] == {"rule": rule_field(LIST)}


def test_how_many_clients_there_are_besides_is_told(
    admin_client: Browser, redis_client: Redis
) -> None:
    ask(LIST, MARIA)
    [key] = redis_client.keys("*:counts")
    redis_client.hset(key, f"{rule_field(LIST)}:clients", 12_000)
    assert "1 to 1 of the busiest 1 of about 12,000 clients" in text_of(look(admin_client))


def test_what_the_others_asked_is_the_total_less_the_listed(
    admin_client: Browser, redis_client: Redis
) -> None:
    ask(LIST, MARIA, 12)
    assert "Others" not in text_of(look(admin_client))
    [key] = redis_client.keys("*:counts")
    redis_client.hincrby(key, f"{rule_field(LIST)}:allowed", 1234)
    told = "Others, who are not listed: at least 1,234 requests in the last hour."
    assert told in text_of(look(admin_client))
    assert "Others" not in text_of(look(admin_client, text="77"))


def test_the_live_part_is_the_same_until_something_changes(admin_client: Browser) -> None:
    ask(LIST, MARIA, 12)
    whole = look(admin_client)
    assert b"<html" in whole.content
    part = look(admin_client, fragment="1")
    assert b"<html" not in part.content
    assert "10 of 10" in text_of(part)
    assert "no-store" in part["Cache-Control"]
    # It may have been another minute by then, once.
    tags = {look(admin_client, fragment="1")["ETag"] for _ in range(3)}
    assert len(tags) <= 2
    tag = look(admin_client, fragment="1")["ETag"]
    query = {"rule": rule_field(LIST), "fragment": "1"}
    again = admin_client.get(RULE, query, headers={"if-none-match": tag})
    assert again.status_code == 304 or again["ETag"] != tag
    ask(LIST, Client("user", "78"))
    assert look(admin_client, fragment="1")["ETag"] != tag


@pytest.mark.django_db(transaction=True)
def test_a_refresh_takes_two_trips_and_asks_the_database_for_session_and_permission_alone(
    django_assert_num_queries: DjangoAssertNumQueries,
    settings: Settings,
    trips: list[object],
) -> None:
    settings.SLIDINGLIMIT = {"TIMEOUT": 10}
    User.objects.create_user("maria")
    rule = stored()
    Override.objects.create(kind="user", identity="77", effect="block")
    browser = staff("view_usage", "view_user", "view_override")
    for n in range(60):
        ask(rule, Client("user", str(n + 40)))
    query = {"fragment": "1", "text": "7"}
    assert "user 77 blocked" in text_of(look(browser, rule, **query))
    trips.clear()
    with django_assert_num_queries(4):  # session, user, permissions of its own and of its groups
        look(browser, rule, **query)
    assert len(trips) == 2


@pytest.mark.parametrize("fragment", [{}, {"fragment": "1"}])
def test_it_is_for_those_with_the_permission(client: Browser, fragment: dict[str, str]) -> None:
    ask(LIST, MARIA)
    assert look(client, **fragment).status_code == 302  # nobody
    assert look(staff("view_rule", "change_rule"), **fragment).status_code == 403
    User.objects.all().delete()
    assert look(staff("view_usage"), **fragment).status_code == 200


def test_each_button_is_for_those_who_may_press_it() -> None:
    rule = stored()
    Override.objects.create(kind="user", identity="78", effect="block")
    ask(rule, MARIA)
    ask(rule, Client("user", "78"))
    for permissions, words in {
        (): set(),
        ("change_rule",): {"Reset"},
        ("add_override",): {"Block…"},
        ("change_override",): {"Unblock"},
    }.items():
        page = look(staff("view_usage", *permissions), rule).content.decode()
        assert set(re.findall(r"<button[^>]*form=\"sl-act\"[^>]*>([^<]*)", page)) == words
        assert ("Actions" in page) is bool(words)
        User.objects.all().delete()


def test_a_client_is_blocked_and_let_in_again_from_its_row(admin_client: Browser) -> None:
    rule = stored()
    ask(rule, MARIA)
    for label, url, after in (
        ("Block user 77 on Search", BLOCK, "blocked"),
        ("Unblock user 77 on Search", END, "ok"),
    ):
        page = look(admin_client, rule).content.decode()
        [target] = re.findall(rf'value="([^"]*)"[^>]*aria-label="{label}"', page)
        data = {"target": unescape(target), "confirmed": "yes", "time": "1h"}
        assert admin_client.post(url, data).status_code == 302
        assert f"user 77 {after}" in text_of(look(admin_client, rule))


def test_of_a_rule_in_code_a_client_is_blocked_everywhere(admin_client: Browser) -> None:
    ask(LIST, MARIA)
    page = look(admin_client).content.decode()
    [target] = re.findall(r'value="([^"]*)"[^>]*aria-label="Block user 77 on all rules"', page)
    data = {"target": unescape(target), "confirmed": "yes", "time": "1h"}
    assert admin_client.post(BLOCK, data).status_code == 302
    assert Override.objects.get().rule is None
    assert "Unblock user 77 on list" in look(admin_client).content.decode()


def test_a_rule_that_nobody_asks_says_so(admin_client: Browser) -> None:
    page = text_of(look(admin_client, stored()))
    assert "Nobody has asked this rule in the last hour." in page
    assert "Clear filters" not in page
    assert "Nobody has asked" in text_of(look(admin_client, LIST))


def test_clients_that_were_dropped_are_told_of(admin_client: Browser, redis_client: Redis) -> None:
    ask(LIST, MARIA)
    key = f"{connections.pages().prefix}usage:dropped"
    redis_client.hset(key, rule_field(LIST), 1)
    assert "The clients of one minute are not known" in text_of(look(admin_client))
    redis_client.hset(key, rule_field(LIST), 30)
    page = text_of(look(admin_client))
    assert "The clients of 30 minutes are not known" in page
    assert 'The setting SLIDINGLIMIT["USAGE_MEMORY"]' in page


def test_with_recording_off_it_names_the_setting(admin_client: Browser, settings: Settings) -> None:
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "USAGE": False}
    page = text_of(look(admin_client, stored()))
    assert 'The setting SLIDINGLIMIT["USAGE"] is False' in page
    assert "Nobody has asked" not in page


def test_with_redis_away_it_says_what_happens_meanwhile(
    admin_client: Browser, settings: Settings
) -> None:
    rule = stored()
    settings.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
        }
    }
    for key in (rule.id, rule_field(LIST), "d999"):
        response = admin_client.get(RULE, {"rule": key, "text": "7"})
        page = text_of(response)
        assert "Redis does not answer." in page
        assert "1 let requests through" in page
        assert "matches" not in page
    assert connections.store().failure is None
