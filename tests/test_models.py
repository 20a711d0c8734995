from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.test import override_settings

from django_slidinglimit.models import METHODS, Rule, Usage, parse_methods
from django_slidinglimit.signals import rules_changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOOD = {"name": "a rule", "scope": "a", "rate": "5/min"}


def problems(**fields: str) -> dict[str, list[str]]:
    """What full validation says, by field."""
    try:
        Rule(**(GOOD | fields)).full_clean()
    except ValidationError as exc:
        return exc.message_dict
    return {}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"scope": "", "path": "api/*"},
        {"rate": " 10 / 5 M "},
        {"methods": "get, post PUT"},
        {"key": "header:X-Api-Key"},
        {"key": "tenant"},
    ],
)
@override_settings(SLIDINGLIMIT={"KEYS": {"tenant": "tests.test_models.tenant"}})
def test_accepts_a_rule_that_can_be_obeyed(fields: dict[str, str]) -> None:
    assert problems(**fields) == {}


def tenant(group: str, request: Any) -> str:
    return "one"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("rate", "10/month", "write it as number/unit"),
        ("rate", "", "cannot be blank"),
        ("methods", "GET, FETCH", "'FETCH' is not a method"),
        ("key", "tests.test_models.tenant", "is not a key"),
        ("key", "header:", "is not a key"),
        ("path", "<number:pk>/", "converter 'number'"),
        ("path", "<int:a>/<int:a>/", "redefinition"),
        ("mode", "enforced", "not a valid choice"),
        ("name", "", "cannot be blank"),
        ("rate", "9" * 60 + "/s", "at most 50 characters"),
    ],
)
def test_names_the_field_that_is_wrong_and_says_what_is_accepted(
    field: str, value: str, told: str
) -> None:
    scope = "" if field == "path" else "a"
    found = problems(**{"scope": scope, field: value})
    assert list(found) == [field]
    assert told in " ".join(found[field])


@pytest.mark.django_db
def test_names_all_fields_that_are_wrong() -> None:
    found = problems(rate="many", methods="FETCH", key="nobody", mode="on")
    assert set(found) == {"rate", "methods", "key", "mode"}


@pytest.mark.django_db
@pytest.mark.parametrize("fields", [{"scope": "", "path": ""}, {"scope": "a", "path": "a/"}])
def test_a_rule_has_a_scope_or_a_path_and_the_database_sees_to_it(fields: dict[str, str]) -> None:
    assert problems(**fields) == {"__all__": ["Give either a scope or a path."]}
    with pytest.raises(IntegrityError), transaction.atomic():
        Rule.objects.create(**(GOOD | fields))
    rule = Rule.objects.create(**GOOD)
    with pytest.raises(IntegrityError), transaction.atomic():
        Rule.objects.filter(pk=rule.pk).update(**fields)


@pytest.mark.django_db
def test_a_new_rule_enforces_counts_as_the_place_does_and_lets_pass_without_redis() -> None:
    rule = Rule.objects.create(**GOOD)
    rule.refresh_from_db()
    assert (rule.mode, rule.key, rule.methods) == ("enforce", "", "")
    assert (rule.no_identity, rule.when_down) == ("together", "allow")


def test_a_rule_without_a_name_is_known_by_its_place_and_rate() -> None:
    assert str(Rule(**GOOD)) == "a rule"
    assert str(Rule(scope="a", rate="5/min")) == "a: 5/min"
    assert str(Rule(path="a/", rate="5/min")) == "a/: 5/min"


def test_methods_are_read_in_any_case_with_commas_or_spaces() -> None:
    assert parse_methods("") == parse_methods(" , ") == frozenset()
    assert parse_methods("get,Post  PUT") == {"GET", "HEAD", "POST", "PUT"}
    assert parse_methods("head") == {"HEAD"}
    assert parse_methods(",".join(METHODS)) == set(METHODS)


@pytest.mark.django_db
def test_usage_has_one_permission_and_leaves_dumpdata_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert Usage._meta.default_permissions == ("view",)
    Rule.objects.create(**GOOD)
    call_command("dumpdata")
    assert capsys.readouterr().out.count("django_slidinglimit.") == 1


@pytest.fixture
def told() -> Iterator[list[str]]:
    """The databases of whose rules it was told that they changed in bulk."""
    databases: list[str] = []

    def receive(*, using: str, **_: Any) -> None:
        databases.append(using)

    rules_changed.connect(receive)
    yield databases
    rules_changed.disconnect(receive)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "write",
    [
        lambda rule: Rule.objects.update(rate="6/min"),
        lambda rule: Rule.objects.filter(pk=rule.pk).update(rate="6/min"),
        lambda rule: Usage.objects.update(rate="6/min"),
        lambda rule: Rule.objects.bulk_create([Rule(**GOOD)]),
        lambda rule: Rule.objects.bulk_update([rule], ["rate"]),
    ],
)
def test_a_write_that_django_does_not_tell_of_is_told_of(
    told: list[str], write: Callable[[Rule], Any]
) -> None:
    write(Rule.objects.create(**GOOD))
    assert told
    assert set(told) == {"default"}


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["update", "bulk_create", "bulk_update"])
def test_templates_cannot_write(name: str) -> None:
    assert getattr(Rule.objects.all(), name).alters_data


@pytest.mark.django_db
def test_migrations_are_complete() -> None:
    call_command("makemigrations", "django_slidinglimit", "--check", "--dry-run", verbosity=0)
