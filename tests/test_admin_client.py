"""The page of one client and what is done about it there, in a browser without JavaScript."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client as Browser
from django.test import RequestFactory, override_settings
from django.urls import reverse
from django.utils import timezone

from django_slidinglimit import clients, connections, limiter, rules
from django_slidinglimit.admin import rows, undo
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.interventions import is_writable
from django_slidinglimit.models import Override
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.usage import recorder
from django_slidinglimit.usage.layout import client_member
from tests import odd
from tests.operators import staff, text_of
from tests.recorded import ask, record

if TYPE_CHECKING:
    from datetime import datetime

    from pytest_django import DjangoAssertNumQueries

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("patient")]

USAGE = "admin:django_slidinglimit_usage"
CLIENT = reverse(f"{USAGE}_client")
OVERVIEW = reverse(f"{USAGE}_changelist")
UNDO = reverse(f"{USAGE}_undo")
LIST = Rule("c1", Rate(10, 3_600_000), "list")
MARIA = Client("user", "77")
HER_PAGE = f"{CLIENT}?kind=user&identity=77"
ODD = [client for client in odd.ODD if is_writable(client)] + [Client("key", " blank ")]
UNWRITABLE = [client for client in odd.ODD if not is_writable(client)]
LONE_SURROGATE = Client("key", "\ud800")  # it cannot stand in an address


def used(rule: Rule, client: Client) -> int:
    answer = connections.store().peek([Hit(rule, client)]).answers[0]
    return answer.verdict.limit - answer.verdict.remaining


def url(action: str) -> str:
    return reverse(f"{USAGE}_{action}")


def act(
    browser: Browser, action: str, client: Client, rule: Rule | None = None, **data: str
) -> Any:
    """Press an action's button and, on the page that asks, the next one."""
    target = {"target": rows.target(client, rule), "back": HER_PAGE}
    asked = browser.post(url(action), target)
    assert asked.status_code == 200
    assert 'name="confirmed"' in asked.content.decode()
    return browser.post(url(action), {**target, "confirmed": "yes", **data}, follow=True)


def undo_after(browser: Browser, response: Any) -> Any:
    """Press the button in the message."""
    page = response.content.decode()
    [signed] = re.findall(r'form="sl-undo" name="done" value="([^"]*)"', page)
    assert 'id="sl-undo"' in page
    return browser.post(UNDO, {"done": unescape(signed), "back": HER_PAGE}, follow=True)


@pytest.fixture
def search() -> Row:
    return Row.objects.create(name="Search", scope="search", rate="10/h", key="user")


def local(when: datetime) -> str:
    """A time as a browser's field has it."""
    return f"{timezone.localtime(when):%Y-%m-%dT%H:%M}"


def compiled(row: Row) -> Rule:
    return rules.compile_rule(row).rule


def admitted(user: int = 77, scope: str = "search") -> bool:
    request = RequestFactory().get("/")
    request.user = User(pk=user)
    return limiter.check(request, scope, key="user").allowed


# The page


def test_both_windows_and_what_still_counts_are_told(admin_client: Browser) -> None:
    ask(LIST, MARIA, 4)
    response = admin_client.get(HER_PAGE)
    assert "0 of the previous 0 still count, 4 now: 4 of 10, 6 left." in text_of(response)
    page = response.content.decode()
    assert 'data-previous="0" data-current="4"' in page
    assert 'data-window="3600000"' in page
    assert "style=" not in page
    assert "<script>" not in page


@override_settings(USE_THOUSAND_SEPARATOR=True, LANGUAGE_CODE="de")
def test_the_picture_is_drawn_with_plain_numbers_in_any_language(admin_client: Browser) -> None:
    ask(Rule("c1", Rate(3000, 3_600_000), "list"), MARIA, 1)
    page = admin_client.get(HER_PAGE).content.decode()
    assert 'data-limit="3000" data-window="3600000"' in page
    drawn = re.findall(r'<rect[^>]* (?:x|y|width|height)="([^"]*)"', page)
    assert len(drawn) > 5
    assert all(re.fullmatch(r"\d+(\.\d+)?", number) for number in drawn)


