"""The rows in the database become the rule set; what did not change is not compiled again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import OperationalError, connection
from django.test import override_settings
from django.utils import timezone

from django_slidinglimit.core.decisions import Client
from django_slidinglimit.loading import Loaded, load
from django_slidinglimit.models import Override, Rule

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.django_db

ALICE = Client("user", "1")


def loaded(last: Loaded | None = None) -> Loaded:
    return load(last or Loaded(), None, lambda: None)


def scopes(found: Loaded) -> dict[str, list[int]]:
    """The limits of each scope."""
    return {
        scope: [rule.rule.rate.limit for rule in rules] for scope, rules in found.set.scopes.items()
    }


def raw(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_only_a_row_that_changed_is_compiled_again() -> None:
    for name, scope in (("1", "a"), ("2", "a"), ("3", "b")):
        Rule.objects.create(name=name, scope=scope, rate="5/min")
    before = loaded()
    first = before.set.scopes["a"]
    raw(f"UPDATE django_slidinglimit_rule SET rate = '7/min' WHERE id = {first[0].pk}")
    after = loaded(before)
    assert scopes(after) == {"a": [7, 5], "b": [5]}
    assert after.set.scopes["a"][1] is first[1]
    assert scopes(before) == {"a": [5, 5], "b": [5]}


def test_whatever_happens_to_rows_the_set_is_as_if_loaded_afresh() -> None:
    rules = [Rule.objects.create(name=f"{n}", scope=f"{n % 3}", rate="5/min") for n in range(9)]
    paths = [Rule.objects.create(name=f"{n}", path=f"api/{n}/*", rate="5/min") for n in range(3)]
    exceptions = [
        Override.objects.create(kind="user", identity=f"{n}", effect="block", rule=rules[n])
        for n in range(5)
    ]
    last = loaded()
    for change in (
        lambda: rules[0].delete(),
        lambda: Rule.objects.filter(scope="1").update(mode="off"),
        lambda: Rule.objects.filter(scope="1").update(mode="observe"),
        lambda: Rule.objects.filter(pk=rules[2].pk).update(scope="", path="x/"),
        lambda: Rule.objects.filter(pk=rules[5].pk).update(name="z"),
        lambda: Rule.objects.filter(pk=rules[8].pk).update(rate="many"),
        lambda: Rule.objects.filter(pk=rules[8].pk).update(rate="8/min"),
        lambda: Rule.objects.filter(pk=paths[1].pk).delete(),
        lambda: Override.objects.filter(identity="3").update(
            effect="exempt", network="", rule=None
        ),
        lambda: exceptions[1].delete(),
        lambda: Override.objects.update(kind="", identity="", network="10.0.0.0/8"),
        lambda: Override.objects.update(network="", expires=timezone.now() - timedelta(seconds=1)),
        lambda: Override.objects.update(expires=None),
        lambda: Rule.objects.all().delete(),
    ):
        change()
        last, afresh = loaded(last), loaded()
        assert last.set.scopes == afresh.set.scopes
        assert {place: [r.pk for r in found] for place, found in last.set.paths.items()} == {
            place: [r.pk for r in found] for place, found in afresh.set.paths.items()
        }
        assert last.set.problems == afresh.set.problems
        assert last.set.overrides._levels == afresh.set.overrides._levels


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"rate": "10/month"}, "month"),
        ({"scope": "", "path": "<nonsense:x>/"}, "nonsense"),
        ({"methods": "FETCH"}, "FETCH"),
        ({"key": "nobody"}, "nobody"),
        ({"key": "broken"}, "not today"),
        ({"mode": "enforced"}, "enforced"),
        ({"no_identity": "perhaps"}, "perhaps"),
        ({"when_down": "panic"}, "panic"),
    ],
)
def test_leaves_out_a_row_that_does_not_compile_and_says_why(
    fields: dict[str, str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "broken_key.py").write_text("raise RuntimeError('not today')")
    monkeypatch.syspath_prepend(tmp_path)
    bad = Rule.objects.create(**({"scope": "a", "name": "bad", "rate": "5/min"} | fields))
    good = Rule.objects.create(scope="a", rate="5/min")
    with override_settings(SLIDINGLIMIT={"KEYS": {"broken": "broken_key.key"}}):
        found = loaded().set
    assert [r.pk for r in found.for_scope("a", "GET")] == [good.pk]
    assert list(found.problems) == [f"rule {bad.pk}"]
    assert "bad" in found.problems[f"rule {bad.pk}"]
    assert problem in found.problems[f"rule {bad.pk}"]


def test_a_row_that_did_not_compile_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    Rule.objects.create(scope="a", rate="5/min", key="late")
    with override_settings(SLIDINGLIMIT={"KEYS": {"late": "late_key.key"}}):
        before = loaded()
        assert list(before.set.problems)
        (tmp_path / "late_key.py").write_text("def key(group, request): return '1'")
        after = loaded(before)
    assert not after.set.problems
    assert scopes(after) == {"a": [5]}


def test_a_pause_is_offered_with_every_row() -> None:
    Rule.objects.bulk_create([Rule(scope=f"{n}", rate="5/min") for n in range(20)])
    Override.objects.bulk_create(
        [Override(kind="user", identity=f"{n}", effect="block") for n in range(30)]
    )
    pauses = []
    last = load(Loaded(), None, lambda: pauses.append(1))
    assert len(pauses) >= 100  # to read them, and to put them into the indexes
    pauses.clear()
    load(last, None, lambda: pauses.append(1))
    assert len(pauses) == 50


class TestGroups:
    @pytest.fixture
    def user(self) -> User:
        group = Group.objects.create(name="partners")
        Override.objects.create(group=group, effect="exempt")
        user = User.objects.create_user("alice")
        user.groups.add(group)
        return user

    def test_a_database_that_is_away_costs_the_override_and_not_the_request(
        self, user: User, caplog: pytest.LogCaptureFixture
    ) -> None:
        overrides = loaded().set.overrides
        client = Client("user", str(user.pk))

        def away(*_: Any) -> None:
            raise OperationalError("no connection")

        with connection.execute_wrapper(away):
            for _ in range(3):
                assert overrides.winner("d1", client) is None
        assert overrides.winner("d1", client)
        with connection.execute_wrapper(away):
            assert overrides.winner("d1", client)  # known by now
        assert len(caplog.records) == 1

    def test_are_asked_anew_after_each_load(self, user: User) -> None:
        client = Client("user", str(user.pk))
        last = loaded()
        assert last.set.overrides.winner("d1", client)
        user.groups.clear()
        assert last.set.overrides.winner("d1", client)
        assert loaded(last).set.overrides.winner("d1", client) is None
