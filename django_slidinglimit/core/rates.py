"""Rates: so many per window, and their one way to be written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import overload

# Lua numbers are doubles: every product of a count and a time must stay an exact whole number.
MAX_PRODUCT = 2**53

_UNITS_MS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
}
# The names used when a rate is written, greatest unit first.
_NAMES = (
    (604_800_000, "week"),
    (86_400_000, "day"),
    (3_600_000, "h"),
    (60_000, "min"),
    (1_000, "s"),
)

# Possessive (*+), so that a long text is refused without trying every way to divide its spaces.
_RATE = re.compile(r"\s*+([0-9]++)\s*+/\s*+([0-9]*+)\s*+([a-z]++)\s*+", re.ASCII | re.IGNORECASE)

ACCEPTED = (
    "write it as number/unit or number/<count>unit, such as 100/min, 10/5m, 1000/day or 5/30s "
    "(units: s, sec, second; m, min, minute; h, hr, hour; d, day; w, week; and their plurals)"
)


@dataclass(frozen=True, slots=True)
class Rate:
    """So many per window.

    Args:
        limit: what one client may use in a window; 0 refuses everything.
        window_ms: the window's length in milliseconds, greater than 0.

    Raises:
        ValueError: the numbers are no whole numbers, out of range, or so large that their product
            would not be exact in a double (limit x window_ms >= 2^53).
    """

    limit: int
    window_ms: int

    def __post_init__(self) -> None:
        for name in ("limit", "window_ms"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"{name} must be a whole number, not {value!r}.")
        if self.limit < 0:
            raise ValueError(f"limit must be 0 or more, not {self.limit}.")
        if self.window_ms < 1:
            raise ValueError(f"The window must be longer than 0, not {self.window_ms} ms.")
        if max(self.limit, 1) * self.window_ms >= MAX_PRODUCT:
            raise ValueError(
                f"{self.limit} in {self.window_ms} ms is too large to be counted exactly: "
                "limit x window in milliseconds must stay below 2^53 "
                "(at most 3.4 million in 30 days, 104 million a day)."
            )

    def __str__(self) -> str:
        for unit_ms, name in _NAMES:
            count, rest = divmod(self.window_ms, unit_ms)
            if count and not rest:
                return f"{self.limit}/{'' if count == 1 else count}{name}"
        return f"{self.limit}/{self.window_ms}ms"

    @overload
    @classmethod
    def parse(cls, text: str) -> Rate: ...
    @overload
    @classmethod
    def parse(cls, text: None) -> None: ...
    @classmethod
    def parse(cls, text: str | None) -> Rate | None:
        """Read a rate as people write it.

        Args:
            text: such as "100/min", "10/5m" or "5/30s"; any case, white space around any part.
                None means no limit.

        Returns:
            The rate, or None for None.

        Raises:
            ValueError: the text is no rate; the message names the bad part and what is accepted.
        """
        if text is None:
            return None
        match = _RATE.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise ValueError(f"{text!r} is not a rate: {ACCEPTED}.")
        limit, count, unit = match.groups()
        unit_ms = _UNITS_MS.get(unit.lower())
        if unit_ms is None:
            raise ValueError(f"{unit!r} in {text!r} is not a unit: {ACCEPTED}.")
        # int() refuses thousands of digits, zeros in front included.
        limit, digits = limit.lstrip("0") or "0", count.lstrip("0")
        if len(limit) > 16 or len(digits) > 16:
            raise ValueError(f"{text[:40]!r} is too large to be counted exactly: {ACCEPTED}.")
        if count and not digits:
            raise ValueError(f"The window in {text!r} must be longer than 0: {ACCEPTED}.")
        return cls(int(limit), int(digits or 1) * unit_ms)