def test_a_part_that_has_not_changed_is_not_sent_again(admin_client: Browser) -> None:
    ask(LIST, MARIA, 4)
    part = admin_client.get(f"{HER_PAGE}&fragment=1")
    again = admin_client.get(f"{HER_PAGE}&fragment=1", headers={"if-none-match": part["ETag"]})
    assert (part.status_code, again.status_code) == (200, 304)
    ask(LIST, MARIA)
    again = admin_client.get(f"{HER_PAGE}&fragment=1", headers={"if-none-match": part["ETag"]})
    assert again.status_code == 200


def test_an_hour_is_drawn_with_its_numbers_in_words_and_in_a_table(admin_client: Browser) -> None:
    record(LIST, MARIA, 12, ago=7)
    record(LIST, MARIA, 3, ago=30)
    response = admin_client.get(HER_PAGE)
    page = response.content.decode()
    described = "13 within the limit, 2 over it; at most 12 a minute."
    assert f"{described}</desc>" in page
    assert described in text_of(response)
    rows_ = re.findall(r'<th scope="row">(\d\d:\d\d)</th>(.*?)</tr>', page)
    assert [re.findall(r">(\d+)<", numbers) for _, numbers in rows_] == [["10", "2"], ["3", "0"]]
    assert 'class="sl-refused"' in page


def test_since_when_it_is_refused_is_told_while_it_is(admin_client: Browser) -> None:
    assert "Refused for" not in text_of(admin_client.get(HER_PAGE))
    ask(LIST, MARIA, 12)
    assert re.search(r"Refused for \d+ s since", text_of(admin_client.get(HER_PAGE)))
    exempt = Override.objects.create(kind="user", identity="77", effect="exempt")
    assert "Refused for" not in text_of(admin_client.get(HER_PAGE))
    exempt.delete()
    connections.store().reset([Hit(LIST, MARIA)])
    assert "Refused for" not in text_of(admin_client.get(HER_PAGE))


def test_the_clients_that_it_was_seen_with_are_linked(admin_client: Browser) -> None:
    by_ip = Rule("c2", Rate(10, 3_600_000), "by address")
    limiter.take([Hit(LIST, MARIA), Hit(by_ip, Client("ip", "192.0.2.1"))])
    recorder.flush()
    page = admin_client.get(HER_PAGE).content.decode()
    assert 'client/?kind=ip&amp;identity=192.0.2.1"' in page
    page = admin_client.get(CLIENT, {"kind": "ip", "identity": "192.0.2.1"}).content.decode()
    assert 'client/?kind=user&amp;identity=77"' in page


@pytest.mark.django_db(transaction=True)  # a thread reads the rules
def test_a_refresh_asks_the_database_for_the_session_and_permissions_alone(
    admin_client: Browser,
    search: Row,
    django_assert_num_queries: DjangoAssertNumQueries,
    settings: Any,
) -> None:
    settings.SLIDINGLIMIT = {"RULES_POLL": 0.5}  # with 0 each look reads the rules
    ask(compiled(search), MARIA, 3)
    Override.objects.create(kind="user", identity="77", effect="rate", rate="20/h", rule=search)
    admin_client.get(f"{HER_PAGE}&fragment=1")
    with django_assert_num_queries(2):  # the session, and its user
        assert "20/h for user 77" in text_of(admin_client.get(f"{HER_PAGE}&fragment=1"))


def test_a_refresh_takes_two_round_trips_to_redis(
    admin_client: Browser, search: Row, trips: list[object]
) -> None:
    ask(compiled(search), MARIA, 3)
    ask(LIST, MARIA, 3)
    admin_client.get(HER_PAGE)
    trips.clear()
    assert "3 now" in text_of(admin_client.get(f"{HER_PAGE}&fragment=1"))
    assert len(trips) == 2


