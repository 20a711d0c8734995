"""What a rate would have refused of recorded traffic. Pure: knows no Django and no Redis.

Traffic is recorded by the minute. When within its minute a request came is not known, and the
sliding window counter does not answer the same at every moment. So the answer is a range that the
true number lies in whatever the moments were, provided that the counter began empty and every
request cost one.

Where a window is a whole number of minutes, the ends of the range are reached: most is refused if
the requests of each minute came at once when it began, least if they came at once when it ended.
For n requests admitted and p of the window before, of a limit L, no more than

    cap = floor((L * W - p * (W - e)) / W)

are in the window at its millisecond e. The cap falls by one at most where p grows by one, so to
admit less now never makes up for more later, and to take each minute's extreme gives that of all.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django_slidinglimit.core.rates import Rate

MINUTE_MS = 60_000


class Range(NamedTuple):
    """A number that is not known exactly: at least `low`, at most `high`."""

    low: int
    high: int

    @property
    def exact(self) -> bool:
        return self.low == self.high


def is_coarse(rate: Rate) -> bool:
    """Whether minutes are too coarse for a rate's window: it begins and ends within them."""
    return bool(rate.window_ms % MINUTE_MS)


def refused(rate: Rate, asked: Mapping[int, int]) -> Range:
    """How many requests of one client a rate would have refused.

    Args:
        rate: the limit and its window.
        asked: requests by minute, minutes counted since 1970 UTC.
    """
    minutes = {minute: count for minute, count in asked.items() if count > 0}
    total = sum(minutes.values())
    if total <= rate.limit:
        return Range(0, 0)
    if not rate.limit:
        return Range(total, total)
    if is_coarse(rate):
        return Range(total - _most_admitted(rate, minutes), total - _least_admitted(rate, minutes))
    ends = _admitted(rate, minutes, MINUTE_MS - 1)
    return Range(total - ends, total - _admitted(rate, minutes, 0))


def _admitted(rate: Rate, asked: Mapping[int, int], moment_ms: int) -> int:
    """How many are admitted if those of each minute come at once, at a moment of it."""
    limit, window = rate.limit, rate.window_ms
    number, previous, current, total = -1, 0, 0, 0
    for minute in sorted(asked):
        at, elapsed = divmod(minute * MINUTE_MS + moment_ms, window)
        if at != number:
            previous, current, number = current if at == number + 1 else 0, 0, at
        cap = (limit * window - previous * (window - elapsed)) // window
        more = max(0, min(asked[minute], cap - current))
        current += more
        total += more
    return total


def _least_admitted(rate: Rate, asked: Mapping[int, int]) -> int:
    """So many are admitted at least.

    A request is refused only if the running window and the one before hold the limit; so the
    minutes that reach into the two hold it, too.
    """
    back = -(-2 * rate.window_ms // MINUTE_MS)
    recent: deque[tuple[int, int]] = deque()
    near = total = 0
    for minute in sorted(asked):
        while recent and recent[0][0] < minute - back:
            near -= recent.popleft()[1]
        more = min(asked[minute], max(0, rate.limit - near))
        recent.append((minute, more))
        near += more
        total += more
    return total


def _most_admitted(rate: Rate, asked: Mapping[int, int]) -> int:
    """So many are admitted at most: no window holds more than the limit.

    The requests of each minute go to the earliest windows that have room.
    """
    window = rate.window_ms
    number, room, total = -1, 0, 0
    for minute in sorted(asked):
        first, end = minute * MINUTE_MS // window, -(-(minute + 1) * MINUTE_MS // window)
        left = asked[minute]
        for at in range(max(first, number), end):
            if at != number:
                number, room = at, rate.limit
            more = min(left, room)
            left -= more
            room -= more
            total += more
            if not left:
                break
    return total
