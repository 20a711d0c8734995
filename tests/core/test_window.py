from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from django_slidinglimit.core.decisions import Verdict
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.window import (
    Reading,
    admits,
    judge,
    retry_after,
    used,
    verdict,
)

from .examples import VECTORS, counters, small_counters, thorough

costs = st.integers(0, 15)


def estimate(rate: Rate, reading: Reading) -> Fraction:
    """The definition, in fractions: the part of the previous window still inside the last one."""
    share = Fraction(rate.window_ms - reading.elapsed_ms, rate.window_ms)
    return reading.previous * share + reading.current


def later(rate: Rate, reading: Reading, ms: int) -> Reading:
    """What the counter holds when nothing arrives for so long."""
    windows, elapsed = divmod(reading.elapsed_ms + ms, rate.window_ms)
    counts = (reading.previous, reading.current, 0, 0)[windows:] if windows < 2 else (0, 0)
    return Reading(counts[0], counts[1], elapsed)


@pytest.mark.parametrize("vector", VECTORS, ids=[v["name"] for v in VECTORS])
def test_vector(vector: dict[str, Any]) -> None:
    rate = Rate(vector["limit"], vector["window_ms"])
    reading = Reading(vector["previous"], vector["current"], vector["elapsed_ms"])
    assert verdict(rate, *reading, vector["cost"]) == Verdict(
        vector["allowed"],
        vector["limit"],
        vector["remaining"],
        vector["retry_after_ms"],
        vector["reset_after_ms"],
    )
    numerator, denominator = vector["estimate"]
    assert estimate(rate, reading) == Fraction(numerator, denominator)
    assert used(rate, reading) == -(-numerator // denominator)


@thorough
@given(counters, costs)
def test_admits_while_the_estimate_and_the_cost_are_within_the_limit(
    counter: tuple[Rate, Reading], cost: int
) -> None:
    rate, reading = counter
    fits = estimate(rate, reading) + cost <= rate.limit
    assert admits(rate, reading, cost) is fits
    assert verdict(rate, *reading, cost).allowed is fits


@thorough
@given(counters, costs)
def test_after_exactly_the_wait_it_is_admitted_and_a_millisecond_earlier_refused(
    counter: tuple[Rate, Reading], cost: int
) -> None:
    rate, reading = counter
    wait = retry_after(rate, reading, cost)
    if wait is None:
        assert cost > rate.limit
        assert not admits(rate, Reading(0, 0, 0), cost)
        return
    assert wait < 2 * rate.window_ms + 1
    assert admits(rate, later(rate, reading, wait), cost)
    assert (wait == 0) == admits(rate, reading, cost)
    if wait:
        assert not admits(rate, later(rate, reading, wait - 1), cost)


@thorough
@given(small_counters(), costs)
def test_the_wait_is_the_first_moment_at_which_it_is_admitted(
    counter: tuple[Rate, Reading], cost: int
) -> None:
    rate, reading = counter
    moments = range(2 * rate.window_ms + 1)
    admitted = [t for t in moments if admits(rate, later(rate, reading, t), cost)]
    assert retry_after(rate, reading, cost) == (admitted[0] if admitted else None)
    # Once it fits it keeps fitting, so of several rules' waits the greatest satisfies all.
    assert admitted == list(moments)[len(moments) - len(admitted) :]


@thorough
@given(counters, costs)
def test_what_is_refused_changes_nothing(counter: tuple[Rate, Reading], cost: int) -> None:
    rate, reading = counter
    answer = verdict(rate, *reading, cost)
    assume(not answer.allowed)
    untouched = judge(rate, reading, 0, 0)
    assert (answer.remaining, answer.reset_after) == (untouched.remaining, untouched.reset_after)


@thorough
@given(small_counters(), costs)
def test_as_many_single_hits_pass_as_remain(counter: tuple[Rate, Reading], cost: int) -> None:
    rate, (previous, current, elapsed) = counter
    answer = verdict(rate, previous, current, elapsed, cost)
    current += cost if answer.allowed else 0
    for left in reversed(range(answer.remaining)):
        hit = verdict(rate, previous, current, elapsed)
        assert (hit.allowed, hit.remaining) == (True, left)
        current += 1
    assert not verdict(rate, previous, current, elapsed).allowed


@thorough
@given(counters)
def test_a_hit_of_all_that_remains_is_admitted_and_one_more_is_not(
    counter: tuple[Rate, Reading],
) -> None:
    rate, reading = counter
    remaining = verdict(rate, *reading, 0).remaining
    assert remaining >= 0
    if admits(rate, reading, 0):
        assert verdict(rate, *reading, remaining).allowed
    assert not verdict(rate, *reading, remaining + 1).allowed


@thorough
@given(counters)
def test_a_hit_that_costs_nothing_only_reads(counter: tuple[Rate, Reading]) -> None:
    rate, reading = counter
    answer = verdict(rate, *reading, 0)
    assert answer.allowed is (estimate(rate, reading) <= rate.limit)
    assert answer.remaining == max(0, math.floor(rate.limit - estimate(rate, reading)))
    assert answer.retry_after is not None


@thorough
@given(counters, costs)
def test_after_the_reset_the_counter_is_as_new_and_a_millisecond_earlier_it_is_not(
    counter: tuple[Rate, Reading], cost: int
) -> None:
    rate, reading = counter
    answer = verdict(rate, *reading, cost)
    if answer.allowed:
        reading = reading._replace(current=reading.current + cost)
    assert later(rate, reading, answer.reset_after)[:2] == (0, 0)
    if answer.reset_after:
        assert later(rate, reading, answer.reset_after - 1)[:2] != (0, 0)


@thorough
@given(small_counters(), st.integers(0, 12), costs)
def test_a_lowered_limit_waits_longer_and_leaves_nothing_negative(
    counter: tuple[Rate, Reading], lower: int, cost: int
) -> None:
    rate, reading = counter
    lowered = Rate(min(lower, rate.limit), rate.window_ms)
    before, after = verdict(rate, *reading, cost), verdict(lowered, *reading, cost)
    if after.allowed or not before.allowed:
        assert 0 <= after.remaining <= before.remaining
    assert after.retry_after is None or 0 <= (before.retry_after or 0) <= after.retry_after
    assert (after.retry_after is None) == (cost > lowered.limit)


def test_a_limit_of_0_refuses_everything_for_ever() -> None:
    assert verdict(Rate(0, 60_000), 0, 0, 0) == Verdict(False, 0, 0, None, 0)


def test_a_limit_of_1_can_wait_two_windows() -> None:
    assert retry_after(Rate(1, 1000), Reading(0, 1, 0), 1) == 2000


@thorough
@given(counters)
def test_the_used_part_is_the_estimate_rounded_up(counter: tuple[Rate, Reading]) -> None:
    rate, reading = counter
    exact = estimate(rate, reading)
    assert exact <= used(rate, reading) < exact + 1
