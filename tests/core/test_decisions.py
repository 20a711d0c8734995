from __future__ import annotations

from typing import Any

import pytest

from django_slidinglimit.core.decisions import Answer, Client, Decision, Hit, Rule, Verdict
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.window import Reading

ANN = Client("user", "ann")
RULE = Rule("r", Rate(5, 1000))
WATCHER = Rule("w", Rate(5, 1000), observe=True)
YES = Verdict(True, 5, 4, 0, 2000)
SOON, LATE, NEVER = (Verdict(False, 5, 0, wait, 2000) for wait in (100, 900, None))


def answer(rule: Rule, verdict: Verdict, charged: int = 0) -> Answer:
    return Answer(Hit(rule, ANN), verdict, Reading(0, 0, 0), charged)


@pytest.mark.parametrize("cost", [-1, 1.0, True, False, "1", None])
def test_a_cost_is_a_whole_number_of_0_or_more(cost: Any) -> None:
    with pytest.raises(ValueError, match="whole number of 0 or more"):
        Hit(RULE, ANN, cost)


def test_hits_share_a_counter_by_rule_window_and_client_alone() -> None:
    other_limit = Rule("r", Rate(9, 1000), name="another", observe=True, when_down="deny")
    assert Hit(RULE, ANN).counter == Hit(other_limit, ANN, cost=3).counter
    for rule, client in [
        (Rule("s", Rate(5, 1000)), ANN),
        (Rule("r", Rate(5, 1001)), ANN),
        (RULE, Client("ip", "ann")),
        (RULE, Client("user", "bob")),
    ]:
        assert Hit(rule, client).counter != Hit(RULE, ANN).counter


def test_nothing_asked_is_allowed() -> None:
    nothing = Decision()
    assert (nothing.allowed, nothing.limited, nothing.retry_after) == (True, False, 0)


def test_only_enforcing_rules_refuse() -> None:
    observed = Decision((answer(RULE, YES), answer(WATCHER, NEVER)))
    assert (observed.allowed, observed.limited, observed.retry_after) == (True, True, 0)
    assert [a.hit.rule for a in observed.enforced] == [RULE]
    refused = Decision((answer(RULE, SOON), answer(WATCHER, YES)))
    assert (refused.allowed, refused.limited) == (False, True)


def test_the_wait_is_the_greatest_of_the_enforcing_rules() -> None:
    assert Decision((answer(RULE, SOON), answer(RULE, LATE))).retry_after == 900
    assert Decision((answer(RULE, SOON), answer(RULE, YES))).retry_after == 100
    assert Decision((answer(RULE, SOON), answer(WATCHER, LATE))).retry_after == 100


def test_the_wait_is_never_if_any_enforcing_rule_never_admits() -> None:
    assert Decision((answer(RULE, LATE), answer(RULE, NEVER))).retry_after is None
    assert Decision((answer(RULE, LATE), answer(WATCHER, NEVER))).retry_after == 900


def test_charges_name_each_counter_once() -> None:
    decision = Decision((answer(RULE, YES, 3), answer(RULE, YES, 3), answer(WATCHER, SOON)))
    assert decision.charges == {Hit(RULE, ANN).counter: 3}