@override_settings(SLIDINGLIMIT={"RULES_POLL": 0, "USAGE_HASHED": True})
def test_a_client_known_by_its_hash_alone_is_reset_and_said_not_to_be_overridden(
    admin_client: Browser, search: Row
) -> None:
    rule = compiled(search)
    ask(rule, MARIA, 3)
    hashed = clients.hashed(MARIA)
    page = admin_client.get(f"{CLIENT}?{rows.client_query(hashed)}")
    assert "This client is known by a hash alone." in text_of(page)
    assert "3 of 10" in text_of(page)
    assert 'id="reset-' in page.content.decode()
    assert url("block") not in page.content.decode()
    assert "3 of 10" in text_of(admin_client.get(HER_PAGE))  # who knows her finds the same
    target = rows.target(hashed, rule)
    assert admin_client.post(url("block"), {"target": target}).status_code == 400
    done = act(admin_client, "reset", hashed, rule)
    assert used(rule, MARIA) == 0
    undo_after(admin_client, done)
    assert used(rule, MARIA) == 3


def test_an_address_without_a_client_is_refused(admin_client: Browser) -> None:
    assert admin_client.get(CLIENT).status_code == 400


@pytest.mark.parametrize("client", [*ODD, *UNWRITABLE], ids=ascii)
def test_any_identity_is_opened_and_reset(admin_client: Browser, client: Client) -> None:
    ask(LIST, client, 4)
    opened = admin_client.get(f"{CLIENT}?{rows.client_query(client)}")
    assert opened.status_code == 200
    assert "<script>alert" not in opened.content.decode()
    if client != LONE_SURROGATE:
        assert "4 of 10" in text_of(opened)
    act(admin_client, "reset", client, LIST)
    assert used(LIST, client) == 0


# Resetting


def test_a_reset_asks_once_and_goes_back_to_where_it_was_asked_for(
    admin_client: Browser,
) -> None:
    ask(LIST, MARIA, 3)
    ask(LIST, Client("user", "78"), 3)
    data = {"target": rows.target(MARIA, LIST), "back": HER_PAGE}
    asked = admin_client.post(url("reset"), data)
    assert "Reset user 77 on list?" in text_of(asked)
    assert used(LIST, MARIA) == 3
    done = admin_client.post(url("reset"), {**data, "confirmed": "yes"}, follow=True)
    assert done.redirect_chain == [(HER_PAGE, 302)]
    assert "User 77 starts afresh on list." in text_of(done)
    assert (used(LIST, MARIA), used(LIST, Client("user", "78"))) == (0, 3)


@pytest.mark.parametrize("back", ["https://example.org/", "//example.org", "/admin/", "", "x"])
def test_no_form_leads_elsewhere(admin_client: Browser, back: str) -> None:
    data = {"target": rows.target(MARIA, LIST), "back": back, "confirmed": "yes"}
    assert admin_client.post(url("reset"), data)["Location"] == OVERVIEW


def test_a_client_is_reset_on_all_rules_at_once(admin_client: Browser, search: Row) -> None:
    stored = compiled(search)
    ask(LIST, MARIA, 3)
    ask(stored, MARIA, 4)
    done = act(admin_client, "reset", MARIA)
    assert "User 77 starts afresh on all rules." in text_of(done)
    assert (used(LIST, MARIA), used(stored, MARIA)) == (0, 0)
    undo_after(admin_client, done)
    assert (used(LIST, MARIA), used(stored, MARIA)) == (3, 4)


