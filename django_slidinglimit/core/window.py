"""The sliding window counter in whole numbers: the model that every store is tested against.

Time is cut into windows of W milliseconds. Of two neighbouring windows only the counts are kept:
p for the previous, n for the current. At e milliseconds into the current window the previous one
is taken as spread evenly, so `W - e` of its W milliseconds still lie inside the last W:

    estimate = p * (W - e) / W + n

Everything is compared after multiplying by W, so nothing is divided and nothing rounded. The
method is the one Cloudflare described in 2017 ("How we built rate limiting capable of scaling to
millions of domains").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .decisions import Verdict

if TYPE_CHECKING:
    from .rates import Rate


class Reading(NamedTuple):
    """What one counter holds at one moment, before anything is counted.

    `previous` and `current` are counts; `elapsed_ms` is the time since the current window began.
    """

    previous: int
    current: int
    elapsed_ms: int


def admits(rate: Rate, reading: Reading, cost: int) -> bool:
    """Whether a hit of this cost fits: p * (W - e) <= (L - n - c) * W."""
    previous, current, elapsed = reading
    window = rate.window_ms
    return previous * (window - elapsed) <= (rate.limit - current - cost) * window


def retry_after(rate: Rate, reading: Reading, cost: int) -> int | None:
    """The least wait in milliseconds after which a hit of this cost fits if nothing else arrives.

    Returns:
        0 when it fits now, None when it never can (the cost is above the limit).
    """
    if cost > rate.limit:
        return None
    if admits(rate, reading, cost):
        return 0
    previous, current, elapsed = reading
    window = rate.window_ms
    excess = current + cost - rate.limit
    if excess <= 0:  # it fits as soon as enough of the previous window has slid out
        return _ceil_div(window * (previous + excess), previous) - elapsed
    # Not in this window: in the next one the current count becomes the previous.
    return (window - elapsed) + _ceil_div(window * excess, current)


def judge(rate: Rate, reading: Reading, cost: int, charged: int) -> Verdict:
    """The verdict on a hit, given what the walk has charged to the counter.

    Args:
        rate: the limit and its window.
        reading: the counter before the walk.
        cost: what the hit asks for.
        charged: what was counted on this counter: 0 when the walk was refused or only looked.

    Returns:
        The verdict; `remaining` and `reset_after` hold after the charge.
    """
    previous, current, elapsed = reading
    limit, window = rate.limit, rate.window_ms
    left = (limit - current) * window - previous * (window - elapsed)
    wait = 0 if cost * window <= left else retry_after(rate, reading, cost)
    left -= charged * window
    if current + charged:
        reset = 2 * window - elapsed
    else:
        reset = window - elapsed if previous else 0
    return Verdict(wait == 0, limit, left // window if left > 0 else 0, wait, reset)


def verdict(rate: Rate, previous: int, current: int, elapsed_ms: int, cost: int = 1) -> Verdict:
    """Decide one hit on one counter.

    Args:
        rate: the limit and its window.
        previous: the previous window's count.
        current: the current window's count, this hit not included.
        elapsed_ms: milliseconds since the current window began.
        cost: what the hit asks for, 0 or more.

    Returns:
        The verdict, with times in milliseconds. A refused hit is not counted.
    """
    reading = Reading(previous, current, elapsed_ms)
    return judge(rate, reading, cost, cost if admits(rate, reading, cost) else 0)


def used(rate: Rate, reading: Reading) -> int:
    """The estimate, rounded up: how many of the limit are used at this moment."""
    previous, current, elapsed = reading
    return current + _ceil_div(previous * (rate.window_ms - elapsed), rate.window_ms)


def _ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
