"""The history of rules and overrides in the admin, the way back, and two people at one form."""

from __future__ import annotations

import json
import re
import threading
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection, connections, transaction
from django.test import Client as Browser
from django.urls import reverse
from django.utils import timezone

from django_slidinglimit.models import Override, Rule
from tests.operators import staff

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import Model

pytestmark = pytest.mark.django_db

RULES = reverse("admin:django_slidinglimit_rule_changelist")
FORM = {
    "name": "Search",
    "scope": "search",
    "rate": "100/min",
    "mode": "enforce",
    "share": "100",
    "no_identity": "together",
    "when_down": "allow",
}


def page_of(what: str, row: Model) -> str:
    return reverse(f"admin:django_slidinglimit_{row._meta.model_name}_{what}", args=[row.pk])


def text_of(response: Any) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", response.content.decode())))


def opened(browser: Browser, row: Model) -> dict[str, str]:
    """What a browser would send of a form as it stands."""
    form = browser.get(page_of("change", row)).context["adminform"].form
    values = {bound.html_name: bound.value() for bound in form}
    return {name: "" if value is None else str(value) for name, value in values.items()}


def search(**fields: Any) -> Rule:
    return Rule.objects.create(**{"name": "Search", "scope": "search", "rate": "100/min"} | fields)


def states_offered(response: Any) -> list[str]:
    return re.findall(r'name="state" value="([^"]*)"', response.content.decode())


def restore(browser: Browser, row: Model, state: str) -> Any:
    """Press the button, read the question, and confirm it."""
    asked = browser.post(page_of("restore", row), {"state": state})
    assert asked.status_code == 200
    seen = asked.context["seen"]
    return browser.post(page_of("restore", row), {"state": state, "seen": seen}, follow=True)


def test_the_history_tells_who_changed_what_from_what_to_what(admin_client: Browser) -> None:
    admin_client.post(reverse("admin:django_slidinglimit_rule_add"), FORM)
    rule = Rule.objects.get()
    form = opened(admin_client, rule)
    admin_client.post(page_of("change", rule), form | {"rate": "50/min", "mode": "observe"})
    history = text_of(admin_client.get(page_of("history", rule)))
    assert "admin Added." in history
    assert "rate: 100/min → 50/min" in history
    assert "mode: enforce → observe" in history
    entry = LogEntry.objects.latest("pk")
    assert entry.get_change_message() == (
        "Changed rate: 100/min → 50/min and mode: enforce → observe."
    )
    [message] = json.loads(entry.change_message)
    assert (message["was"]["rate"], message["now"]["rate"]) == ("100/min", "50/min")


def test_an_unchanged_form_changes_nothing(admin_client: Browser) -> None:
    rule = search()
    admin_client.post(page_of("change", rule), opened(admin_client, rule))
    assert LogEntry.objects.get().get_change_message() == "No fields changed."
    assert states_offered(admin_client.get(page_of("history", rule))) == []


def test_a_bulk_action_is_in_the_history_of_each_row(admin_client: Browser) -> None:
    rules = [search(name=name, mode="observe") for name in ("One", "Two")]
    data = {"action": "switch_off", "_selected_action": [rule.pk for rule in rules]}
    admin_client.post(RULES, data)
    for rule in rules:
        assert "mode: observe → off" in text_of(admin_client.get(page_of("history", rule)))


def test_a_deletion_keeps_what_was_deleted_and_the_overrides_that_went_along(
    admin_client: Browser,
) -> None:
    rule = search()
    Override.objects.create(rule=rule, effect="block")
    data = {"action": "delete_selected", "_selected_action": [rule.pk], "post": "yes"}
    admin_client.post(RULES, data)
    assert not Override.objects.exists()
    told = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert told == ["Deleted rule “Search”.", "Deleted override “block for everyone”."]
    [message] = json.loads(LogEntry.objects.earliest("pk").change_message)
    assert message["was"]["rate"] == "100/min"


