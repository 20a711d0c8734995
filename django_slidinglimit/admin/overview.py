"""The overview: who is limited now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from django_slidinglimit.usage import overview
from django_slidinglimit.usage.server import server

from .people import people
from .rows import Row, cards

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from .pages import UsagePages


def page(
    pages: UsagePages, request: HttpRequest, extra_context: dict[str, Any] | None = None
) -> HttpResponse:
    """The clients of each rule that were active in the last minutes."""
    context: dict[str, Any] = {"title": _("Usage"), **(extra_context or {})}
    with pages.told(context):
        context["server"] = server()
        usages = overview.overview()
        found = people(request, pages.admin_site, (s.client for u in usages for s in u.clients))
        context["groups"] = [
            (usage, [Row(usage, s, found.get(s.client)) for s in usage.clients]) for usage in usages
        ]
        context["cards"] = cards(row for _, rows in context["groups"] for row in rows)
    return pages.page(request, "overview", context)
