"""Numbers -> the geometry of the usage pages' pictures. Pure: knows no Django and no Redis.

The window picture is 1000 wide, two windows side by side, and 100 high, stretched to its place. As
time passes the dashed box slides from the previous window over the current one: what it covers is
what counts. picture.js moves the same shapes between refreshes by the same formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10
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
# What is not nothing can be seen, however small it is beside the rest.
LEAST = 3


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


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Two series as steps from left to right, the one upon the other; 100 high.

    Args:
        width: a unit for each number.
        allowed, refused: the outline of each, as an SVG path's data; "" if there is nothing.
        peak: the greatest sum of both.
    """

    width: int
    allowed: str
    refused: str
    peak: float


def sparkline(allowed: Sequence[float], refused: Sequence[float]) -> Sparkline:
    """Draw what was allowed and, upon it, what was refused; to its own scale, not negative.

    A path has no point where nothing changes, so that a page can hold hundreds of them.
    """
    return _stacked(allowed, refused, _peak(allowed, refused), HEIGHT - HEADROOM)


@dataclass(frozen=True, slots=True)
class History:
    """The same with a scale: lines across stand at its half and its full height.

    Args:
        drawn: the series.
        full: what the full height stands for, a round number.
    """

    drawn: Sparkline
    full: float

    @property
    def half(self) -> float:
        return self.full / 2


def history(allowed: Sequence[float], refused: Sequence[float]) -> History:
    """Draw the same to a scale that ends at a round number."""
    full = round_up(_peak(allowed, refused))
    return History(_stacked(allowed, refused, full, HEIGHT), full)


def round_up(number: float) -> float:
    """The least of 1, 2, 5, 10, 20, 50 and so on, or of 0.1, 0.2 and so on, that is no less."""
    if number <= 0:
        return 1.0
    unit = 10.0 ** floor(log10(number))
    return next((round(n * unit, 12) for n in (1, 2, 5) if n * unit >= number), 10 * unit)


def _peak(allowed: Sequence[float], refused: Sequence[float]) -> float:
    return max((a + r for a, r in zip(allowed, refused, strict=True)), default=0.0)


def _stacked(
    allowed: Sequence[float], refused: Sequence[float], full: float, height: int
) -> Sparkline:
    unit = height / full if full else 0.0
    lower = [max(LEAST, round(number * unit)) if number else 0 for number in allowed]
    upper = [max(LEAST, round(number * unit)) if number else 0 for number in refused]
    tops = lower
    if any(upper):
        tops = [low + up for low, up in zip(lower, upper, strict=True)]
        if max(tops) > HEIGHT:  # rounded up, the two could leave the picture together
            tops = [min(HEIGHT, top) for top in tops]
            lower = [
                min(low, top - LEAST) if up else low
                for low, up, top in zip(lower, upper, tops, strict=True)
            ]
    floor = [0] * len(lower)
    return Sparkline(
        len(lower), _outline(floor, lower), _outline(lower, tops), _peak(allowed, refused)
    )


def _outline(floors: Sequence[int], tops: Sequence[int]) -> str:
    """What lies between two heights in each column: there along the tops, back along the floors."""
    if floors == tops:
        return ""
    parts = []
    place, many = 0, len(tops)
    while place < many:
        begin = place
        while place < many and tops[place] > floors[place]:
            place += 1
        if place > begin:
            there = _steps(tops[begin:place], "h")
            back = _steps(floors[begin:place][::-1], "h-")
            parts.append(f"M{begin} {HEIGHT - floors[begin]}{there}{back}z")
        else:
            place += 1
    return "".join(parts)


def _steps(heights: Sequence[int], sideways: str) -> str:
    parts = []
    last, long = heights[0], 0
    for height in heights:
        if height != last:
            parts.append(f"V{HEIGHT - last}{sideways}{long}")
            last, long = height, 0
        long += 1
    parts.append(f"V{HEIGHT - last}{sideways}{long}")
    return "".join(parts)
