"""Files of rules and overrides: what they say, how rows are matched, and what is found wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

from django_slidinglimit import exchange
from django_slidinglimit.documents import InvalidFileError
from django_slidinglimit.models import Override, Rule

if TYPE_CHECKING:
    from pytest_django import DjangoAssertNumQueries, Settings

pytestmark = pytest.mark.django_db

ITEMS = {"name": "items", "scope": "items"}


def document(*rules: Any, overrides: Any = ()) -> str:
    return json.dumps({"version": 1, "rules": rules, "overrides": list(overrides)})


def contents() -> list[dict[str, Any]]:
    """All that the database holds, times included."""
    models: tuple[Any, ...] = (Rule, Override)
    return [row for model in models for row in model.objects.order_by("pk").values()]


def problems(text: str, *, prune: bool = False) -> list[str]:
    """What is wrong with a file, of which nothing is imported."""
    before = contents()
    with pytest.raises(InvalidFileError) as caught:
        exchange.load(text, prune=prune)
    assert contents() == before
    return caught.value.problems


def lines(text: str, *, prune: bool = False) -> list[str]:
    """What an import says, before and when it is done."""
    foretold = list(exchange.compare(text, prune=prune).lines())
    assert list(exchange.load(text, prune=prune).lines()) == foretold
    return foretold


@pytest.fixture
def items() -> Rule:
    return Rule.objects.create(**ITEMS, rate="5/min")


@pytest.fixture
def rows(items: Rule) -> None:
    """Rows of every sort."""
    path = Rule.objects.create(
        name="Größe", path="api/*", methods="POST, GET", rate="1/s", key="user", mode="observe",
        share=20, no_identity="refuse", when_down="deny", description='two\nlines "quoted"',
    )  # fmt: skip
    group = Group.objects.create(name="staff")
    later = timezone.now() + timedelta(days=1)
    Override.objects.create(rule=items, group=group, effect="exempt")
    Override.objects.create(rule=path, network="2001:db8::/32", effect="block", expires=later)
    Override.objects.create(kind="user", identity="1", effect="rate", rate="9/h", reason="asked")
    Override.objects.create(
        kind="header:x-api-key", identity="0123456789abcdef~wxyz", effect="block"
    )
    Override.objects.create(effect="rate", rate="1/s")


def test_a_file_holds_what_people_edit_and_nothing_else(items: Rule) -> None:
    group = Group.objects.create(name="staff")
    friday = datetime(2100, 6, 7, 18, tzinfo=UTC)
    Override.objects.create(rule=items, group=group, effect="exempt", expires=friday)
    assert json.loads(exchange.dumps()) == {
        "version": 1,
        "rules": [
            {
                "name": "items",
                "scope": "items",
                "path": "",
                "methods": "",
                "key": "",
                "rate": "5/min",
                "mode": "enforce",
                "share": 100,
                "no_identity": "together",
                "when_down": "allow",
                "description": "",
            }
        ],
        "overrides": [
            {
                "rule": {"name": "items", "scope": "items", "path": "", "key": "", "methods": ""},
                "kind": "",
                "identity": "",
                "group": "staff",
                "network": "",
                "effect": "exempt",
                "rate": "",
                "expires": "2100-06-07T18:00:00+00:00",
                "reason": "",
            }
        ],
    }


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("prune", [False, True])
def test_what_was_exported_changes_nothing(prune: bool) -> None:
    before = contents()
    assert lines(exchange.dumps(), prune=prune) == ["0 added, 0 changed, 0 removed, 7 unchanged"]
    assert contents() == before


@pytest.mark.usefixtures("rows")
def test_an_empty_database_becomes_as_the_one_that_was_exported() -> None:
    text = exchange.dumps()
    Rule.objects.all().delete()
    Override.objects.all().delete()
    # Other primary keys, and another order.
    Rule.objects.create(name="other", scope="other", rate="1/s")
    exchange.load(text, prune=True)
    assert exchange.dumps() == text


@pytest.mark.usefixtures("rows")
def test_the_order_of_rows_in_the_database_does_not_matter() -> None:
    text = exchange.dumps()
    for rule in Rule.objects.order_by("-pk"):
        overrides = list(rule.overrides.order_by("-pk"))
        rule.delete()
        rule.pk = None
        rule.save()
        for override in overrides:
            override.pk, override.rule = None, rule
            override.save()
    assert exchange.dumps() == text


def test_without_time_zones_times_are_kept(settings: Settings, items: Rule) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Vienna"
    expires = datetime(2100, 7, 1, 20)  # noqa: DTZ001
    Override.objects.create(rule=items, effect="block", expires=expires)
    text = exchange.dumps()
    assert '"2100-07-01T18:00:00+00:00"' in text
    Override.objects.all().delete()
    exchange.load(text)
    assert Override.objects.get().expires == expires
    assert exchange.dumps() == text


def test_rows_are_added_changed_and_removed(items: Rule) -> None:
    Rule.objects.create(name="old", scope="old", rate="1/s")
    Override.objects.create(rule=items, kind="ip", identity="192.0.2.1", effect="block")
    Override.objects.create(kind="ip", identity="192.0.2.2", effect="block")
    text = document(
        {**ITEMS, "rate": "7/min", "mode": "observe"},
        {"name": "new", "path": "api/*", "methods": "GET", "rate": "2/s", "share": 50},
        overrides=[
            {"rule": ITEMS, "kind": "ip", "identity": "192.0.2.1", "effect": "exempt"},
            {"effect": "rate", "rate": "9/h"},
        ],
    )
    assert lines(text, prune=True) == [
        'added rule: name "new", path "api/*", methods "GET"',
        '    rate: "2/s"',
        "    share: 50",
        'changed rule: name "items", scope "items"',
        '    rate: "5/min" -> "7/min"',
        '    mode: "enforce" -> "observe"',
        "added override: all rules, everyone",
        '    effect: "rate"',
        '    rate: "9/h"',
        'changed override: rule "items", kind "ip", identity "192.0.2.1"',
        '    effect: "block" -> "exempt"',
        'removed override: all rules, kind "ip", identity "192.0.2.2"',
        'removed rule: name "old", scope "old"',
        "2 added, 2 changed, 2 removed, 0 unchanged",
    ]
    assert list(Rule.objects.values_list("name", "rate")) == [("items", "7/min"), ("new", "2/s")]
    assert Rule.objects.get(name="items").pk == items.pk
    assert {str(row) for row in Override.objects.all()} == {
        "exempt for ip 192.0.2.1",
        "9/h for everyone",
    }


def test_without_pruning_nothing_is_removed(items: Rule) -> None:
    Override.objects.create(rule=items, effect="block")
    before = contents()
    assert lines(document()) == ["0 added, 0 changed, 0 removed, 0 unchanged"]
    assert contents() == before


def test_a_field_that_is_left_out_has_its_default(items: Rule) -> None:
    Rule.objects.update(share=10, key="")
    lines(document({**ITEMS, "rate": "5/min"}))
    assert Rule.objects.get().share == 100


def test_an_override_may_be_for_a_rule_that_only_the_database_has(items: Rule) -> None:
    exchange.load(document(overrides=[{"rule": ITEMS, "effect": "block"}]))
    assert Override.objects.get().rule == items
    [problem] = problems(document(overrides=[{"rule": ITEMS, "effect": "block"}]), prune=True)
    assert problem.startswith("overrides[0].rule: no rule has this name")


def test_methods_are_the_same_in_any_order(items: Rule) -> None:
    Rule.objects.update(methods="POST, GET")
    rule = {**ITEMS, "methods": "get post"}
    text = document(
        {**rule, "rate": "5/min"},
        overrides=[{"rule": {**ITEMS, "methods": "GET,POST"}, "effect": "block"}],
    )
    assert lines(text)[:2] == [
        'changed rule: name "items", scope "items", methods "get post"',
        '    methods: "POST, GET" -> "get post"',
    ]
    assert Override.objects.get().rule == items


def test_a_client_is_found_however_it_is_written() -> None:
    Override.objects.create(kind="ip", identity="2001:db8::/64", effect="block")
    given = {"kind": "ip", "identity": "2001:DB8::7", "effect": "block"}
    assert lines(document(overrides=[given])) == ["0 added, 0 changed, 0 removed, 1 unchanged"]


def test_two_overrides_for_one_client_are_told_apart_where_one_stays() -> None:
    later = timezone.now() + timedelta(days=1)
    whom = {"kind": "user", "identity": "1"}
    Override.objects.create(**whom, effect="rate", rate="9/h")
    Override.objects.create(**whom, effect="rate", rate="99/h", expires=later)
    parts = json.loads(exchange.dumps())
    parts["overrides"][1 if parts["overrides"][1]["rate"] == "99/h" else 0]["rate"] = "50/h"
    assert '    rate: "99/h" -> "50/h"' in lines(json.dumps(parts))
    assert set(Override.objects.values_list("rate", flat=True)) == {"9/h", "50/h"}


def test_which_of_several_rows_is_meant_is_not_guessed(items: Rule) -> None:
    twin = Rule.objects.create(**ITEMS, rate="6/min")
    [problem] = problems(document({**ITEMS, "rate": "7/min"}))
    assert problem == (
        "rules[0]: which of these is which of those in the database "
        f"(rule {items.pk}, rule {twin.pk}) cannot be told. "
        "Give each rule a name of its own, in the admin and in the file."
    )
    [problem] = problems(document(overrides=[{"rule": ITEMS, "effect": "block"}]))
    assert problem.startswith("overrides[0].rule: 2 rules are called that. Give each rule a name")
    for effect in ("block", "exempt"):
        Override.objects.create(kind="user", identity="1", effect=effect)
    given = {"kind": "user", "identity": "1", "effect": "rate", "rate": "1/s"}
    [problem] = problems(document(overrides=[given]))
    assert problem.startswith("overrides[0]: which of these")
    assert "Delete or end" in problem


def test_a_file_that_says_a_row_twice_is_refused() -> None:
    rule = {**ITEMS, "rate": "5/min"}
    assert problems(document(rule, rule)) == ["rules[1]: the file says this before. Drop one."]


def test_expired_overrides_are_history() -> None:
    past, later = (timezone.now() + timedelta(days=n) for n in (-1, 1))
    old = Override.objects.create(kind="user", identity="1", effect="block", expires=past)
    assert json.loads(exchange.dumps())["overrides"] == []
    given = {"kind": "user", "identity": "1", "effect": "block"}
    assert lines(document(overrides=[{**given, "expires": past.isoformat()}])) == [
        "0 added, 0 changed, 0 removed, 0 unchanged, 1 expired and left out"
    ]
    lines(document(overrides=[{**given, "expires": later.isoformat()}]), prune=True)
    assert Override.objects.count() == 2
    # One that is in force can be ended.
    lines(document(overrides=[{**given, "expires": past.isoformat()}]), prune=True)
    assert [row.expires for row in Override.objects.all()] == [past, past]
    old.refresh_from_db()
    assert old.expires == past


def test_a_rule_that_is_pruned_takes_its_expired_overrides_along_and_that_is_told(
    items: Rule,
) -> None:
    Override.objects.create(rule=items, effect="block", expires=timezone.now() - timedelta(days=1))
    assert lines(document(), prune=True) == [
        'removed override: rule "items", everyone',
        'removed rule: name "items", scope "items"',
        "0 added, 0 changed, 2 removed, 0 unchanged",
    ]
    assert contents() == []


def test_a_row_that_was_wrong_before_may_stay_as_it_is() -> None:
    Rule.objects.create(name="", scope="old", rate="often")
    assert lines(exchange.dumps()) == ["0 added, 0 changed, 0 removed, 1 unchanged"]


def test_what_would_steer_a_terminal_is_escaped() -> None:
    [line, *_] = lines(document({**ITEMS, "name": "a\x1b[2Jb", "rate": "1/s"}))
    assert line == 'added rule: name "a\\u001b[2Jb", scope "items"'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "This is not JSON"),
        ("[" * 100_000, "This is not JSON"),
        ("[]", 'This is no export of rules with "version": 1'),
        ('{"version": 2}', 'This is no export of rules with "version": 1'),
        ('{"version": 1, "rules": []}', "overrides: a list is wanted."),
        ('{"version": 1, "rules": {}, "overrides": []}', "rules: a list is wanted."),
        ('{"version": 1, "rules": [], "overrides": [], "x": 1}', "x: there is no such part."),
    ],
)
def test_what_is_no_export_is_refused(text: str, told: str) -> None:
    [problem] = problems(text, prune=True)
    assert problem.startswith(told)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("items", "rules[0]: an object"),
        ({"created": ""}, "rules[0].created: there is no such field. Known: name, scope"),
        ({"id": 1}, "rules[0].id: there is no such field"),
        ({"name": None}, "rules[0].name: a text is wanted, not null."),
        ({"name": "a\0"}, "rules[0].name: there is a NUL"),
        ({"name": "\ud800"}, "rules[0].name: this is half a character."),
        ({"share": "5"}, 'rules[0].share: a whole number is wanted, not "5".'),
        ({"share": True}, "rules[0].share: a whole number is wanted, not true."),
        ({"name": ""}, "rules[0].name: This field cannot be blank."),
        ({"name": "x" * 101}, "rules[0].name: Ensure this value has at most 100 characters"),
        ({"rate": "often"}, "rules[0].rate: "),
        ({"methods": "FETCH"}, "rules[0].methods: 'FETCH' is not a method."),
        ({"key": "who"}, "rules[0].key: 'who' is not a key."),
        ({"mode": "on"}, "rules[0].mode: Value 'on' is not a valid choice."),
        ({"share": 0}, "rules[0].share: Ensure this value is greater than or equal to 1."),
        ({"share": 10**30}, "rules[0].share: Ensure this value is less than or equal to 100."),
        ({"path": "a"}, "rules[0]: Give either a scope or a path."),
    ],
)
def test_a_wrong_rule_is_told_with_its_place_and_field(given: Any, told: str) -> None:
    row = {**ITEMS, "rate": "5/min", **given} if isinstance(given, dict) else given
    [problem] = problems(document(row))
    assert problem.startswith(told)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rule": "items"}, "overrides[0].rule: null or an object is wanted, of name, scope"),
        ({"rule": {"pk": 1}}, "overrides[0].rule: null or an object is wanted, of name, scope"),
        ({"rule": {"name": 1}}, "overrides[0].rule: a text is wanted, not 1."),
        ({"rule": {"name": "x"}}, "overrides[0].rule: no rule has this name"),
        ({"group": "x"}, 'overrides[0].group: there is no group "x".'),
        ({"group": 1}, "overrides[0].group: a text is wanted, not 1."),
        ({"expires": "2100-01-01"}, 'overrides[0].expires: "2100-01-01" is no time with its zone'),
        ({"expires": "2100-01-01T00:00"}, 'overrides[0].expires: "2100-01-01T00:00" is no time'),
        ({"expires": "0001-01-01T00:00+09:00"}, "overrides[0].expires: "),
        ({"expires": 1}, "overrides[0].expires: 1 is no time"),
        ({"network": "x"}, "overrides[0].network: "),
        ({"kind": "user_or_ip", "identity": "1"}, "overrides[0].identity: Name the kind"),
        (
            {"kind": "ip", "identity": "192.0.2.1", "network": "192.0.2.0/24"},
            "overrides[0]: Give a",
        ),
        ({"rate": "5/min"}, "overrides[0]: Give a rate if the effect is another rate"),
        ({"effect": ""}, "overrides[0].effect: This field cannot be blank."),
        ({"created_by": 1}, "overrides[0].created_by: there is no such field"),
    ],
)
def test_a_wrong_override_is_told_with_its_place_and_field(given: Any, told: str) -> None:
    [problem] = problems(document(overrides=[{"effect": "block", **given}]))
    assert problem.startswith(told)


def test_of_many_alike_each_that_breaks_a_constraint_is_told() -> None:
    good = {**ITEMS, "rate": "5/min"}
    bad = {**good, "path": "a"}
    rules = [{**row, "name": str(n)} for n, row in enumerate([good, bad, good, bad])]
    places = [problem.partition(": ")[0] for problem in problems(document(*rules))]
    assert places == ["rules[1]", "rules[3]"]


def test_many_rows_are_compared_with_few_queries(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    rules = [{"name": f"r{n}", "scope": f"s{n}", "rate": "5/min"} for n in range(50)]
    rows = [
        {"rule": {"name": f"r{n}", "scope": f"s{n}"}, "network": f"192.0.2.{n}", "effect": "block"}
        for n in range(50)
    ]
    with django_assert_max_num_queries(20):
        plan = exchange.compare(document(*rules, overrides=rows))
    assert len(list(plan.changes())) == 100


def test_all_that_is_wrong_is_told_at_once(items: Rule) -> None:
    text = document(
        {**ITEMS, "rate": "9/min"},
        {**ITEMS, "name": "b", "rate": "often", "mode": "on"},
        overrides=[{"effect": "rate"}, {"rule": {"name": "x"}, "effect": "block"}],
    )
    places = [problem.partition(": ")[0] for problem in problems(text)]
    assert sorted(places) == ["overrides[0]", "overrides[1].rule", "rules[1].mode", "rules[1].rate"]
