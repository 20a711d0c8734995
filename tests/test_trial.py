"""A proposed rule on the traffic of the last hour."""

import pytest
from django.test import override_settings

from django_slidinglimit.clients import named
from django_slidinglimit.core.decisions import Client, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.models import Override
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.places import code_rule
from django_slidinglimit.rules import StoredRule, compile_rule
from django_slidinglimit.usage import trial
from django_slidinglimit.usage.simulation import Range
from tests.recorded import record

pytestmark = pytest.mark.django_db

MARIA, PAUL = Client("user", "1"), Client("user", "2")
ADDRESS = Client("ip", "192.0.2.1")
CODE = code_rule("search", "user", frozenset(), Rate(100, 60_000))


def proposed(rate: str = "5/min", scope: str = "search", **fields: object) -> StoredRule:
    return compile_rule(Row(name="Search", scope=scope, rate=rate, **fields))


def saved(rate: str = "100/min", **fields: object) -> tuple[Row, StoredRule]:
    row = Row.objects.create(name="Search", rate=rate, **{"scope": "search", **fields})
    return row, compile_rule(row)


def edited(row: Row, **fields: object) -> StoredRule:
    """The row as it would be, unsaved."""
    return compile_rule(Row(**{**vars_of(row), **fields}))


def vars_of(row: Row) -> dict[str, object]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}


def test_a_rule_is_tried_on_its_own_traffic() -> None:
    row, before = saved()
    record(before.rule, MARIA, 12, ago=5)
    record(before.rule, PAUL, 3, ago=5)
    record(CODE, ADDRESS, 50)
    found = trial.run(edited(row, rate="5/min"), before)
    assert found.own
    assert [rule.id for rule in found.sources] == [before.rule.id]
    assert [(line.client, line.asked, line.busiest, line.refused) for line in found.lines] == [
        (MARIA, 12, 12, Range(7, 7)),
        (PAUL, 3, 3, Range(0, 0)),
    ]
    assert (found.asked, found.refused, found.clients) == (15, Range(7, 7), Range(1, 1))
    assert [line.client for line in found.affected] == [MARIA]


def test_what_it_counted_at_an_earlier_rate_is_part_of_it() -> None:
    row, before = saved()
    record(before.rule, MARIA, 4, ago=5)
    record(edited(row, rate="9/min", mode="observe").rule, MARIA, 4, ago=8)
    assert trial.run(edited(row, rate="5/min"), before).asked == 8


def test_a_new_rule_of_a_scope_is_tried_on_what_the_codes_rule_counted() -> None:
    record(CODE, MARIA, 12)
    record(code_rule("other", "user", frozenset(), CODE.rate), PAUL, 50)
    for key in ("", "user", "user_or_ip"):
        found = trial.run(proposed(key=key), None)
        assert not found.own
        assert [rule.name for rule in found.sources] == ["search"]
        assert found.refused == Range(7, 7)


def test_a_rule_of_another_key_finds_no_traffic_where_none_was_counted_so() -> None:
    record(CODE, MARIA, 12)
    found = trial.run(proposed(key="ip"), None)
    assert found.sources == []
    assert found.asked == 0


def test_what_counts_users_and_addresses_says_nothing_of_addresses_alone() -> None:
    both = code_rule("search", "user_or_ip", frozenset(), CODE.rate)
    record(both, MARIA, 12)
    record(both, ADDRESS, 12)
    assert trial.run(proposed(key="ip"), None).sources == []


def test_a_new_rule_is_tried_on_another_rule_of_the_same_place_and_key() -> None:
    _, other = saved(key="ip")
    record(other.rule, ADDRESS, 12)
    assert trial.run(proposed(key="ip"), None).refused == Range(7, 7)
    assert trial.run(proposed(key="user"), None).sources == []
    _, of_path = saved(scope="", path="api/*")
    record(of_path.rule, ADDRESS, 12)
    found = trial.run(proposed(scope="", path="/api/*"), None)
    assert [rule.id for rule in found.sources] == [of_path.rule.id]


def test_a_request_that_the_code_and_an_observing_rule_counted_is_one_request() -> None:
    _, other = saved(mode="observe")
    record(other.rule, MARIA, 12, ago=5)
    record(CODE, MARIA, 12, ago=5)
    assert trial.run(proposed(), None).asked == 12


def test_a_rule_that_moves_is_tried_on_the_traffic_of_its_new_place() -> None:
    row, before = saved()
    record(before.rule, MARIA, 50)
    record(code_rule("list", "user", frozenset(), CODE.rate), PAUL, 6)
    found = trial.run(edited(row, scope="list", rate="5/min"), before)
    assert not found.own
    assert [line.client for line in found.lines] == [PAUL]


def test_who_has_an_override_is_left_out() -> None:
    row, before = saved()
    for client in (MARIA, PAUL):
        record(before.rule, client, 12)
    Override.objects.create(rule=row, kind="user", identity="1", effect="exempt")
    found = trial.run(edited(row, rate="5/min"), before)
    assert [line.client for line in found.lines] == [PAUL]
    assert found.excepted == 1


def test_a_share_of_clients_is_the_one_that_the_rule_would_be_enforced_for() -> None:
    row, before = saved()
    clients = [Client("user", str(n)) for n in range(30)]
    for client in clients:
        record(before.rule, client)
    after = edited(row, share=40)
    found = trial.run(after, before)
    expected = {client for client in clients if after.enforced_for(client)}
    assert {line.client for line in found.lines} == expected
    assert 0 < len(expected) < 30
    assert len(trial.run(edited(row, share=40, mode="observe"), before).lines) == 30


@pytest.mark.parametrize(
    ("rate", "busiest", "room"),
    [
        ("5/min", 9, 5),
        ("5/10s", 9, 30),
        ("5/2m", 12, 5),
        ("6/90s", 12, 8),
        ("5/h", 15, 5),
        ("5/day", 15, 5),
    ],
)
def test_the_busiest_stretch_is_as_long_as_the_window_within_an_hour(
    rate: str, busiest: int, room: int
) -> None:
    source = {7: 9, 8: 3, 11: 3}
    found = trial.Trial(proposed(rate))
    assert trial._busiest(source, found.stretch) == busiest
    assert found.room == room


def test_the_most_refused_stand_first() -> None:
    _, before = saved("100/10s")
    for client, times in ((MARIA, 40), (PAUL, 70), (ADDRESS, 31)):
        record(before.rule, client, times)
    found = trial.run(proposed("5/10s", key=""), None)
    assert [line.client for line in found.affected] == [PAUL, MARIA, ADDRESS]
    assert found.refused == Range(10 + 40 + 1, 35 + 65 + 26)


@override_settings(SLIDINGLIMIT={"RULES_POLL": 0, "KEYS": {"tenant": "tests.test_trial.tenant"}})
def test_a_key_of_the_projects_own_is_found_by_its_name() -> None:
    assert named("tenant").name == "tenant"
    record(Rule("c1", CODE.rate, "search"), Client("tenant", "a"), 12)
    assert trial.run(proposed(key="tenant"), None).refused == Range(7, 7)


def tenant(_group: str, _request: object) -> str:
    return "a"
