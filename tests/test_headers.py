from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpResponse
from django.test import override_settings
from hypothesis import assume, given
from hypothesis import strategies as st

from django_slidinglimit import limiter
from django_slidinglimit.core.decisions import Client, Decision, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.stores import charges, decide
from django_slidinglimit.core.window import Reading, admits
from django_slidinglimit.headers import fields

from .core.examples import counters, small_counters, thorough
from .core.test_window import later

if TYPE_CHECKING:
    from pytest_django import Settings

NOW = 1_800_000_000_123
SECOND, MINUTE = 1000, 60_000
CLIENT = Client("ip", "192.0.2.7")

# A String of RFC 9651, section 3.3.3.
STRING = r'"((?:[ !#-\[\]-~]|\\["\\])*)"'
POLICY = re.compile(STRING + r";q=(\d+);w=(\d+)")
LIMIT = re.compile(STRING + r";r=(\d+)(?:;t=(\d+))?")


def rule(limit: int, window_ms: int = MINUTE, name: str = "burst", **others: Any) -> Rule:
    return Rule(f"d{name}", Rate(limit, window_ms), name, **others)


def decided(*asked: tuple[Rule, Reading], cost: int = 1) -> Decision:
    """What a store decides that holds these readings."""
    hits = [Hit(rule, CLIENT, cost) for rule, _ in asked]
    readings = {hit.counter: reading for hit, (_, reading) in zip(hits, asked, strict=True)}
    return decide(hits, readings, charges(hits, readings), NOW)


def members(field: str, form: re.Pattern[str]) -> list[tuple[Any, ...]]:
    """The items of a list, all of one form and nothing else."""
    found = list(form.finditer(field))
    assert ", ".join(match[0] for match in found) == field
    return [match.groups() for match in found]


# The forms


def test_an_admitted_request_is_told_of_its_limit() -> None:
    assert fields(decided((rule(100), Reading(0, 49, 30_000)))) == {
        "X-RateLimit-Limit": "100",
        "X-RateLimit-Remaining": "50",
        "X-RateLimit-Reset": "90",
        "RateLimit-Policy": '"burst";q=100;w=60',
        "RateLimit": '"burst";r=50;t=32',
    }


def test_a_refused_request_is_told_when_to_come_again() -> None:
    """Half of the previous window's 100 lie inside; one slides out in 600 ms."""
    assert fields(decided((rule(100), Reading(100, 50, 30_000)))) == {
        "Cache-Control": "no-store",
        "Retry-After": "1",
        "X-RateLimit-Limit": "100",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "90",
        "RateLimit-Policy": '"burst";q=100;w=60',
        "RateLimit": '"burst";r=0;t=1',
    }


def test_the_drafts_example() -> None:
    """One in 100 is to slide out of the previous window, at 30 s exactly."""
    found = fields(decided((rule(100), Reading(50, 0, 0)), cost=0))
    assert found["RateLimit-Policy"] == '"burst";q=100;w=60'
    assert found["RateLimit"] == '"burst";r=50;t=2'
    found = fields(decided((rule(100), Reading(2, 49, 0)), cost=0))
    assert found["RateLimit"] == '"burst";r=49;t=30'


@pytest.mark.parametrize(
    ("reading", "wait_ms", "told"),
    [
        (Reading(0, 1, 0), 120_000, "120"),
        (Reading(0, 1, 1), 119_999, "120"),
        (Reading(0, 1, 999), 119_001, "120"),
        (Reading(0, 1, 1000), 119_000, "119"),
        (Reading(1, 0, 59_000), 1000, "1"),
        (Reading(1, 0, 59_999), 1, "1"),
    ],
)
def test_the_wait_is_in_whole_seconds_rounded_up(reading: Reading, wait_ms: int, told: str) -> None:
    decision = decided((rule(1), reading))
    assert decision.retry_after == wait_ms
    assert fields(decision)["Retry-After"] == told


@thorough
@given(st.lists(counters, min_size=1, max_size=3), st.integers(0, 15))
def test_obeying_retry_after_is_enough_and_it_is_at_least_1(
    found: list[tuple[Rate, Reading]], cost: int
) -> None:
    asked = [(Rule(f"d{n}", rate), reading) for n, (rate, reading) in enumerate(found)]
    decision = decided(*asked, cost=cost)
    assume(not decision.allowed)
    told = fields(decision)
    if "Retry-After" not in told:
        assert any(cost > rate.limit for rate, _ in found)
        return
    assert re.fullmatch("[1-9][0-9]*", told["Retry-After"])
    wait = int(told["Retry-After"]) * SECOND
    assert all(admits(rate, later(rate, reading, wait), cost) for rate, reading in found)
    if wait > SECOND:
        early = wait - SECOND
        assert not all(admits(rate, later(rate, reading, early), cost) for rate, reading in found)


