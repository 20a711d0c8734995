"""Numbers -> shapes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidinglimit.admin.charts import (
    HALF,
    HEIGHT,
    LEAST,
    WIDTH,
    Box,
    bar,
    columns,
    history,
    picture,
    round_up,
    sparkline,
)
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.window import Reading

RATE = Rate(100, 60_000)


def test_the_dashed_box_covers_the_last_window_until_now() -> None:
    drawn = picture(RATE, Reading(80, 30, 15_000))
    assert drawn.sliding == Box(x=125, y=10, width=500, height=90)
    assert drawn.now == 625


def test_the_previous_window_is_cut_where_the_box_begins() -> None:
    drawn = picture(RATE, Reading(80, 30, 15_000))
    assert drawn.slid == Box(x=0, y=28, width=125, height=72)
    assert drawn.counted == Box(x=125, y=28, width=375, height=72)
    assert drawn.current == Box(x=500, y=73, width=125, height=27)


def test_the_gauge_shows_both_counts_as_parts_of_the_limit() -> None:
    drawn = picture(RATE, Reading(80, 30, 15_000))
    assert (drawn.gauge_counted.x, drawn.gauge_counted.width) == (0, 600)
    assert (drawn.gauge_current.x, drawn.gauge_current.width) == (600, 300)


def test_at_a_windows_start_all_of_the_previous_one_counts() -> None:
    drawn = picture(RATE, Reading(80, 0, 0))
    assert (drawn.sliding.x, drawn.now) == (0, 500)
    assert (drawn.slid.width, drawn.counted.width) == (0, 500)


def test_counts_above_a_lowered_limit_stay_inside_the_picture() -> None:
    drawn = picture(Rate(10, 60_000), Reading(80, 40, 30_000))
    assert drawn.counted.y == 10
    assert drawn.sliding.height == 11.25
    assert drawn.gauge_current.x + drawn.gauge_current.width == WIDTH


def test_a_limit_of_zero_has_an_empty_picture_and_a_full_bar() -> None:
    drawn = picture(Rate(0, 60_000), Reading(0, 0, 30_000))
    assert drawn.gauge_counted.width == drawn.gauge_current.width == 0
    assert bar(0, 0) == 100


@given(
    limit=st.integers(0, 10**6),
    previous=st.integers(0, 10**6),
    current=st.integers(0, 10**6),
    elapsed=st.integers(0, 59_999),
)
def test_every_shape_lies_inside_the_picture(
    limit: int, previous: int, current: int, elapsed: int
) -> None:
    drawn = picture(Rate(limit, 60_000), Reading(previous, current, elapsed))
    for box in (drawn.slid, drawn.counted, drawn.current, drawn.sliding):
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= WIDTH + 0.01
        assert abs(box.y + box.height - HEIGHT) <= 0.01
    assert abs(drawn.slid.width + drawn.counted.width - HALF) <= 0.01
    assert drawn.gauge_current.x + drawn.gauge_current.width <= WIDTH + 0.02


def test_bars_grow_with_use_and_stop_at_the_limit() -> None:
    assert [bar(used, 80) for used in (0, 20, 79, 80, 200)] == [0, 25, 98.8, 100, 100]


def test_columns_and_the_limit_are_drawn_to_one_scale() -> None:
    drawn = columns([90, 45, 0], 30)
    assert drawn.boxes == [Box(0, 10, 40, 90), Box(50, 55, 40, 45), Box(100, 100, 40, 0)]
    assert drawn.limit == 70
    assert columns([1], 100).limit == 10
    assert columns([], 0).limit == 100


@given(numbers=st.lists(st.integers(0, 10**9), max_size=50), limit=st.integers(0, 10**9))
def test_every_column_lies_inside_the_picture(numbers: list[int], limit: int) -> None:
    drawn = columns(numbers, limit)
    assert len(drawn.boxes) == len(numbers)
    for box in drawn.boxes:
        assert 0 <= box.x <= box.x + box.width <= WIDTH
        assert abs(box.y + box.height - HEIGHT) <= 0.01
        assert box.y >= 10
    assert 10 <= drawn.limit <= HEIGHT
    # Who is above the limit rises above the line.
    for number, box in zip(numbers, drawn.boxes, strict=True):
        assert number <= limit or box.y <= drawn.limit


def heights(path: str, width: int) -> list[int]:
    """How high a path's outline is in each column."""
    found = [0] * width
    for begin, floor, rest in re.findall(r"M(\d+) (\d+)([^Mz]*)z", path):
        x, y, tops, floors = int(begin), int(floor), {}, {}
        for turn, number in re.findall(r"([Vh])(-?\d+)", rest):
            if turn == "V":
                y = int(number)
            elif int(number) > 0:
                tops.update(dict.fromkeys(range(x, x + int(number)), y))
                x += int(number)
            else:
                x += int(number)
                floors.update(dict.fromkeys(range(x, x - int(number)), y))
        assert x == int(begin)
        for column, top in tops.items():
            found[column] = floors[column] - top
    return found


def test_what_was_refused_stands_upon_what_was_allowed() -> None:
    drawn = sparkline([0, 20, 20, 10], [0, 0, 10, 20])
    assert drawn.allowed == "M1 100V40h2V70h1V100h-3z"
    assert drawn.refused == "M2 40V10h2V70h-1V40h-1z"
    assert (drawn.width, drawn.peak) == (4, 30)


def test_without_requests_there_is_nothing_to_draw() -> None:
    drawn = sparkline([0] * 60, [0] * 60)
    assert (drawn.allowed, drawn.refused, drawn.peak) == ("", "", 0)
    assert sparkline([], []).width == 0


def test_a_history_reaches_up_to_a_round_number() -> None:
    drawn = history([3, 1], [1, 0])
    assert (drawn.full, drawn.half) == (5, 2.5)
    assert heights(drawn.drawn.allowed, 2) == [60, 20]
    assert heights(drawn.drawn.refused, 2) == [20, 0]
    assert history([0], [0]).full == 1


@pytest.mark.parametrize(
    ("number", "rounded"),
    [
        (0, 1),
        (1, 1),
        (1.1, 2),
        (2.1, 5),
        (5.5, 10),
        (10, 10),
        (0.03, 0.05),
        (0.3, 0.5),
        (700, 1000),
    ],
)
def test_a_scale_ends_at_a_round_number(number: float, rounded: float) -> None:
    assert round_up(number) == rounded


RATES = st.just(0.0) | st.floats(0.001, 10**9)


@given(st.lists(st.tuples(RATES, st.integers(0, 10**9)), max_size=60))
def test_both_series_lie_inside_the_picture_and_nothing_that_happened_is_lost(
    pairs: list[tuple[float, int]],
) -> None:
    allowed, refused = [a for a, _ in pairs], [r for _, r in pairs]
    for drawn in (sparkline(allowed, refused), history(allowed, refused).drawn):
        lower, upper = heights(drawn.allowed, drawn.width), heights(drawn.refused, drawn.width)
        for low, up, a, r in zip(lower, upper, allowed, refused, strict=True):
            assert low + up <= HEIGHT
            assert (low >= LEAST) == (a > 0)
            assert (up >= LEAST) == (r > 0)