def test_a_reset_on_all_rules_reaches_more_than_are_shown(admin_client: Browser) -> None:
    rows_ = [Row(name=f"{n}", scope=f"{n}", rate="10/day", key="user") for n in range(120)]
    stored = [compiled(row) for row in Row.objects.bulk_create(rows_)]
    for rule in (stored[0], stored[60], stored[-1]):
        limiter.take([Hit(rule, MARIA)])
    recorder.forget()  # as if that was hours ago
    done = act(admin_client, "reset", MARIA)
    assert [used(rule, MARIA) for rule in stored] == [0] * 120
    undo_after(admin_client, done)
    assert [rule for rule in stored if used(rule, MARIA)] == [stored[0], stored[60], stored[-1]]


def test_an_undone_reset_counts_again_what_was_used_and_once_only(admin_client: Browser) -> None:
    ask(LIST, MARIA, 3)
    done = act(admin_client, "reset", MARIA, LIST)
    ask(LIST, MARIA, 2)
    assert "what user 77 had used is counted again" in text_of(undo_after(admin_client, done))
    assert used(LIST, MARIA) == 5
    assert "undone already" in text_of(undo_after(admin_client, done))
    assert used(LIST, MARIA) == 5


def test_a_reset_and_its_undoing_are_written_to_the_history(
    admin_client: Browser, admin_user: User, search: Row
) -> None:
    for rule, object_id in ((compiled(search), str(search.pk)), (LIST, None)):
        ask(rule, MARIA)
        done = act(admin_client, "reset", MARIA, rule)
        entry = LogEntry.objects.latest("pk")
        assert (entry.user, entry.object_id) == (admin_user, object_id)
        assert (entry.object_repr, entry.get_change_message()) == (rule.name, "Reset user 77.")
        undo_after(admin_client, done)
        entry = LogEntry.objects.latest("pk")
        assert (entry.object_id, entry.object_repr) == (object_id, rule.name)
        assert entry.get_change_message() == "Undid the reset of user 77."
    history = reverse("admin:django_slidinglimit_rule_history", args=[search.pk])
    assert "Reset user 77." in text_of(admin_client.get(history))


def test_the_history_names_no_user(admin_client: Browser, search: Row) -> None:
    User.objects.create_user("maria", pk=77)
    done = act(admin_client, "reset", MARIA, compiled(search))
    assert "User maria starts afresh" in text_of(done)
    undo_after(admin_client, done)
    history = reverse("admin:django_slidinglimit_rule_history", args=[search.pk])
    told = text_of(staff("view_rule").get(history))
    assert "Reset user 77." in told
    assert "maria" not in told


# Overriding


def test_a_block_holds_for_its_time_and_is_undone(
    admin_client: Browser, admin_user: User, search: Row
) -> None:
    assert admitted()
    before = timezone.now().replace(microsecond=0)
    done = act(admin_client, "block", MARIA, compiled(search), time="10m", reason="abuse")
    assert re.search("User 77 is blocked until .* on Search", text_of(done))
    row = Override.objects.get()
    assert (row.kind, row.identity, row.rule, row.effect) == ("user", "77", search, "block")
    assert (row.reason, row.created_by) == ("abuse", admin_user)
    assert row.expires
    assert timedelta(minutes=10) <= row.expires - before <= timedelta(minutes=11)
    assert not admitted()
    assert admitted(78)
    assert "as it was before" in text_of(undo_after(admin_client, done))
    assert admitted()
    entries = LogEntry.objects.filter(object_id=str(row.pk)).order_by("pk")
    assert [entry.action_flag for entry in entries] == [1, 2]  # added, changed


def test_a_client_is_blocked_on_all_rules_those_in_code_included(
    admin_client: Browser, search: Row
) -> None:
    # An override of its own on one rule would hold there instead.
    Override.objects.create(kind="user", identity="77", rule=search, effect="rate", rate="20/h")
    done = act(admin_client, "block", MARIA, time="1h")
    request = RequestFactory().get("/")
    request.user = User(pk=77)
    assert not admitted()
    assert not limiter.check(request, "any", key="user", rate="9/h").allowed
    undo_after(admin_client, done)
    assert admitted()
    assert limiter.check(request, "any", key="user", rate="9/h").allowed