@pytest.mark.parametrize(("limit", "cost"), [(0, 1), (5, 6)])
def test_what_is_never_admitted_is_told_no_time(limit: int, cost: int) -> None:
    found = fields(decided((rule(limit), Reading(0, 0, 0)), cost=cost))
    assert "Retry-After" not in found
    assert found["RateLimit"] == f'"burst";r={limit}'
    assert found["RateLimit-Policy"] == f'"burst";q={limit};w=60'
    both = fields(
        decided((rule(limit), Reading(0, 0, 0)), (rule(9, name="x"), Reading(0, 9, 0)), cost=cost)
    )
    assert "Retry-After" not in both


# What t says


@thorough
@given(small_counters(), st.integers(0, 12), st.integers(0, 3))
def test_within_t_no_request_for_more_than_r_fits_and_right_after_one_does(
    counter: tuple[Rate, Reading], cost: int, scale: int
) -> None:
    """In seconds, as small counters are in milliseconds: so each moment is looked at."""
    rate, reading = counter
    rate = Rate(rate.limit, rate.window_ms * SECOND)
    reading = reading._replace(elapsed_ms=reading.elapsed_ms * SECOND + 250 * scale)
    decision = decided((Rule("d1", rate), reading), cost=cost)
    ((_, r, t),) = members(fields(decision)["RateLimit"], LIMIT)
    (answer,) = decision.answers
    after = reading._replace(current=reading.current + answer.charged)
    left = int(r)
    assert left == answer.verdict.remaining
    if not decision.allowed:
        assert t == fields(decision).get("Retry-After")
        return

    def fits_more(seconds: float) -> bool:
        return admits(rate, later(rate, after, round(seconds * SECOND)), left + 1)

    if t is None:
        assert left == rate.limit
    else:
        assert fits_more(int(t))
        assert not any(fits_more(second) for second in range(int(t)))


def test_t_is_at_least_1() -> None:
    found = fields(decided((rule(9), Reading(1, 0, 59_999)), cost=0))
    assert found["RateLimit"] == '"burst";r=8;t=1'


def test_nothing_used_has_no_t() -> None:
    assert fields(decided((rule(9), Reading(0, 0, 7)), cost=0))["RateLimit"] == '"burst";r=9'


@pytest.mark.parametrize(
    ("window_ms", "told"), [(1, 1), (999, 1), (1000, 1), (1001, 2), (90_000, 90)]
)
def test_a_window_is_told_in_whole_seconds_rounded_up(window_ms: int, told: int) -> None:
    found = fields(decided((rule(9, window_ms), Reading(0, 0, 0))))
    assert found["RateLimit-Policy"] == f'"burst";q=9;w={told}'


# Several rules


def test_all_rules_are_listed_and_the_x_family_tells_of_the_one_with_the_least_left() -> None:
    burst, daily = rule(10, name="burst"), rule(100, 86_400_000, name="daily")
    found = fields(decided((daily, Reading(0, 20, 0)), (burst, Reading(0, 4, 0))))
    assert found["RateLimit-Policy"] == '"daily";q=100;w=86400, "burst";q=10;w=60'
    assert members(found["RateLimit"], LIMIT)[0][:2] == ("daily", "79")
    assert members(found["RateLimit"], LIMIT)[1][:2] == ("burst", "5")
    assert (found["X-RateLimit-Limit"], found["X-RateLimit-Remaining"]) == ("10", "5")
    found = fields(decided((daily, Reading(0, 98, 0)), (burst, Reading(0, 4, 0))))
    assert (found["X-RateLimit-Limit"], found["X-RateLimit-Remaining"]) == ("100", "1")


def test_of_equals_the_x_family_tells_of_the_one_that_lasts_longer() -> None:
    burst, daily = rule(10, name="burst"), rule(10, 86_400_000, name="daily")
    for asked in ([burst, daily], [daily, burst]):
        found = fields(decided(*((r, Reading(0, 4, 0)) for r in asked)))
        assert found["X-RateLimit-Reset"] == str(2 * 86_400)


def test_the_x_family_tells_of_the_one_that_refuses() -> None:
    """It has more left than the other, and still too little for what the request costs there."""
    hits = [Hit(rule(5, name="small"), CLIENT), Hit(rule(20, name="large"), CLIENT, 5)]
    small, large = (hit.counter for hit in hits)
    readings = {small: Reading(0, 3, 0), large: Reading(0, 16, 0)}
    found = fields(decide(hits, readings, charges(hits, readings), NOW))
    assert (found["X-RateLimit-Limit"], found["X-RateLimit-Remaining"]) == ("20", "4")
    assert "Retry-After" in found


def test_observing_rules_do_not_show() -> None:
    soft = rule(3, name="soft", observe=True)
    assert fields(decided((soft, Reading(0, 9, 0)))) == {}
    found = fields(decided((soft, Reading(0, 9, 0)), (rule(9), Reading(0, 0, 0))))
    assert found["X-RateLimit-Limit"] == "9"
    assert not any("soft" in value for value in found.values())


