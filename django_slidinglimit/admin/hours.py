"""An hour by the minute: drawn, in words, and as the numbers themselves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from django.utils.translation import gettext as _

from . import charts
from .figures import number
from .states import shown_time

if TYPE_CHECKING:
    from collections.abc import Sequence


class Line(NamedTuple):
    """One minute: when it began, what was within the limit in it, and over it."""

    when: str
    within: str
    over: str


@dataclass(frozen=True)
class Hour:
    """What was within a limit and over it.

    Args:
        within, over: by the minute, the oldest first.
        time_ms: when the last of them runs, in milliseconds since 1970.
    """

    within: Sequence[int]
    over: Sequence[int]
    time_ms: int

    @cached_property
    def chart(self) -> charts.History:
        return charts.history(self.within, self.over)

    @property
    def full(self) -> str:
        """How many a minute the picture is high."""
        return number(round(self.chart.full))

    @property
    def description(self) -> str:
        """What the picture shows, in words."""
        return in_words(self.within, self.over)

    @property
    def lines(self) -> list[Line]:
        """The minutes in which there was something, the last first."""
        last = self.time_ms // 60_000
        pairs = zip(reversed(self.within), reversed(self.over), strict=True)
        return [
            Line(clock(last - age), number(within), number(over))
            for age, (within, over) in enumerate(pairs)
            if within or over
        ]


def in_words(within: Sequence[int], over: Sequence[int]) -> str:
    """What was within a limit and over it, by the minute, in one sentence."""
    most = max(map(sum, zip(within, over, strict=True)), default=0)
    words = {"within": number(sum(within)), "over": number(sum(over)), "most": number(most)}
    return _("%(within)s within the limit, %(over)s over it; at most %(most)s a minute.") % words


def clock(minute: int) -> str:
    """When a minute, counted since 1970, began."""
    return shown_time(datetime.fromtimestamp(minute * 60, UTC), "H:i")
