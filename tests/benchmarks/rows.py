"""Rows as a large site may have them: rules of scopes and of paths, overrides of every kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.models import Group

from django_slidinglimit import connections, keeper, loading
from django_slidinglimit.models import Override, Rule

if TYPE_CHECKING:
    from django_slidinglimit.rules import RuleSet

# In the scope that is measured, and on the path.
SCOPE, PATH = "scope-0", "/api/v1/kind-0/7/"
# What never refuses.
RATE = "1000000/min"


def write_rules(number: int) -> None:
    """Rules, half of scopes and half of paths; the first two are `SCOPE`'s and `PATH`'s."""
    rules = []
    for n in range(number):
        which = {"path": f"api/v1/kind-{n // 2}/<int:pk>/"} if n % 2 else {"scope": f"scope-{n}"}
        rules.append(Rule(name=f"rule {n}", rate=RATE, key="ip", **which))
    Rule.objects.bulk_create(rules)


def leave_two_rules() -> None:
    """Delete the rules other than `SCOPE`'s and `PATH`'s."""
    Rule.objects.exclude(name__in=("rule 0", "rule 1")).delete()


def write_overrides(number: int) -> None:
    """Overrides: half for addresses, the rest for networks of seven sizes, users and a group.

    None of a network is for an address that is measured.
    """
    group, _ = Group.objects.get_or_create(name="partners")
    rule = Rule.objects.get(scope=SCOPE)
    overrides = []
    for n in range(number):
        if n % 10 < 5:
            whom = {"kind": "ip", "identity": address(n)}
        elif n % 10 < 7:
            length = 8 + n // 10 % 7 * 4
            whom = {"network": f"{20 + n % 100}.{n // 256 % 256}.{n % 256}.0/{length}"}
        else:
            whom = {"kind": "user", "identity": str(n)}
        one = rule if n % 20 == 0 else None
        overrides.append(Override(**whom, rule=one, effect="rate", rate="2000000/min"))
    overrides.append(Override(group=group, effect="rate", rate="2000000/min"))
    Override.objects.bulk_create(overrides)


def address(number: int) -> str:
    """The address of a client; of ten in a row the first five have an override."""
    return f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"


def loaded() -> RuleSet:
    """The rules and overrides as they are now."""
    token = connections.store().run([("GET", keeper.token_key())])[0]
    return loading.load(loading.Loaded(), token, lambda: None).set
