"""Numbers as people read them."""

import pytest
from django.test import override_settings

from django_slidinglimit.admin.figures import (
    a_second,
    between,
    number,
    percent,
    percent_between,
    shortly,
)
from django_slidinglimit.usage.simulation import Range


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 0, "0%"),
        (0, 5, "0%"),
        (1, 100_000, "under 0.1%"),
        (212, 48_101, "0.4%"),
        (47, 10_000, "0.5%"),
        (994, 10_000, "9.9%"),
        (995, 10_000, "10%"),
        (7, 8, "88%"),
        (5, 5, "100%"),
    ],
)
def test_a_share_is_rounded_and_never_hides_that_there_was_something(
    part: int, whole: int, shown: str
) -> None:
    assert percent(part, whole) == shown


def test_a_range_reads_as_one_number_where_it_is_one() -> None:
    assert between(Range(1234, 1234)) == "1,234"
    assert between(Range(0, 1234)) == "0 to 1,234"
    assert percent_between(Range(100, 101), 1000) == "10%"
    assert percent_between(Range(0, 500), 1000) == "0% to 50%"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.004, "under 0.01"),
        (1 / 60, "0.02"),
        (0.5, "0.50"),
        (0.996, "1.0"),
        (9.94, "9.9"),
        (9.96, "10"),
        (12_345.6, "12,346"),
    ],
)
def test_a_rate_has_as_many_places_as_it_takes(value: float, shown: str) -> None:
    assert a_second(value) == shown


def test_a_round_number_has_no_more_places_than_it_needs() -> None:
    assert [shortly(value) for value in (5.0, 2.5, 0.025, 1000.0)] == ["5", "2.5", "0.025", "1,000"]


@override_settings(LANGUAGE_CODE="de")
def test_numbers_are_written_as_the_language_does() -> None:
    assert number(48101) == "48.101"
    assert percent(212, 48_101) == "0,4%"
