"""The usage pages, as a browser without JavaScript gets them."""

import json
import re
from collections.abc import Iterator
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client as Browser
from django.test import override_settings
from django.urls import reverse
from redis import Redis

from django_slidinglimit import clients, connections, limiter, rules
from django_slidinglimit.admin import rows
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.usage.layout import client_member, rule_field
from tests.operators import staff, text_of
from tests.recorded import ask

pytestmark = pytest.mark.django_db

OVERVIEW = reverse("admin:django_slidinglimit_usage_changelist")
CLIENT = reverse("admin:django_slidinglimit_usage_client")
RESET = reverse("admin:django_slidinglimit_usage_reset")
LIST = Rule("c1", Rate(10, 3_600_000), "list")
RULE = f"{reverse('admin:django_slidinglimit_usage_rule')}?rule={rule_field(LIST)}"
MARIA = Client("user", "77")


@pytest.fixture
def away() -> Iterator[None]:
    """Settings of a server that is not there."""
    cache = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": "redis://127.0.0.1:1/0",
    }
    with override_settings(CACHES={"default": cache}):
        yield


def used(rule: Rule, client: Client) -> int:
    answer = connections.store().peek([Hit(rule, client)]).answers[0]
    return answer.verdict.limit - answer.verdict.remaining


def test_the_menu_leads_to_the_overview(admin_client: Browser) -> None:
    assert OVERVIEW in admin_client.get(reverse("admin:index")).content.decode()


def test_a_user_is_named_to_those_who_may_see_users() -> None:
    maria = User.objects.create_user("maria")
    ask(LIST, Client("user", str(maria.pk)))
    ask(LIST, Client("user", "not-a-number"))
    ask(LIST, Client("user", "9" * 30))
    browser = staff("view_usage", "view_user")
    assert "maria" in text_of(browser.get(RULE))
    page = browser.get(CLIENT, {"kind": "user", "identity": str(maria.pk)}).content.decode()
    assert reverse("admin:auth_user_change", args=[maria.pk]) in page
    User.objects.get(username="staff").delete()
    page = staff("view_usage").get(RULE).content.decode()
    assert "maria" not in page
    assert f"<bdi>{maria.pk}</bdi>" in page


def test_a_secret_is_told_by_its_end(admin_client: Browser) -> None:
    client = clients.concealed("header:x-api-key", "a-long-secret-9f31")
    ask(LIST, client)
    listed = text_of(admin_client.get(RULE))
    assert f"header:x-api-key …9f31 ({client.identity[:6]}) ok" in listed
    assert "a-long-secret" not in listed
    page = admin_client.get(CLIENT, {"kind": client.kind, "identity": client.identity})
    assert client.identity in text_of(page)


def test_the_client_page_tells_both_windows_and_what_still_counts(admin_client: Browser) -> None:
    ask(LIST, MARIA, 4)
    response = admin_client.get(CLIENT, {"kind": "user", "identity": "77"})
    assert "0 of the previous 0 still count, 4 now: 4 of 10, 6 left." in text_of(response)
    page = response.content.decode()
    assert 'data-previous="0" data-current="4"' in page
    assert 'data-window="3600000"' in page
    assert "style=" not in page
    assert "<script>" not in page


@override_settings(USE_THOUSAND_SEPARATOR=True, LANGUAGE_CODE="de")
def test_the_picture_is_drawn_with_plain_numbers_in_any_language(admin_client: Browser) -> None:
    ask(Rule("c1", Rate(3000, 3_600_000), "list"), MARIA, 1)
    page = admin_client.get(f"{CLIENT}?kind=user&identity=77").content.decode()
    # Around it there are the theme's own.
    page = page[page.index("data-sl-fragment") : page.index('id="sl-act"')]
    assert 'data-limit="3000" data-window="3600000"' in page
    drawn = re.findall(r' (?:x|y|width|height)="([^"]*)"', page)
    assert len(drawn) > 20
    assert all(re.fullmatch(r"\d+(\.\d+)?", number) for number in drawn)
    page = admin_client.get(OVERVIEW).content.decode()
    assert 'd="M59 100V10h1V100h-1z"' in page