def test_where_nothing_was_decided_nothing_is_told() -> None:
    assert fields(Decision()) == {}


# Names


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("burst", '"burst"'),
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", r'"back\\slash"'),
        ('\\"', r'"\\\""'),
        ("a\r\nSet-Cookie: x=1", '"a??Set-Cookie: x=1"'),
        ("a\n", '"a?"'),
        ("tab\tnul\0del\x7f", '"tab?nul?del?"'),
        ("café", '"caf?"'),
        ("\u2028\ud800", '"??"'),
        ("a, b;c=d", '"a, b;c=d"'),
        (" ", '" "'),
        ("", '"d"'),
    ],
)
def test_a_name_is_a_string_of_printable_ascii(name: str, told: str) -> None:
    found = fields(decided((rule(9, name=name), Reading(0, 0, 0)), cost=0))
    assert found["RateLimit-Policy"] == f"{told};q=9;w=60"
    assert found["RateLimit"] == f"{told};r=9"


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a", "a", "a"], ["a", "a-2", "a-3"]),
        (["a", "a-2", "a"], ["a", "a-2", "a-3"]),
        (["a", "a", "a-2"], ["a", "a-2", "a-2-2"]),
        (["é", "ü", "?"], ["?", "?-2", "?-3"]),
    ],
)
def test_names_that_read_alike_are_told_apart(names: list[str], told: list[str]) -> None:
    rules = [Rule(f"d{n}", Rate(9, MINUTE), name) for n, name in enumerate(names)]
    found = fields(decided(*((rule, Reading(0, 0, 0)) for rule in rules)))
    for field, form in (("RateLimit-Policy", POLICY), ("RateLimit", LIMIT)):
        assert [name for name, *_ in members(found[field], form)] == told


@thorough
@given(st.lists(st.text(), min_size=1, max_size=4), st.integers(0, 12))
def test_no_name_breaks_out_of_its_field(names: list[str], used: int) -> None:
    rules = [Rule(f"d{n}", Rate(9, MINUTE), name) for n, name in enumerate(names)]
    found = fields(decided(*((rule, Reading(0, used, 0)) for rule in rules)))
    response = HttpResponse(headers=found)  # refuses line ends
    for field, form in (("RateLimit-Policy", POLICY), ("RateLimit", LIMIT)):
        assert response[field] == found[field]
        assert found[field].isascii()
        assert found[field].isprintable()
        told = [name for name, *_ in members(found[field], form)]
        assert len(told) == len(set(told)) == len(names)


# Settings


def test_only_the_chosen_families_are_sent(settings: Settings) -> None:
    decision = decided((rule(1), Reading(0, 1, 0)))
    always = {"Cache-Control": "no-store", "Retry-After": "120"}
    chosen: list[tuple[list[str], set[str]]] = [
        ([], set()),
        (["x-ratelimit"], {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}),
        (["ratelimit"], {"RateLimit", "RateLimit-Policy"}),
    ]
    for families, names in chosen:
        settings.SLIDINGLIMIT = {"HEADERS": families}
        found = fields(decision)
        assert found.keys() == always.keys() | names
        assert found.items() >= always.items()


def test_reset_is_seconds_to_go_or_an_epoch_time() -> None:
    decision = decided((rule(9), Reading(0, 0, 30_000)))
    assert fields(decision)["X-RateLimit-Reset"] == "90"
    with override_settings(SLIDINGLIMIT={"RESET": "epoch"}):
        # 1_800_000_000.123 + 90 s, rounded up
        assert fields(decision)["X-RateLimit-Reset"] == "1800000091"
        nothing = decided((rule(9), Reading(0, 0, 30_000)), cost=0)
        assert fields(nothing)["X-RateLimit-Reset"] == "1800000001"


# Redis away


def test_while_redis_is_away_only_a_refusal_tells_anything() -> None:
    hit, denying = Hit(rule(9), CLIENT), Hit(rule(9, when_down="deny"), CLIENT)
    assert fields(limiter.by_policy([hit], 0)) == {}
    told = {"Cache-Control": "no-store", "Retry-After": "1"}
    assert fields(limiter.by_policy([hit, denying], 0)) == told
    assert fields(limiter.by_policy([denying], 3999)) == {**told, "Retry-After": "4"}
    never = Hit(rule(0, when_down="deny"), CLIENT)
    assert fields(limiter.by_policy([never], 0)) == {"Cache-Control": "no-store"}


def test_rules_that_were_read_before_redis_went_away_are_told() -> None:
    read = decided((rule(9), Reading(0, 0, 0)))
    denied = limiter.by_policy([Hit(rule(5, name="later", when_down="deny"), CLIENT)], 0)
    found = fields(Decision((*read.answers, *denied.answers), NOW))
    assert found["Retry-After"] == "1"
    assert found["RateLimit-Policy"] == '"burst";q=9;w=60'
