"""What an operator does about one client, and the way back."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import RequestFactory, override_settings
from django.utils import timezone

from django_slidinglimit import connections, interventions, limiter
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.models import Override
from django_slidinglimit.models import Rule as Row

if TYPE_CHECKING:
    from datetime import datetime

pytestmark = pytest.mark.django_db

MARIA = Client("ip", "192.0.2.1")
LIST = Rule("c1", Rate(10, 3_600_000), "list")


@pytest.fixture
def search() -> Row:
    return Row.objects.create(name="Search", scope="search", rate="2/h", key="ip")


def own(effect: str, rule: Row | None = None, **fields: Any) -> Override:
    """An override of the client's own."""
    return Override.objects.create(
        kind=MARIA.kind, identity=MARIA.identity, effect=effect, rule=rule, **fields
    )


def soon(hours: int = 1) -> datetime:
    return timezone.now() + timedelta(hours=hours)


def ask(scope: str = "search") -> bool:
    request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1")
    return limiter.check(request, scope, key="ip").allowed


def limit(scope: str = "search") -> list[int]:
    request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1")
    return [answer.verdict.limit for answer in limiter.peek(request, scope, key="ip").answers]


def test_an_override_holds_until_it_ends(search: Row) -> None:
    [change] = interventions.override(MARIA, "rate", soon(), rule=search.pk, rate="9/h")
    assert change.was is None
    assert limit() == [9]
    Override.objects.update(expires=timezone.now())
    assert limit() == [2]


def test_it_is_undone_by_ending_it(search: Row) -> None:
    changes = interventions.override(MARIA, "exempt", soon(), rule=search.pk)
    assert limit() == []
    [undone] = interventions.undo(interventions.steps(changes))
    assert (undone.row.pk, undone.was and undone.was.expires) == (
        changes[0].row.pk,
        changes[0].row.expires,
    )
    assert limit() == [2]


@pytest.mark.parametrize(
    ("there", "effect", "ends"),
    [
        ("block", "exempt", True),
        ("block", "rate", True),
        ("exempt", "rate", True),
        ("block", "block", False),
        ("exempt", "exempt", False),
        ("exempt", "block", False),
        ("rate", "block", False),
        ("rate", "exempt", False),
        ("rate", "rate", False),
    ],
)
def test_what_is_stronger_ends_and_is_given_back_what_is_weaker_waits(
    search: Row, there: Any, effect: Any, ends: bool
) -> None:
    rate = {"rate": "5/h"}
    row = own(there, search, expires=soon(9), **(rate if there == "rate" else {}))
    before = row.expires
    found = list(interventions.voiding(MARIA, effect, search.pk))
    assert found == ([row] if ends else [])
    changes = interventions.override(
        MARIA, effect, soon(), rule=search.pk, rate="7/h" if effect == "rate" else ""
    )
    assert {"block": [2], "exempt": [], "rate": [7]}[effect] == limit()
    assert ask() is (effect != "block")
    row.refresh_from_db()
    assert (row.expires != before) is ends
    interventions.undo(interventions.steps(changes))
    row.refresh_from_db()
    assert row.expires == before
    assert {"block": [2], "exempt": [], "rate": [5]}[there] == limit()


def test_on_all_rules_it_holds_where_the_client_has_an_override_of_its_own_too(
    search: Row,
) -> None:
    other = Row.objects.create(name="Other", scope="other", rate="2/h", key="ip")
    own("rate", search, rate="100/h")
    own("block", other)
    changes = interventions.override(MARIA, "exempt", soon())
    assert (limit(), limit("other")) == ([], [])
    assert [change.row.rule for change in changes if change.was is None] == [None, search, other]
    interventions.undo(interventions.steps(changes))
    assert limit() == [100]
    assert not ask("other")


def test_on_one_rule_it_leaves_the_others_alone(search: Row) -> None:
    own("block")
    interventions.override(MARIA, "exempt", soon(), rule=search.pk)
    assert ask()
    assert not ask_in_code()


def ask_in_code() -> bool:
    request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1")
    return limiter.check(request, "code", key="ip", rate="5/h").allowed


def test_all_blocks_of_the_client_end_together_and_come_back_together(search: Row) -> None:
    own("block")
    own("block", search, expires=soon(3))
    kept = own("rate", search, rate="50/h")
    Override.objects.create(kind="ip", identity="192.0.2.2", effect="block")
    changes = interventions.end(MARIA, "block")
    assert len(changes) == 2
    assert limit() == [50]
    assert ask_in_code()
    assert Override.objects.get(pk=kept.pk).expires is None
    assert interventions.end(MARIA, "block") == []
    interventions.undo(interventions.steps(changes))
    assert not ask()
    assert not ask_in_code()