def test_the_live_part_comes_alone_and_is_never_stored(admin_client: Browser) -> None:
    ask(LIST, MARIA)
    for url in (OVERVIEW, f"{CLIENT}?kind=user&identity=77"):
        whole = admin_client.get(url)
        part = admin_client.get(f"{url}{'&' if '?' in url else '?'}fragment=1")
        assert b"<html" in whole.content
        assert b"<html" not in part.content
        assert b"10/h" in part.content
        assert "no-store" in whole["Cache-Control"]
        assert "no-store" in part["Cache-Control"]


@pytest.mark.parametrize(
    "url", [OVERVIEW, f"{OVERVIEW}?fragment=1", f"{CLIENT}?kind=ip&identity=x"]
)
def test_pages_are_for_those_with_the_permission(url: str, client: Browser) -> None:
    ask(LIST, MARIA)
    assert client.get(url).status_code == 302  # nobody
    assert staff("view_rule", "change_rule").get(url).status_code == 403
    User.objects.all().delete()
    assert staff("view_usage").get(url).status_code == 200


def test_who_may_only_look_has_no_button_and_cannot_reset() -> None:
    ask(LIST, MARIA, 3)
    data = {"target": rows.target(MARIA, LIST), "confirmed": "yes"}
    browser = staff("view_usage")
    for url in (OVERVIEW, f"{CLIENT}?kind=user&identity=77"):
        page = browser.get(url).content.decode()
        assert 'name="target"' not in page
        assert RESET not in page
    assert browser.post(RESET, data).status_code == 403
    User.objects.all().delete()
    assert staff("change_rule").post(RESET, data).status_code == 403
    assert used(LIST, MARIA) == 3
    User.objects.all().delete()
    assert staff("view_usage", "change_rule").post(RESET, data).status_code == 302
    assert used(LIST, MARIA) == 0


def test_a_reset_asks_once_and_goes_back_to_where_it_was_asked_for(
    admin_client: Browser,
) -> None:
    ask(LIST, MARIA, 3)
    ask(LIST, Client("user", "78"), 3)
    data = {"target": rows.target(MARIA, LIST), "back": f"{CLIENT}?kind=user&identity=77"}
    asked = admin_client.post(RESET, data)
    assert "Reset user 77 on list?" in text_of(asked)
    assert used(LIST, MARIA) == 3
    done = admin_client.post(RESET, {**data, "confirmed": "yes"}, follow=True)
    assert done.redirect_chain == [(f"{CLIENT}?kind=user&identity=77", 302)]
    assert "User 77 starts afresh on list." in text_of(done)
    assert (used(LIST, MARIA), used(LIST, Client("user", "78"))) == (0, 3)


def test_a_reset_is_written_to_the_history(admin_client: Browser, admin_user: User) -> None:
    row = Row.objects.create(name="Search", scope="search", rate="10/h")
    stored = rules.compile_rule(row).rule
    for rule, object_id in ((stored, str(row.pk)), (LIST, None)):
        ask(rule, MARIA)
        data = {"target": rows.target(MARIA, rule), "confirmed": "yes"}
        admin_client.post(RESET, data)
        entry = LogEntry.objects.latest("pk")
        assert (entry.user, entry.object_id) == (admin_user, object_id)
        assert (entry.object_repr, entry.get_change_message()) == (rule.name, "Reset user 77.")
    history = reverse("admin:django_slidinglimit_rule_history", args=[row.pk])
    assert "Reset user 77." in text_of(admin_client.get(history))
    assert "Search" in text_of(admin_client.get(reverse("admin:index")))


def test_a_reset_is_a_post_with_a_token(admin_user: User) -> None:
    browser = Browser(enforce_csrf_checks=True)
    browser.force_login(admin_user)
    data = {"target": rows.target(MARIA, LIST), "confirmed": "yes"}
    assert browser.get(RESET, data).status_code == 405
    assert browser.post(RESET, data).status_code == 403


@pytest.mark.parametrize(
    "target",
    [
        "[" * 100_000,
        "",
        "{}",
        "[1, 2]",
        '["[1]", "c1:5:1000:enforce"]',
        json.dumps([client_member(MARIA), "x"]),
    ],
)
def test_a_reset_of_nothing_known_is_refused(admin_client: Browser, target: str) -> None:
    response = admin_client.post(RESET, {"target": target, "confirmed": "yes"})
    assert response.status_code == 400


