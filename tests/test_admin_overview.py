"""The overview, as a browser without JavaScript gets it, and what its script fetches."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser
from django.test import override_settings
from django.urls import reverse

from django_slidinglimit import connections, keeper
from django_slidinglimit.core.decisions import Client, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.models import Override
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.rules import compile_rule
from django_slidinglimit.usage import limited, minutes, processes
from django_slidinglimit.usage.layout import rule_field
from tests.odd import ODD
from tests.operators import staff, text_of
from tests.recorded import record, stored

if TYPE_CHECKING:
    from pytest_django import DjangoAssertNumQueries, Settings
    from redis import Redis

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("within_a_minute")]

OVERVIEW = reverse("admin:django_slidinglimit_usage_changelist")
PART = f"{OVERVIEW}?fragment=1"
CLIENT = reverse("admin:django_slidinglimit_usage_client")
RULE = reverse("admin:django_slidinglimit_usage_rule")
LIST = Rule("c1", Rate(10, 3_600_000), "list")
MARIA = Client("user", "77")
NONE = "\N{EN DASH}"


def refuse(client: Client, rule: Rule = LIST, times: int = 1, ago: int = 0) -> None:
    record(rule, client, times, ago=ago, used=rule.rate.limit)


def test_who_is_limited_stands_there_with_rule_and_times(admin_client: Browser) -> None:
    refuse(MARIA, times=3)
    refuse(Client("ip", "192.0.2.1"), stored(), times=7)
    page = text_of(admin_client.get(OVERVIEW))
    table = page[page.index("Limited right now") : page.index("Requests a second")]
    # As it was recorded; the counter itself is empty.
    rows = re.findall(r"(?:ip|user) \S+ ok (?:Search|list) 10/h \d+ (?:\d+ min )?\d+ s now", table)
    assert [row.split(" ok ")[0] for row in rows] == ["ip 192.0.2.1", "user 77"]
    assert "Search 10/h 7" in rows[0]
    assert "list 10/h 3" in rows[1]
    assert "With many processes" not in table


def test_with_several_processes_since_when_is_said_to_be_approximate(
    admin_client: Browser,
) -> None:
    refuse(MARIA)
    store = connections.store()
    store.run([processes.beat(None)])
    words = "With many processes, since when is approximate."
    assert words not in text_of(admin_client.get(OVERVIEW))
    *_, told = processes.beat(None)
    another = (*processes.beat(None)[:-2], "another.example:7:c0ffee", told)
    store.run([another])
    assert words in text_of(admin_client.get(OVERVIEW))


def test_who_was_refused_at_two_rates_of_a_rule_stands_there_once(admin_client: Browser) -> None:
    """While an attack goes on a rule is tightened, or the attacker gets a rate of its own."""
    before = stored()
    Row.objects.update(rate="5/h")
    for rule, client in ((before, "77"), (compile_rule(Row.objects.get()).rule, "77")):
        refuse(Client("user", client), rule, times=4)
    Override.objects.create(kind="user", identity="78", effect="rate", rate="20/h")
    for limit in (10, 20):
        refuse(Client("user", "78"), Rule("c1", Rate(limit, 3_600_000), "list"), times=3)
    page = admin_client.get(OVERVIEW).content.decode()
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    listed = page[page.index('id="sl-limited"') : page.index('id="sl-hour"')]
    assert re.findall(r'data-label="Refused">(\d+)<', listed) == ["8", "6"]


def test_cards_count_the_last_minute(admin_client: Browser) -> None:
    record(LIST, MARIA, 30)
    record(Rule("c2", Rate(10, 3_600_000), "trial", observe=True), MARIA, 5, used=10)
    Override.objects.create(kind="user", identity="9", effect="block")
    refuse(Client("user", "9"))
    page = text_of(admin_client.get(OVERVIEW))
    for card in (
        "36 requests a minute",
        "21 refused a minute (58%)",
        "… near a limit",
        "1 blocked clients",
        "5 would be refused a minute",
    ):
        assert card in page
    assert "3 near a limit" in text_of(admin_client.get(OVERVIEW))


def test_a_rule_leads_to_its_page_and_has_its_numbers(admin_client: Browser) -> None:
    record(LIST, MARIA, 5, ago=9)
    record(stored(mode="observe"), MARIA, 6, ago=9, used=8)
    response = admin_client.get(OVERVIEW)
    page = response.content.decode()
    assert set(re.findall(rf'href="{RULE}\?rule=([^"]*)"', page)) == {
        rule_field(LIST).replace(":", "%3A"),
        f"d{Row.objects.get().pk}",
    }
    for key in re.findall(rf'href="({RULE}[^"]*)"', page):
        assert admin_client.get(key).status_code == 200
    told = text_of(response)
    assert f"Search only observed 10/h 0 {NONE} 0 {NONE}" in told
    assert f"list set in code 10/h 0 0 {NONE} {NONE}" in told
    assert "<desc" in page
    assert "2 within the limit, 4 over it; up to 0.10/s." in page
    assert "5 allowed, 0 refused; up to 0.08/s." in page


def test_the_chart_has_title_description_and_its_numbers_in_a_table(admin_client: Browser) -> None:
    record(LIST, MARIA, 15, ago=3)
    page = admin_client.get(OVERVIEW).content.decode()
    assert re.search(r'role="img" aria-labelledby="sl-chart-title sl-chart-desc"', page)
    assert "10 allowed and 5 refused; up to 0.25 a second." in page
    numbers = page[
        page.index('id="sl-hour-numbers"') : page.index("</details>", page.index("sl-hour-numbers"))
    ]
    rows = re.findall(r"<td>([^<]*)</td><td>([^<]*)</td>", numbers)
    assert len(rows) == 60
    assert rows[3] == ("0.17", "0.08")
    assert rows.count(("0", "0")) == 59


@pytest.mark.parametrize("client", ODD, ids=ascii)
def test_any_identity_is_listed_escaped_and_leads_to_its_page(
    admin_client: Browser, client: Client
) -> None:
    refuse(client)
    page = admin_client.get(OVERVIEW).content.decode()
    assert "<script>alert" not in page
    [href] = re.findall(rf'href="({CLIENT}[^"]*)"', page)
    assert admin_client.get(unescape(href)).status_code == 200


def test_a_rule_of_any_name_is_escaped(admin_client: Browser) -> None:
    refuse(MARIA, Rule("c1", Rate(10, 3_600_000), "<b>&'\""))
    page = admin_client.get(OVERVIEW).content.decode()
    assert "<b>&" not in page
    assert page.count("&lt;b&gt;&amp;&#x27;&quot;") >= 3


def test_buttons_are_for_those_who_may() -> None:
    rule = stored()
    refuse(MARIA, rule)
    page = staff("view_usage").get(OVERVIEW).content.decode()
    assert 'name="target"' not in page
    User.objects.all().delete()
    page = staff("view_usage", "change_rule").get(OVERVIEW).content.decode()
    assert "Reset user 77 on Search" in page
    assert "Block user 77" not in page
    User.objects.all().delete()
    page = staff("view_usage", "add_override").get(OVERVIEW).content.decode()
    assert "Block user 77 on Search" in page
    assert "Reset user 77" not in page


def test_who_is_blocked_is_said_to_be(admin_client: Browser) -> None:
    Override.objects.create(kind="user", identity="77", effect="block")
    refuse(MARIA, stored())
    page = admin_client.get(OVERVIEW)
    assert re.search(r"user 77 blocked Search 10/h 1 .*? never", text_of(page))
    assert "Block user 77" not in page.content.decode()
    assert "Unblock user 77 on Search" in page.content.decode()


def test_a_user_is_named_to_those_who_may_see_users() -> None:
    maria = User.objects.create_user("maria")
    refuse(Client("user", str(maria.pk)))
    assert "user maria" in text_of(staff("view_usage", "view_user").get(OVERVIEW))
    User.objects.get(username="staff").delete()
    assert "maria" not in text_of(staff("view_usage").get(OVERVIEW))


def test_the_head_tells_of_server_rules_and_processes(
    admin_client: Browser, redis_client: Redis
) -> None:
    stored()
    stored(name="Files", scope="files", when_down="deny")
    refuse(MARIA)
    connections.store().run([processes.beat(b"abcdefgh")])
    redis_client.set(keeper.token_key(), "abcdefgh")
    page = text_of(admin_client.get(OVERVIEW))
    assert re.search(r"(Redis|Valkey) [\d.]+ answers in [\d.]+ ms", page)
    assert "yes: the breaker is closed" in page
    assert "1 rule lets requests through, 1 refuses them" in page
    assert re.search(r"2 rules, version abcdef, in force for \d+ s", page)
    assert "1 seen, all obey this version" in page
    redis_client.set(keeper.token_key(), "zyxwvu")
    page = text_of(admin_client.get(OVERVIEW))
    assert "1 seen, 1 behind" in page
    assert "abcdef behind" in page


def test_what_is_not_kept_for_lack_of_room_is_told(
    admin_client: Browser, redis_client: Redis
) -> None:
    record(LIST, MARIA)
    assert "not kept" not in text_of(admin_client.get(OVERVIEW))
    redis_client.hset(f"{connections.store().prefix}usage:dropped", rule_field(LIST), 3)
    page = text_of(admin_client.get(OVERVIEW))
    assert "the clients of 1 rule are not kept (USAGE_MEMORY is spent)" in page
    assert "list set in code clients not kept" in page


def test_without_rules_it_offers_to_add_one(admin_client: Browser) -> None:
    page = admin_client.get(OVERVIEW)
    assert "There is no rule in the database" in text_of(page)
    assert reverse("admin:django_slidinglimit_rule_add") in page.content.decode()


def test_without_traffic_it_gives_a_line_to_try_and_says_what_was_read(
    admin_client: Browser,
) -> None:
    stored(scope="", path="api/*")
    page = text_of(admin_client.get(OVERVIEW))
    assert "No request was counted in the last hour." in page
    assert "curl -i http://testserver/api/" in page
    assert "Read were the keys sl:usage:* of the cache default." in page
    record(LIST, MARIA)
    assert "curl" not in text_of(admin_client.get(OVERVIEW))


def test_without_anybody_refused_it_says_so(admin_client: Browser) -> None:
    record(LIST, MARIA)
    assert "Nobody was refused in the last minute." in text_of(admin_client.get(OVERVIEW))


def test_only_the_most_refused_are_shown_and_the_others_told(admin_client: Browser) -> None:
    for n in range(limited.MOST + 2):
        refuse(Client("user", str(n)))
    page = text_of(admin_client.get(OVERVIEW))
    assert f"the {limited.MOST} most refused of {limited.MOST + 2}" in page


def test_an_unchanged_part_is_not_sent_again(admin_client: Browser) -> None:
    refuse(MARIA, times=5, ago=4)
    first = admin_client.get(PART)
    assert first.status_code == 200
    assert "no-store" in first["Cache-Control"]
    again = None
    for _ in range(3):  # a minute may end in between
        again = admin_client.get(PART, headers={"If-None-Match": first["ETag"]})
        if again.status_code == 304:
            break
        first = again
    assert again is not None
    assert (again.status_code, again.content) == (304, b"")
    assert abs(int(again["X-Redis-Time"]) - minutes.now_ms()) < 60_000
    assert re.fullmatch(r"redis;dur=[\d.]+", again["Server-Timing"])
    assert "no-store" in again["Cache-Control"]
    record(LIST, MARIA)
    changed = admin_client.get(PART, headers={"If-None-Match": first["ETag"]})
    assert changed.status_code == 200
    assert changed["ETag"] != first["ETag"]


def test_a_whole_page_is_always_sent(admin_client: Browser) -> None:
    part = admin_client.get(PART)
    whole = admin_client.get(OVERVIEW, headers={"If-None-Match": part["ETag"]})
    assert whole.status_code == 200
    assert "ETag" not in whole


def test_what_passes_by_itself_is_no_part_of_what_is_refreshed(admin_client: Browser) -> None:
    refuse(MARIA)
    assert re.search(r'data-sl-since="\d+">\d', admin_client.get(OVERVIEW).content.decode())
    assert re.search(r'data-sl-since="\d+"><', admin_client.get(PART).content.decode())


def test_a_refresh_asks_the_database_for_session_and_user_alone(
    admin_client: Browser, django_assert_num_queries: DjangoAssertNumQueries, settings: Settings
) -> None:
    for n in range(3):
        user = User.objects.create_user(f"user {n}")
        refuse(Client("user", str(user.pk)), stored(name=f"rule {n}", scope=f"s{n}"))
    settings.SLIDINGLIMIT = {"TIMEOUT": 10}  # rules are kept in memory
    try:
        assert "user 1" in text_of(admin_client.get(OVERVIEW))
        with django_assert_num_queries(2):
            assert "user 1" in text_of(admin_client.get(PART))
    finally:
        keeper.stop()


def test_a_refresh_takes_two_trips_to_redis(admin_client: Browser, trips: list[object]) -> None:
    for n in range(30):
        refuse(Client("user", str(n)), Rule(f"c{n}", Rate(10, 3_600_000), f"rule {n}"))
    connections.pages().run([("PING",)])  # connected
    for url in (OVERVIEW, PART):
        trips.clear()
        assert admin_client.get(url).status_code == 200
        assert len(trips) == 2


@override_settings(SLIDINGLIMIT={"RULES_POLL": 0, "USAGE_POLL": 30})
def test_the_setting_says_how_often_it_is_refreshed(admin_client: Browser) -> None:
    page = admin_client.get(OVERVIEW).content.decode()
    assert 'data-seconds="30" data-idle="900"' in page
