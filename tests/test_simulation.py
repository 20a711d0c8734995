"""What a rate would have refused, against the counter itself on traffic whose moments are known."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.memory import MemoryStore
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.usage.simulation import Range, is_coarse, refused

from .core.examples import thorough

if TYPE_CHECKING:
    from collections.abc import Iterable

MINUTE = 29_000_000
MINUTE_MS = 60_000
# Whole minutes and not, dividing the minute and the hour and not, down to a second.
WINDOWS = (60, 120, 180, 300, 3600, 86_400, 1, 7, 10, 30, 31, 45, 59, 61, 90, 100, 200, 5000)


def truly_refused(rate: Rate, moments: Iterable[int]) -> int:
    """What the counter refuses of requests at these moments, in milliseconds."""
    now = 0
    store = MemoryStore(lambda: now)
    hit, count = Hit(Rule("d1", rate), Client("user", "1")), 0
    for now in sorted(moments):  # noqa: B007  the store's clock
        count += not store.take([hit]).allowed
    return count


def by_minute(moments: Iterable[int]) -> Counter[int]:
    return Counter(moment // MINUTE_MS for moment in moments)


@st.composite
def traffic(draw: st.DrawFn) -> list[int]:
    """Moments within a few minutes: bursts of requests, at edges more often than elsewhere."""
    found: list[int] = []
    for _ in range(draw(st.integers(1, 12))):
        minute = MINUTE + draw(st.integers(0, 9))
        within = draw(st.one_of(st.sampled_from([0, 1, 59_999]), st.integers(0, 59_999)))
        found += [minute * MINUTE_MS + within] * draw(st.integers(1, 9))
    return found


@thorough
@given(traffic(), st.integers(0, 12), st.sampled_from(WINDOWS))
def test_the_true_number_lies_in_the_range(moments: list[int], limit: int, seconds: int) -> None:
    rate = Rate(limit, seconds * 1000)
    low, high = refused(rate, by_minute(moments))
    assert 0 <= low <= truly_refused(rate, moments) <= high <= len(moments)


counts = st.dictionaries(st.integers(MINUTE, MINUTE + 70), st.integers(0, 20), max_size=30)


@thorough
@given(counts, st.integers(0, 12), st.sampled_from([n for n in WINDOWS if n % 60 == 0]))
def test_with_whole_minutes_the_range_ends_where_the_counter_can_get(
    asked: dict[int, int], limit: int, seconds: int
) -> None:
    rate = Rate(limit, seconds * 1000)

    def at(within: int) -> list[int]:
        return [m * MINUTE_MS + within for m, n in asked.items() for _ in range(n)]

    assert refused(rate, asked) == Range(
        truly_refused(rate, at(MINUTE_MS - 1)), truly_refused(rate, at(0))
    )


@pytest.mark.parametrize(
    ("rate", "asked", "expected"),
    [
        ("5/min", {}, Range(0, 0)),
        ("5/min", {0: 5, 9: 5}, Range(0, 0)),
        ("5/min", {0: 8}, Range(3, 3)),
        ("5/min", {0: 8, 2: 8}, Range(6, 6)),
        # Four at the end of one minute and four at the start of the next, or well apart.
        ("5/min", {0: 4, 1: 4}, Range(0, 3)),
        ("0/min", {0: 2, 1: 1}, Range(3, 3)),
        ("100/h", dict.fromkeys(range(60), 3), Range(80, 80)),
        ("100/day", dict.fromkeys(range(60), 3), Range(80, 80)),
        ("10/5m", dict.fromkeys(range(5), 3), Range(5, 5)),
        # Spread over the six windows of a minute, or all in one.
        ("5/10s", {0: 30}, Range(0, 25)),
        ("5/10s", {0: 40}, Range(10, 35)),
        ("1/s", {0: 60}, Range(0, 59)),
        # A window and a half: what comes in one minute can fall into two windows.
        ("5/90s", {0: 5, 1: 5}, Range(0, 5)),
        ("5/90s", {0: 9, 1: 9, 2: 9}, Range(17, 22)),
    ],
)
def test_examples(rate: str, asked: dict[int, int], expected: Range) -> None:
    start = 7200 * (MINUTE // 7200)  # where windows of all these lengths begin
    assert refused(Rate.parse(rate), {start + m: n for m, n in asked.items()}) == expected


def test_the_minute_is_too_coarse_for_windows_that_begin_or_end_within_one() -> None:
    coarse = {
        text
        for text in ("5/s", "5/90s", "5/min", "5/2m", "5/h", "5/day")
        if is_coarse(Rate.parse(text))
    }
    assert coarse == {"5/s", "5/90s"}
    assert Range(3, 3).exact
    assert not Range(3, 4).exact