def test_an_address_without_a_client_is_refused(admin_client: Browser) -> None:
    assert admin_client.get(CLIENT).status_code == 400


def test_without_traffic_the_page_says_so(admin_client: Browser) -> None:
    Row.objects.create(name="Search", scope="search", rate="10/h")
    assert "No request was counted in the last hour." in text_of(admin_client.get(OVERVIEW))
    page = text_of(admin_client.get(CLIENT, {"kind": "ip", "identity": "192.0.2.1"}))
    assert "No rule has counted this client" in page


@override_settings(SLIDINGLIMIT={"RULES_POLL": 0, "USAGE": False})
def test_with_recording_off_the_page_names_the_setting(admin_client: Browser) -> None:
    page = unescape(text_of(admin_client.get(OVERVIEW)))
    assert 'The setting SLIDINGLIMIT["USAGE"] is False' in page
    assert "No request was counted" not in page


@pytest.mark.usefixtures("away")
def test_with_redis_away_the_page_says_what_happens_meanwhile(admin_client: Browser) -> None:
    Row.objects.create(name="A", scope="a", rate="5/min")
    Row.objects.create(name="B", scope="b", rate="5/min", when_down="deny")
    for url in (OVERVIEW, f"{CLIENT}?kind=ip&identity=x"):
        page = text_of(admin_client.get(url))
        assert "Redis does not answer." in page
        assert "1 let requests through and 1 refuse them" in page
        assert "No request was counted" not in page
        assert "No rule has counted" not in page
    assert connections.store().failure is None  # a page decides nothing for the requests


@override_settings(SLIDINGLIMIT={"RULES_POLL": 0, "PREFIX": "full:"})  # a breaker of its own
def test_with_redis_full_the_page_says_that_it_cannot_count(
    admin_client: Browser, redis_client: Redis
) -> None:
    ask(LIST, MARIA)
    assert "could not count" not in text_of(admin_client.get(OVERVIEW))
    redis_client.config_set("maxmemory", 1)
    try:
        limiter.take([Hit(LIST, MARIA)])
        for url in (OVERVIEW, f"{CLIENT}?kind=user&identity=77"):
            page = text_of(admin_client.get(url))
            assert "Redis answers, but could not count when it was last asked to." in page
            assert "10/h" in page
    finally:
        redis_client.config_set("maxmemory", 0)


@pytest.mark.django_db(transaction=True)
def test_with_the_rules_unreadable_the_page_says_what_stays_in_force(
    admin_client: Browser,
) -> None:
    Row.objects.create(name="A", scope="a", rate="5/min")
    assert "cannot be read" not in text_of(admin_client.get(OVERVIEW))
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_slidinglimit_rule RENAME TO gone")
        try:
            for url in (OVERVIEW, f"{OVERVIEW}?fragment=1", f"{CLIENT}?kind=ip&identity=x"):
                page = text_of(admin_client.get(url))
                assert "The rules cannot be read from the database." in page
                assert "those that were read last stay in force" in page
        finally:
            cursor.execute("ALTER TABLE gone RENAME TO django_slidinglimit_rule")
    assert "cannot be read" not in text_of(admin_client.get(OVERVIEW))


@pytest.mark.usefixtures("away")
def test_with_redis_away_a_reset_says_that_it_failed(admin_client: Browser) -> None:
    data = {"target": rows.target(MARIA, LIST), "confirmed": "yes"}
    page = text_of(admin_client.post(RESET, data, follow=True))
    assert "user 77 is not known to be reset" in page
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (1, "1 s"),
        (12_000, "12 s"),
        (59_001, "1 min"),
        (65_000, "1 min 5 s"),
        (7_200_000, "2 h"),
        (7_505_000, "2 h 5 min"),
        (90_061_000, "1 d 1 h"),
    ],
)
def test_a_wait_reads_in_its_two_greatest_units(milliseconds: int, words: str) -> None:
    assert rows.duration(milliseconds) == words
