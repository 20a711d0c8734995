"""Numbers as people read them."""

import pytest
from django.test import override_settings

from django_slidinglimit.admin.figures import between, number, percent, percent_between
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


@override_settings(LANGUAGE_CODE="de")
def test_numbers_are_written_as_the_language_does() -> None:
    assert number(48101) == "48.101"
    assert percent(212, 48_101) == "0,4%"
