"""The caller's own limits, as JSON and as a page. Both cost one round trip and count nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.contrib.auth.decorators import login_required
from django.http import JsonResponse
from django.shortcuts import render
from django.utils.formats import localize
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from . import allowances
from .core.stores import StoreError
from .refusal import in_words
from .usage.standings import NEAR

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from .allowances import Allowance

TEMPLATE = "django_slidinglimit/own_limits.html"


@cache_control(no_store=True)
@require_safe
def own_limits_json(request: HttpRequest) -> HttpResponse:
    """The rules that the caller is under, and what is left, as JSON; 503 where Redis is away."""
    try:
        return JsonResponse(allowances.of(request).as_data())
    except StoreError:
        wait = allowances.again_in()
        told = {"detail": str(allowances.AWAY), "retry_after": wait}
        return JsonResponse(told, status=503, headers={"Retry-After": str(wait)})


@cache_control(no_store=True)
@require_safe
@login_required
def own_limits(request: HttpRequest) -> HttpResponse:
    """A page of the same for a signed-in user."""
    context: dict[str, object] = {"name": request.user.get_username()}
    try:
        found = allowances.of(request)
    except StoreError:
        response = render(request, TEMPLATE, {**context, "away": allowances.AWAY}, status=503)
        response["Retry-After"] = str(allowances.again_in())
        return response
    lines = [Line.of(allowance) for allowance in found.limits]
    return render(request, TEMPLATE, {**context, "lines": lines, "left_out": found.left_out})


class Line(NamedTuple):
    """A line of the page.

    Args:
        allowance: what it tells of.
        share: percent of the limit that is used, at most 100.
        state: "ok", "near", "out" or "free", for its colour.
        words: the state in words.
        note: what an override does besides.
    """

    allowance: Allowance
    share: float
    state: str
    words: str
    note: str

    @classmethod
    def of(cls, allowance: Allowance) -> Line:
        limit = allowance.limit
        share = min(100, 100 * allowance.used / limit) if limit else 100
        return cls(allowance, round(share, 2), *_state(allowance, share), _note(allowance))

    @property
    def window(self) -> str:
        return in_words(self.allowance.window)

    @property
    def reset(self) -> str:
        """When all is available again."""
        reset = self.allowance.reset
        if reset is None or self.allowance.retry_after is None:
            return _("never")
        return in_words(reset) if reset else _("now")

    @property
    def counted_by(self) -> str:
        """Whom the rule takes the reader for."""
        known = {
            "user": _("by user"),
            "ip": _("by address"),
            "global": _("all visitors together"),
        }
        kind = self.allowance.counted_by
        return known.get(kind) or _("by %s") % (kind.partition(":")[2] or kind)


def _state(allowance: Allowance, share: float) -> tuple[str, str]:
    if allowance.override == "block":
        return "out", _("Blocked")
    if allowance.override == "exempt":
        return "free", _("Not limited")
    if allowance.retry_after is None:
        return "out", _("Nothing is admitted")
    if allowance.retry_after:
        return "out", _("Used up. Free in %s") % in_words(allowance.retry_after)
    if share >= NEAR:
        return "near", _("Nearly used up")
    return "ok", _("Available")


def _note(allowance: Allowance) -> str:
    what = _("A rate of your own") if allowance.override == "rate" else ""
    if allowance.until is None:
        return what
    until = _("until %s") % localize(localtime(allowance.until))
    return f"{what} {until}".strip()