def test_the_list_tells_when_a_row_was_changed_and_by_whom_if_it_was_here(
    admin_client: Browser,
) -> None:
    rule = search()
    assert " by admin" not in text_of(admin_client.get(RULES))
    form = opened(admin_client, rule)
    admin_client.post(page_of("change", rule), form | {"rate": "50/min"})
    assert " by admin" in text_of(admin_client.get(RULES))
    Rule.objects.get().save()  # by code
    assert " by admin" not in text_of(admin_client.get(RULES))


class TestRestore:
    def test_an_earlier_state_comes_back_after_a_question(self, admin_client: Browser) -> None:
        rule = search()
        for rate in ("50/min", "20/min", "10/min"):
            form = opened(admin_client, rule)
            admin_client.post(page_of("change", rule), form | {"rate": rate})
        first = states_offered(admin_client.get(page_of("history", rule)))
        assert len(first) == 3  # before the first change, and after the first two
        asked = admin_client.post(page_of("restore", rule), {"state": first[0]})
        assert "rate 10/min 100/min" in text_of(asked)
        rule.refresh_from_db()
        assert rule.rate == "10/min"
        assert "is restored" in text_of(restore(admin_client, rule, first[0]))
        rule.refresh_from_db()
        assert rule.rate == "100/min"
        restore(admin_client, rule, first[2])
        rule.refresh_from_db()
        assert rule.rate == "20/min"
        assert "rate: 10/min → 100/min" in text_of(admin_client.get(page_of("history", rule)))

    def test_every_field_of_an_override_comes_back(self, admin_client: Browser) -> None:
        expires = timezone.now()
        row = Override.objects.create(
            kind="ip", identity="192.0.2.7", effect="rate", rate="5/min", expires=expires
        )
        data = {"target": "everyone", "effect": "block", "reason": "all out"}
        admin_client.post(page_of("change", row), {**opened(admin_client, row), **data})
        row.refresh_from_db()
        assert (row.kind, row.effect, row.rate) == ("", "block", "")
        [state] = states_offered(admin_client.get(page_of("history", row)))
        restore(admin_client, row, state)
        row.refresh_from_db()
        assert (row.kind, row.identity, row.effect, row.rate, row.reason) == (
            ("ip", "192.0.2.7", "rate", "5/min", "")
        )
        assert row.expires == expires

    def test_what_changed_while_the_question_stood_is_asked_again(
        self, admin_client: Browser
    ) -> None:
        rule = search()
        form = opened(admin_client, rule)
        admin_client.post(page_of("change", rule), form | {"rate": "50/min"})
        [state] = states_offered(admin_client.get(page_of("history", rule)))
        seen = admin_client.post(page_of("restore", rule), {"state": state}).context["seen"]
        Rule.objects.update(rate="7/min")
        again = admin_client.post(page_of("restore", rule), {"state": state, "seen": seen})
        assert "changed while you looked" in text_of(again)
        assert Rule.objects.get().rate == "7/min"

    def test_a_state_that_makes_no_sense_any_more_is_told(self, admin_client: Browser) -> None:
        rule = search(key="ip")
        form = opened(admin_client, rule)
        admin_client.post(page_of("change", rule), form | {"key": "user"})
        entry = LogEntry.objects.get()
        entry.change_message = entry.change_message.replace('"key": "ip"', '"key": "gone"')
        entry.save()
        data = {"state": f"{entry.pk}:was"}
        told = text_of(admin_client.post(page_of("restore", rule), data, follow=True))
        assert "cannot be restored any more: 'gone' is not a key." in told
        assert Rule.objects.get().key == "user"

    @pytest.mark.parametrize("state", ["", "x", "1:later", "999999:now", "-1:now"])
    def test_a_state_that_is_none_is_refused(self, admin_client: Browser, state: str) -> None:
        rule = search()
        assert admin_client.post(page_of("restore", rule), {"state": state}).status_code == 400

    def test_another_rows_state_is_refused(self, admin_client: Browser) -> None:
        one, two = search(name="One"), search(name="Two")
        form = opened(admin_client, one)
        admin_client.post(page_of("change", one), form | {"rate": "50/min"})
        data = {"state": f"{LogEntry.objects.get().pk}:was"}
        assert admin_client.post(page_of("restore", two), data).status_code == 400

    def test_only_by_a_post(self, admin_client: Browser) -> None:
        assert admin_client.get(page_of("restore", search())).status_code == 405


