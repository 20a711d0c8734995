from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidinglimit.core.rates import MAX_PRODUCT, Rate

from .examples import thorough

SECOND, MINUTE, HOUR, DAY, WEEK = 1_000, 60_000, 3_600_000, 86_400_000, 604_800_000
UNITS = {
    **dict.fromkeys(["s", "sec", "secs", "second", "seconds"], SECOND),
    **dict.fromkeys(["m", "min", "mins", "minute", "minutes"], MINUTE),
    **dict.fromkeys(["h", "hr", "hrs", "hour", "hours"], HOUR),
    **dict.fromkeys(["d", "day", "days"], DAY),
    **dict.fromkeys(["w", "week", "weeks"], WEEK),
}


@pytest.mark.parametrize(
    ("text", "limit", "window_ms"),
    [
        ("100/min", 100, MINUTE),
        ("10/5m", 10, 5 * MINUTE),
        ("1000/day", 1000, DAY),
        ("5/30s", 5, 30 * SECOND),
        ("100/week", 100, WEEK),
        ("0/min", 0, MINUTE),
        ("007/01s", 7, SECOND),
        (" 10 / 5 M\n", 10, 5 * MINUTE),
        ("\t1/\tHour ", 1, HOUR),
        ("104249991/day", 104_249_991, DAY),
        ("0" * 5000 + "3/s", 3, SECOND),
        ("3/" + "0" * 5000 + "2s", 3, 2 * SECOND),
    ],
)
def test_reads_a_number_and_a_window(text: str, limit: int, window_ms: int) -> None:
    assert Rate.parse(text) == Rate(limit, window_ms)


@pytest.mark.parametrize(("unit", "window_ms"), UNITS.items())
def test_knows_each_name_of_a_unit_in_any_case(unit: str, window_ms: int) -> None:
    for written in (unit, unit.upper(), unit.title()):
        assert Rate.parse(f"3/{written}") == Rate(3, window_ms)
        assert Rate.parse(f"3/2{written}") == Rate(3, 2 * window_ms)


space = st.text(" \t\r\n", max_size=2)


@thorough
@given(
    st.tuples(space, space, space, space, space),
    st.integers(0, 99),
    st.integers(1, 99),
    st.sampled_from(sorted(UNITS)),
    st.randoms(use_true_random=False),
)
def test_takes_white_space_around_any_part(
    spaces: tuple[str, ...], limit: int, count: int, unit: str, random: Any
) -> None:
    a, b, c, d, e = spaces
    written = "".join(random.choice((x.lower(), x.upper())) for x in unit)
    assert Rate.parse(f"{a}{limit}{b}/{c}{count}{d}{written}{e}") == Rate(
        limit, count * UNITS[unit]
    )


def test_no_rate_is_no_limit() -> None:
    assert Rate.parse(None) is None


NO_RATE = ["", " ", "/", "10", "min", "10/", "/min", "10min", "10 min", "10//min", "10/min/", "1:s"]
NO_UNIT = [
    "10/month",
    "10/months",
    "5/xyz",
    "10/year",
    "10/ms",
    "10/weekss",
    "10/mi",
    "10/5",
    "1/s/s",
]
NO_NUMBER = [
    "-1/s",
    "+1/s",
    "1/-1s",
    "1.5/s",
    "1/1.5s",
    "1e3/s",
    "1_000/s",
    "1,000/s",
    "0x1/s",
    "x/s",
]
NO_WINDOW = ["100/0s", "100/00min"]
TORN = ["1 0/s", "1/5 0s", "1/mi n", "1/s s", "1/s\0", "10/min,20/h"]
# Arabic, full-width, Devanagari and superscript digits.
OTHER_DIGITS = ["\u0661\u0660/s", "\uff110/min", "1\uff10/min", "1/\u0661s", "\u0967/s", "\xb2/s"]
# Long s, the Kelvin sign, i with and without a dot, Cyrillic m, full-width letters and slash,
# division slash, no-break and zero-width space: some case mapping turns several into ours.
OTHER_LETTERS = [
    *("1/\u017f", "1/wee\u212as", "1/m\u0130n", "1/m\u0131n", "1/\u043c", "1/\uff4d\uff49\uff4e"),
    *("1\uff0fs", "1\u2215s", "1\xa0/s", "1/s\u200b"),
]
REFUSED = [
    *(NO_RATE + NO_UNIT + NO_NUMBER + NO_WINDOW),
    *(TORN + OTHER_DIGITS + OTHER_LETTERS),
]


@pytest.mark.parametrize("text", REFUSED)
def test_says_what_is_accepted_when_it_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"number/unit or number/<count>unit.*10/5m") as info:
        Rate.parse(text)
    assert repr(text) in str(info.value)