def test_another_rate_is_proposed_from_the_present_one_and_needs_an_end(
    admin_client: Browser, search: Row
) -> None:
    rule = compiled(search)
    data = {"target": rows.target(MARIA, rule), "back": HER_PAGE}
    page = admin_client.post(url("rate"), data).content.decode()
    assert 'name="rate" value="10/h"' in page
    wrong = {**data, "confirmed": "yes", "rate": "many", "time": "until"}
    page = text_of(admin_client.post(url("rate"), wrong))
    assert "Say until when." in page
    yesterday = local(timezone.now() - timedelta(days=1))
    page = text_of(admin_client.post(url("rate"), {**wrong, "until": yesterday}))
    assert "This lies in the past." in page
    page = text_of(admin_client.post(url("rate"), {**wrong, "time": "1d"}))
    assert "'many'" in page
    assert not Override.objects.exists()
    tomorrow = local(timezone.now() + timedelta(days=1))
    done = act(admin_client, "rate", MARIA, rule, rate="500/h", time="until", until=tomorrow)
    assert re.search("User 77 has 500/h until .* on Search", text_of(done))
    row = Override.objects.get()
    assert row.expires
    assert local(row.expires) == tomorrow
    page = admin_client.post(url("rate"), data).content.decode()
    assert 'name="rate" value="500/h"' in page
    done = act(admin_client, "end", MARIA, rule)
    assert "has no rate of its own any more on Search" in text_of(done)
    row.refresh_from_db()
    assert row.expires
    assert row.expires <= timezone.now()


def test_exempting_a_blocked_client_ends_the_block_and_undoing_brings_it_back(
    admin_client: Browser, search: Row
) -> None:
    forever = Override.objects.create(kind="user", identity="77", rule=search, effect="block")
    rule = compiled(search)
    asked = admin_client.post(url("exempt"), {"target": rows.target(MARIA, rule)})
    assert "is stronger, and ends by it: block for user 77 (Search), without an end" in text_of(
        asked
    )
    done = act(admin_client, "exempt", MARIA, rule, time="1d")
    assert re.search("User 77 is exempt until .* on Search", text_of(done))
    assert admitted()
    undo_after(admin_client, done)
    assert not admitted()
    forever.refresh_from_db()
    assert forever.expires is None


def test_unblocking_ends_the_blocks_of_the_client_itself_and_can_be_undone(
    admin_client: Browser, search: Row
) -> None:
    rule = compiled(search)
    for _ in range(2):
        Override.objects.create(kind="user", identity="77", rule=search, effect="block")
    page = admin_client.get(HER_PAGE).content.decode()
    assert "Unblock user 77 on Search" in page
    done = act(admin_client, "end", MARIA, rule)
    assert "User 77 is not blocked any more on Search." in text_of(done)
    assert admitted()
    undo_after(admin_client, done)
    assert not admitted()
    Override.objects.all().delete()
    Override.objects.create(effect="block", rule=search)
    assert "Unblock user 77" not in admin_client.get(HER_PAGE).content.decode()
    told = admin_client.post(url("end"), {"target": rows.target(MARIA, rule)}, follow=True)
    assert "No override of its own holds for user 77 on Search." in text_of(told)
    assert not admitted()


def test_where_another_override_does_the_same_unblocking_says_so(
    admin_client: Browser, search: Row
) -> None:
    Override.objects.create(kind="user", identity="77", rule=search, effect="block")
    Override.objects.create(rule=search, effect="block")
    done = act(admin_client, "end", MARIA, compiled(search))
    assert "another override still does the same for user 77 on Search" in text_of(done)
    assert not admitted()