class TestTwoPeople:
    def test_the_later_is_told_what_the_other_changed_and_nothing_is_overwritten(self) -> None:
        maria, otto = (staff("view_rule", "change_rule", name=n) for n in ("maria", "otto"))
        rule = search()
        hers, his = opened(maria, rule), opened(otto, rule)
        maria.post(page_of("change", rule), hers | {"rate": "50/min"})
        response = otto.post(page_of("change", rule), his | {"mode": "observe"})
        assert "maria has changed this since you opened it: rate: 100/min → 50/min." in (
            text_of(response)
        )
        rule.refresh_from_db()
        assert (rule.rate, rule.mode) == ("50/min", "enforce")
        # The form stands as he filled it in, and saves when he insists.
        again = {b.html_name: b.value() for b in response.context["adminform"].form}
        assert (again["rate"], again["mode"]) == ("100/min", "observe")
        assert otto.post(page_of("change", rule), again).status_code == 302
        rule.refresh_from_db()
        assert (rule.rate, rule.mode) == ("100/min", "observe")

    def test_a_change_from_outside_the_admin_is_told_without_a_name(
        self, admin_client: Browser
    ) -> None:
        rule = search()
        form = opened(admin_client, rule)
        Rule.objects.update(rate="50/min")  # leaves `updated` as it was
        told = text_of(admin_client.post(page_of("change", rule), form))
        assert "It has been changed since you opened it: rate: 100/min → 50/min." in told
        assert Rule.objects.get().rate == "50/min"

    def test_overrides_too(self, admin_client: Browser) -> None:
        row = Override.objects.create(effect="rate", rate="5/min")
        form = opened(admin_client, row)
        Override.objects.update(rate="6/min")
        told = text_of(admin_client.post(page_of("change", row), form | {"rate": "7/min"}))
        assert "rate: 5/min → 6/min" in told
        assert Override.objects.get().rate == "6/min"

    def test_a_form_that_does_not_say_what_it_began_from_saves_nothing(
        self, admin_client: Browser
    ) -> None:
        rule = search()
        for seen in ("", "[]", "{", '{"rate": 5}'):
            data = opened(admin_client, rule) | {"rate": "1/min", "seen": seen}
            told = text_of(admin_client.post(page_of("change", rule), data))
            assert "does not tell what it began from" in told
        assert Rule.objects.get().rate == "100/min"

    def test_a_form_that_makes_up_what_it_began_from_saves_nothing(
        self, admin_client: Browser
    ) -> None:
        row = Override.objects.create(effect="rate", rate="5/min")
        made_up = {"rule": "x", "group": "9" * 30, "expires": "soon", "rate": "y" * 500}
        data = opened(admin_client, row) | {"rate": "6/min", "seen": json.dumps(made_up)}
        told = text_of(admin_client.post(page_of("change", row), data))
        assert "rule: x → blank; " in told
        assert "expires: soon → blank; " in told or "expires: soon → blank." in told
        assert Override.objects.get().rate == "5/min"

    @pytest.mark.parametrize(
        "seen",
        ["[" * 100_000, json.dumps({"expires": "9999-12-31T23:59:59-12:00"})],
    )
    def test_a_form_that_makes_up_what_cannot_be_read_saves_nothing(
        self, admin_client: Browser, seen: str
    ) -> None:
        row = Override.objects.create(effect="rate", rate="5/min")
        data = opened(admin_client, row) | {"rate": "6/min", "seen": seen}
        assert "errornote" in admin_client.post(page_of("change", row), data).content.decode()
        assert Override.objects.get().rate == "5/min"

    @pytest.mark.django_db(transaction=True)
    def test_who_saves_while_another_edit_is_not_yet_committed_waits_and_is_told(
        self, admin_client: Browser
    ) -> None:
        rule = search()
        form = opened(admin_client, rule)
        told: list[str] = []

        def save() -> None:
            try:
                data = form | {"rate": "7/min"}
                told.append(text_of(admin_client.post(page_of("change", rule), data)))
            finally:
                connections.close_all()

        thread = threading.Thread(target=save)
        with transaction.atomic():
            Rule.objects.update(rate="50/min")
            thread.start()
            thread.join(1)  # time to come as far as it can
            assert thread.is_alive()
        thread.join()
        assert "rate: 100/min → 50/min" in told[0]
        assert Rule.objects.get().rate == "50/min"

    @pytest.mark.django_db(transaction=True)
    def test_of_many_at_once_one_saves_and_the_others_are_told(self, admin_user: User) -> None:
        rule = search()
        browsers = [Browser() for _ in range(6)]
        for browser in browsers:
            browser.force_login(admin_user)
        form = opened(browsers[0], rule)
        start = threading.Barrier(len(browsers))
        statuses: list[int] = []

        def save(browser: Browser, rate: str) -> None:
            try:
                start.wait()
                response = browser.post(page_of("change", rule), form | {"rate": rate})
                statuses.append(response.status_code)
            finally:
                connections.close_all()

        threads = [
            threading.Thread(target=save, args=(browser, f"{i + 1}/min"))
            for i, browser in enumerate(browsers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [200] * 5 + [302], connection.vendor
        [entry] = LogEntry.objects.all()
        assert f"rate: 100/min → {Rule.objects.get().rate}" in entry.get_change_message()


class TestPermissions:
    def test_who_may_only_look_has_no_button_and_every_post_is_refused(
        self, admin_client: Browser
    ) -> None:
        rule = search()
        form = opened(admin_client, rule)
        admin_client.post(page_of("change", rule), form | {"rate": "50/min"})
        [state] = states_offered(admin_client.get(page_of("history", rule)))
        browser = staff("view_rule")
        history = browser.get(page_of("history", rule))
        assert "rate: 100/min → 50/min" in text_of(history)
        assert b'name="state"' not in history.content
        page = browser.get(page_of("change", rule)).content
        assert b'name="seen"' not in page
        assert b"_save" not in page
        for url, data in (
            (page_of("restore", rule), {"state": state}),
            (page_of("change", rule), opened(admin_client, rule)),
            (page_of("delete", rule), {"post": "yes"}),
            (reverse("admin:django_slidinglimit_rule_add"), FORM),
            (RULES, {"action": "switch_off", "_selected_action": [rule.pk]}),
            (RULES, {"action": "delete_selected", "_selected_action": [rule.pk], "post": "y"}),
            (RULES, {}),
        ):
            assert browser.post(url, data).status_code == 403, url
        rule.refresh_from_db()
        assert (rule.rate, rule.mode) == ("50/min", "enforce")

    def test_who_may_not_even_look_sees_no_history(self) -> None:
        rule = search()
        browser = staff("view_usage")
        assert browser.get(page_of("history", rule)).status_code == 403
        assert browser.post(page_of("restore", rule), {"state": "1:now"}).status_code == 403

    def test_who_may_delete_and_not_change_may_not_switch(self) -> None:
        rule = search()
        browser = staff("view_rule", "delete_rule")
        data = {"action": "switch_off", "_selected_action": [rule.pk]}
        assert browser.post(RULES, data).status_code == 403
        assert browser.post(RULES, data | {"action": "delete_selected"}).status_code == 200


@pytest.mark.parametrize("state", ["", "1", "x:was", f"{'9' * 30}:was", f"{'9' * 5000}:now"])
def test_a_state_that_there_is_not_is_not_restored(admin_client: Browser, state: str) -> None:
    assert admin_client.post(page_of("restore", search()), {"state": state}).status_code == 400
