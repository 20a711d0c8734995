"""Numbers as people read them: grouped, as a share, as a range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.formats import number_format
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from django_slidinglimit.usage.simulation import Range


def number(value: int) -> str:
    """A whole number with its thousands apart."""
    return number_format(value, force_grouping=True)


def percent(part: int, whole: int) -> str:
    """A share with a place after the point where it is below ten percent."""
    if not whole:
        return "0%"
    value = 100 * part / whole
    if 0 < value < 0.1:
        return _("under %s%%") % number_format(0.1, 1)
    places = 1 if 0 < value < 9.95 else 0
    return f"{number_format(round(value, places), places)}%"  # by itself it would cut, not round


def between(found: Range) -> str:
    """A range, or the one number that it is."""
    if found.exact:
        return number(found.low)
    return _("%(low)s to %(high)s") % {"low": number(found.low), "high": number(found.high)}


def percent_between(found: Range, whole: int) -> str:
    """A range as shares of a whole."""
    low, high = percent(found.low, whole), percent(found.high, whole)
    return low if low == high else _("%(low)s to %(high)s") % {"low": low, "high": high}


def shortly(value: float) -> str:
    """A round number with no more places than it has."""
    return number_format(value, len(f"{value:g}".partition(".")[2]), force_grouping=True)


def a_second(value: float) -> str:
    """A rate, with as many places as it takes to tell small ones apart."""
    if 0 < value < 0.01:
        return _("under %s") % number_format(0.01, 2)
    places = 0 if value >= 9.95 or not value else 1 if value >= 0.995 else 2
    return number_format(round(value, places), places, force_grouping=True)
