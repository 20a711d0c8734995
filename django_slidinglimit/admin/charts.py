"""Numbers -> the geometry of the usage pages' pictures. Pure: knows no Django and no Redis.

The window picture is 1000 wide, two windows side by side, and 100 high, stretched to its place. As
time passes the dashed box slides from the previous window over the current one: what it covers is
what counts. picture.js moves the same shapes between refreshes by the same formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_slidinglimit.core.rates import Rate
    from django_slidinglimit.core.window import Reading

WIDTH = 1000
HALF = WIDTH // 2
HEIGHT = 100
# What the fullest block or the limit leaves free above itself.
HEADROOM = 10
# Columns are no wider than if there were so many, and leave some of their step to the gap.
FEWEST_COLUMNS = 20
FILLED = 0.8


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle's attributes."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Picture:
    """One counter as shapes.

    Args:
        slid: the part of the previous window that no longer counts.
        counted: the part of it that still does.
        current: the current window until now.
        sliding: the dashed box: the last window's length until now, as high as the limit.
        now: where the present stands.
        gauge_counted, gauge_current: the same two counts as parts of the limit.
    """

    slid: Box
    counted: Box
    current: Box
    sliding: Box
    now: float
    gauge_counted: Box
    gauge_current: Box


def picture(rate: Rate, reading: Reading) -> Picture:
    """Draw a counter as it was read."""
    previous, current, elapsed = reading
    now = round(HALF * elapsed / rate.window_ms, 2)
    unit = (HEIGHT - HEADROOM) / max(rate.limit, previous, current, 1)

    def block(x: float, width: float, count: int) -> Box:
        height = round(count * unit, 2)
        return Box(x, round(HEIGHT - height, 2), round(width, 2), height)

    counts = previous * (rate.window_ms - elapsed) / rate.window_ms
    full = max(rate.limit, counts + current) or 1
    left = round(WIDTH * counts / full, 2)
    return Picture(
        slid=block(0, now, previous),
        counted=block(now, HALF - now, previous),
        current=block(HALF, now, current),
        sliding=block(now, HALF, rate.limit),
        now=round(HALF + now, 2),
        gauge_counted=Box(0, 0, left, 10),
        gauge_current=Box(left, 0, round(WIDTH * current / full, 2), 10),
    )


def bar(used: int, limit: int) -> float:
    """How far a bar of 100 is filled: full at the limit, and for a limit of 0."""
    return min(100.0, round(100 * used / limit, 1)) if limit > 0 else 100.0


@dataclass(frozen=True, slots=True)
class Columns:
    """Numbers as columns side by side, 1000 wide and 100 high, and a limit as a line across.

    Args:
        boxes: a column for each number.
        limit: where the line stands.
    """

    boxes: list[Box]
    limit: float


def columns(numbers: Sequence[int], limit: int) -> Columns:
    """Draw numbers and a limit to one scale; none of them negative."""
    unit = (HEIGHT - HEADROOM) / max(limit, *numbers, 1)
    step = WIDTH / max(len(numbers), FEWEST_COLUMNS)

    def box(place: int, number: int) -> Box:
        height = round(number * unit, 2)
        return Box(
            round(place * step, 2), round(HEIGHT - height, 2), round(step * FILLED, 2), height
        )

    boxes = [box(place, number) for place, number in enumerate(numbers)]
    return Columns(boxes, round(HEIGHT - limit * unit, 2))