@pytest.mark.parametrize(
    ("text", "bad_part"), [("10/month", "'month'"), ("5/xyz", "'xyz'"), ("100/0s", "longer than 0")]
)
def test_names_the_bad_part(text: str, bad_part: str) -> None:
    with pytest.raises(ValueError, match=bad_part):
        Rate.parse(text)


@pytest.mark.parametrize("value", [100, 1.5, b"100/min", ("100/min",), object(), True, 0])
def test_refuses_what_is_no_text(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a rate"):
        Rate.parse(value)


@pytest.mark.parametrize(
    "text",
    [
        "9007199254741/s",
        "104249992/day",
        "1/9999999999weeks",
        "0/99999999999999999weeks",
        "9" * 17 + "/s",
        "9" * 5000 + "/s",
        "1/" + "9" * 5000 + "s",
        "0/" + "9" * 5000 + "s",
    ],
)
def test_refuses_what_cannot_be_counted_exactly(text: str) -> None:
    with pytest.raises(ValueError, match="too large to be counted exactly") as info:
        Rate.parse(text)
    assert len(str(info.value)) < 500


@pytest.mark.parametrize(
    "text", ["1/" + " " * 20_000 + "!", " " * 20_000 + "!", "1" * 20_000, "1/1" + "s" * 20_000]
)
def test_refuses_a_long_text_as_fast_as_a_short_one(text: str) -> None:
    begun = time.process_time()
    with pytest.raises(ValueError, match="number/unit"):
        Rate.parse(text)
    assert time.process_time() - begun < 0.5  # seconds; backtracking over the spaces takes 3


@pytest.mark.parametrize(
    ("limit", "window_ms"),
    [(MAX_PRODUCT - 1, 1), (1, MAX_PRODUCT - 1), (0, MAX_PRODUCT - 1), (3_474_999, 30 * DAY)],
)
def test_a_product_below_2_to_the_53_is_accepted(limit: int, window_ms: int) -> None:
    assert Rate(limit, window_ms).limit == limit


@pytest.mark.parametrize(
    ("limit", "window_ms"),
    [(MAX_PRODUCT, 1), (1, MAX_PRODUCT), (0, MAX_PRODUCT), (3_475_000, 30 * DAY), (2**27, 2**26)],
)
def test_a_product_of_2_to_the_53_is_too_large(limit: int, window_ms: int) -> None:
    with pytest.raises(ValueError, match=r"2\^53"):
        Rate(limit, window_ms)


@pytest.mark.parametrize(
    ("limit", "window_ms"),
    [(-1, 1), (1, 0), (1, -1), (1.0, 1), (1, 1.0), (True, 1), (1, True), ("1", 1), (None, 1)],
)
def test_refuses_numbers_that_are_no_rate(limit: Any, window_ms: Any) -> None:
    with pytest.raises(ValueError, match=r"limit|window"):
        Rate(limit, window_ms)


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (Rate(100, MINUTE), "100/min"),
        (Rate(10, 5 * MINUTE), "10/5min"),
        (Rate(5, 90 * SECOND), "5/90s"),
        (Rate(1, DAY), "1/day"),
        (Rate(1, 7 * DAY), "1/week"),
        (Rate(1, 36 * HOUR), "1/36h"),
        (Rate(1, 1500), "1/1500ms"),  # for a log's reader: no such text is accepted
    ],
)
def test_is_written_in_its_greatest_unit(rate: Rate, text: str) -> None:
    assert str(rate) == text


@thorough
@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_is_read_as_it_was_written(limit: int, seconds: int) -> None:
    rate = Rate(limit, seconds * SECOND)
    assert Rate.parse(str(rate)) == rate


@thorough
@given(st.text("0123456789/ smhdwinek-.", max_size=12))
def test_reads_only_what_it_would_write(text: str) -> None:
    try:
        rate = Rate.parse(text)
    except ValueError:
        return
    limit, _, window = text.partition("/")
    assert int(limit) == rate.limit
    count = window.strip().rstrip("abcdefghijklmnopqrstuvwxyz").strip()
    unit = window.strip().lstrip("0123456789 ").strip()
    assert int(count or 1) * UNITS[unit] == rate.window_ms


def test_is_a_value() -> None:
    assert Rate(1, 2) == Rate(1, 2) != Rate(2, 2)
    assert {Rate(1, 2)} == {Rate(1, 2), Rate(1, 2)}
    with pytest.raises(AttributeError):
        Rate(1, 2).limit = 3  # type: ignore[misc]