@pytest.mark.parametrize("client", ODD, ids=ascii)
def test_any_identity_is_blocked_and_unblocked(admin_client: Browser, client: Client) -> None:
    everything = Row.objects.create(name="Everything", scope="all", rate="10/h")
    rule = compiled(everything)
    ask(rule, client, 2)
    done = act(admin_client, "block", client, rule, time="1h")
    row = Override.objects.get()
    assert (row.kind, row.identity) == client
    page = admin_client.get(f"{CLIENT}?{rows.client_query(client)}")
    assert "Every request is refused" in text_of(page)
    assert "<script>alert" not in page.content.decode()
    undo_after(admin_client, done)
    page = admin_client.get(f"{CLIENT}?{rows.client_query(client)}")
    assert "2 of 10" in text_of(page)


@pytest.mark.parametrize("client", UNWRITABLE, ids=ascii)
def test_what_no_row_can_hold_is_not_offered(admin_client: Browser, client: Client) -> None:
    ask(LIST, client)
    page = admin_client.get(f"{CLIENT}?{rows.client_query(client)}").content.decode()
    if client != LONE_SURROGATE:
        assert url("block") not in page
    target = rows.target(client)
    assert admin_client.post(url("block"), {"target": target}).status_code == 400


# Undoing


def test_what_was_changed_since_stays_as_it_is(admin_client: Browser, search: Row) -> None:
    done = act(admin_client, "block", MARIA, compiled(search), time="10m")
    row = Override.objects.get()
    row.expires = None
    row.save()
    assert "was changed since" in text_of(undo_after(admin_client, done))
    row.refresh_from_db()
    assert row.expires is None