def test_what_somebody_has_changed_since_is_not_undone(search: Row) -> None:
    block = own("block", search)
    changes = interventions.override(MARIA, "exempt", soon(), rule=search.pk)
    made = changes[0].row
    made.reason = "agreed"
    made.save()
    undone = interventions.undo(interventions.steps(changes[1:]))
    assert [change.row for change in undone] == [block]
    steps = interventions.steps(changes)
    Override.objects.filter(pk=made.pk).update(updated=timezone.now())
    assert interventions.undo(steps) == []
    Override.objects.all().delete()
    assert interventions.undo(steps) == []


def test_nothing_is_undone_twice(search: Row) -> None:
    steps = interventions.steps(interventions.override(MARIA, "block", soon(), rule=search.pk))
    assert len(interventions.undo(steps)) == 1
    again = interventions.override(MARIA, "block", soon(), rule=search.pk)
    assert interventions.undo(steps) == []
    assert not ask()
    assert len(again) == 1


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"effect": "rate", "rate": "many"}, "rate"),
        ({"effect": "rate", "rate": ""}, "__all__"),
        ({"effect": "block", "rate": "5/h"}, "__all__"),
        ({"effect": "block", "reason": "x" * 300}, "reason"),
        ({"effect": "block", "rule": 10**6}, "rule"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(fields: Any, wrong: str) -> None:
    with pytest.raises(ValidationError) as info:
        interventions.override(MARIA, expires=soon(), **fields)
    assert set(info.value.message_dict) == {wrong}
    assert not Override.objects.exists()


@pytest.mark.parametrize(
    ("client", "writable"),
    [
        (Client("key", "a" * 512), True),
        (Client("key", "a" * 513), False),
        (Client("k" * 201, "a"), False),
        (Client("key", " a "), True),
        (Client("key", "a\nb"), True),
        (Client("key", "a\0b"), False),
        (Client("key", "\ud800"), False),
        (Client("user", ""), True),
        (Client("hashed:user", "0123456789abcdef"), False),
    ],
    ids=ascii,
)
def test_an_override_is_for_a_client_that_a_row_can_hold(client: Client, writable: bool) -> None:
    assert interventions.is_writable(client) is writable
    if writable:
        interventions.override(client, "block", soon())
        row = Override.objects.get()
        assert (row.kind, row.identity) == client
    else:
        with pytest.raises(ValueError, match="No override can be for"):
            interventions.override(client, "block", soon())


@pytest.mark.django_db(transaction=True)
def test_all_of_it_is_done_or_nothing(search: Row) -> None:
    own("block", search)
    with connection.cursor() as cursor:
        # The second write, which ends what is stronger, fails.
        cursor.execute(
            "CREATE TRIGGER no BEFORE UPDATE ON django_slidinglimit_override"
            " BEGIN SELECT RAISE(ABORT, 'not today'); END"
            if connection.vendor == "sqlite"
            else "CREATE FUNCTION no() RETURNS trigger AS $$ BEGIN RAISE 'not today'; END $$"
            " LANGUAGE plpgsql; CREATE TRIGGER no BEFORE UPDATE ON django_slidinglimit_override"
            " EXECUTE FUNCTION no()"
        )
        try:
            with pytest.raises(Exception, match="not today"):
                interventions.override(MARIA, "exempt", soon(), rule=search.pk)
        finally:
            on = "" if connection.vendor == "sqlite" else " ON django_slidinglimit_override"
            cursor.execute(f"DROP TRIGGER no{on}")
            if connection.vendor != "sqlite":
                cursor.execute("DROP FUNCTION no")
    assert [row.effect for row in Override.objects.all()] == ["block"]


def test_a_reset_is_taken_back_once() -> None:
    hit = Hit(LIST, MARIA)
    for _ in range(3):
        limiter.take([hit])
    held = interventions.reset([hit])
    limiter.take([hit])
    once = secrets.token_hex(8)
    assert [interventions.restore(held, once, 60) for _ in range(3)] == [True, False, False]
    reading = connections.store().peek([hit]).answers[0].reading
    assert reading is not None
    assert reading.current + reading.previous == 4


@override_settings(SLIDINGLIMIT={"RULES_POLL": 0, "TIMEOUT": 10})
def test_a_restored_count_refuses_and_a_reset_admits_in_this_process_at_once() -> None:
    hit = Hit(Rule("c1", Rate(2, 3_600_000), "list"), MARIA)
    assert [limiter.take([hit]).allowed for _ in range(3)] == [True, True, False]
    held = interventions.reset([hit])
    assert connections.store().peek([hit]).allowed
    interventions.restore(held, secrets.token_hex(8), 60)
    assert not limiter.take([hit]).allowed
    interventions.reset([hit])
    assert limiter.take([hit]).allowed