def test_only_who_acted_can_undo_and_only_for_a_while(
    admin_client: Browser, search: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = act(admin_client, "block", MARIA, compiled(search), time="1d")
    [signed] = re.findall(r'name="done" value="([^"]*)"', done.content.decode())
    other = staff("view_usage", "add_override", "change_override")
    assert other.post(UNDO, {"done": signed}).status_code == 403
    for given in ("", "x", signed[:-1] + ("a" if signed[-1] != "a" else "b")):
        response = admin_client.post(UNDO, {"done": given}, follow=True)
        assert "can no longer be undone here" in text_of(response)
    monkeypatch.setattr(undo, "SECONDS", -1)
    assert "can no longer be undone" in text_of(
        admin_client.post(UNDO, {"done": signed}, follow=True)
    )
    assert not admitted()


def test_undoing_takes_the_permissions_that_doing_took(search: Row) -> None:
    Override.objects.create(kind="user", identity="77", effect="block")
    browser = staff("view_usage", "add_override", "change_override")
    done = act(browser, "exempt", MARIA, time="1h")
    [signed] = re.findall(r'name="done" value="([^"]*)"', done.content.decode())
    for name in ("add_override", "change_override"):
        only = Permission.objects.filter(codename__in=("view_usage", name))
        User.objects.get().user_permissions.set(only)
        assert browser.post(UNDO, {"done": unescape(signed)}).status_code == 403
    assert admitted()


# Who may


def test_who_may_only_look_has_no_button_and_can_do_nothing(search: Row) -> None:
    rule = compiled(search)
    ask(rule, MARIA, 3)
    Override.objects.create(kind="user", identity="77", rule=search, effect="block")
    browser = staff("view_usage")
    page = browser.get(HER_PAGE).content.decode()
    assert 'name="target"' not in page
    assert 'id="sl-act"' not in page
    data = {"target": rows.target(MARIA, rule), "confirmed": "yes", "time": "1h", "rate": "1/h"}
    for action in ("reset", "block", "exempt", "rate", "end"):
        assert browser.post(url(action), data).status_code == 403
    assert used(rule, MARIA) == 3
    assert Override.objects.get().expires is None
    User.objects.all().delete()
    assert staff("change_rule").post(url("reset"), data).status_code == 403  # not without the page


@pytest.mark.parametrize(
    ("permission", "actions"),
    [
        ("change_rule", {"reset"}),
        ("add_override", {"block", "exempt", "rate"}),
        ("change_override", {"end"}),
    ],
)
def test_each_permission_brings_its_own_buttons(
    search: Row, permission: str, actions: set[str]
) -> None:
    rule = compiled(search)
    ask(rule, MARIA, 3)
    row = Override.objects.create(
        kind="user", identity="77", rule=search, effect="rate", rate="5/h"
    )
    browser = staff("view_usage", permission)
    page = browser.get(HER_PAGE).content.decode()
    shown = {a for a in ("reset", "block", "exempt", "rate", "end") if f'id="{a}-' in page}
    assert shown == actions
    for action in actions:
        act(browser, action, MARIA, rule, time="1h", rate="7/h")
        Override.objects.exclude(pk=row.pk).delete()
    refused = {"reset", "block", "exempt", "rate", "end"} - actions
    for action in refused:
        assert browser.post(url(action), {"target": rows.target(MARIA, rule)}).status_code == 403
    row.refresh_from_db()
    assert (row.expires is not None) is ("end" in actions)


def test_who_may_not_end_overrides_cannot_end_one_by_a_weaker_one(search: Row) -> None:
    Override.objects.create(kind="user", identity="77", rule=search, effect="block")
    browser = staff("view_usage", "add_override")
    data = {"target": rows.target(MARIA, compiled(search)), "confirmed": "yes", "time": "1h"}
    assert browser.post(url("exempt"), data).status_code == 403
    assert not admitted()


@pytest.mark.parametrize("action", ["reset", "block", "exempt", "rate", "end", "undo"])
def test_an_action_is_a_post_with_a_token(admin_user: User, action: str) -> None:
    browser = Browser(enforce_csrf_checks=True)
    browser.force_login(admin_user)
    data = {"target": rows.target(MARIA, LIST), "confirmed": "yes", "time": "1h"}
    assert browser.get(url(action), data).status_code == 405
    assert browser.post(url(action), data).status_code == 403


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
@pytest.mark.parametrize("action", ["reset", "block", "end"])
def test_an_action_on_nothing_known_is_refused(
    admin_client: Browser, action: str, target: str
) -> None:
    data = {"target": target, "confirmed": "yes", "time": "1h"}
    assert admin_client.post(url(action), data).status_code == 400


def test_no_override_is_on_a_rule_in_code(admin_client: Browser) -> None:
    ask(LIST, MARIA)
    page = admin_client.get(HER_PAGE).content.decode()
    assert "Block user 77 on all rules" in page
    assert "Block user 77 on list" not in page
    data = {"target": rows.target(MARIA, LIST)}
    assert admin_client.post(url("block"), data).status_code == 400


@pytest.mark.parametrize("key", ["", "x", "9" * 30])
@pytest.mark.parametrize("action", ["block", "exempt", "rate"])
def test_no_override_is_on_what_is_no_row(admin_client: Browser, action: str, key: str) -> None:
    target = json.dumps([client_member(MARIA), f"d{key}:5:1000:enforce"])
    data = {"target": target, "confirmed": "yes", "time": "1h", "rate": "5/min"}
    assert admin_client.post(url(action), data).status_code == 400


@pytest.mark.parametrize("client", UNWRITABLE, ids=ascii)
def test_what_no_row_can_hold_has_no_override_to_end(admin_client: Browser, client: Client) -> None:
    Override.objects.create(effect="block")  # everyone's
    done = admin_client.post(url("end"), {"target": rows.target(client)}, follow=True)
    assert "No override of its own holds" in text_of(done)


def test_with_redis_away_an_action_says_what_failed(admin_client: Browser, search: Row) -> None:
    ask(compiled(search), MARIA, 3)
    done = act(admin_client, "reset", MARIA, compiled(search))
    away = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    count = LogEntry.objects.count()
    with override_settings(CACHES={"default": away}):
        page = text_of(act(admin_client, "reset", MARIA, compiled(search)))
        assert "user 77 is not known to be reset" in page
        assert "nothing is known to be undone" in text_of(undo_after(admin_client, done))
    assert LogEntry.objects.count() == count
