"""A decision that refuses -> the response: 429, as a page or as JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.signals import setting_changed
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import TemplateDoesNotExist, loader
from django.utils.html import format_html
from django.utils.translation import get_language, gettext, ngettext

from . import headers

if TYPE_CHECKING:
    from .core.decisions import Decision

TEMPLATE = "429.html"
# A longer Accept field is not read; browsers send some 150 characters. Django takes about 5 ms for
# 8,000, far more than all the rest of a refusal, which must be cheap.
LONGEST_ACCEPT = 1000

# For projects without a template of their own. As in django.views.defaults it is no template: it
# must show under any TEMPLATES setting, and under any Content-Security-Policy.
_PAGE = """<!doctype html>
<html lang="{language}">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>{title}</title>
</head>
<body>
  <h1>{title}</h1>
  <p>{advice}</p>
</body>
</html>
"""


def response(request: Any, decision: Decision) -> HttpResponse:
    """The answer to a refused request, without the decision's header fields.

    The project's template 429.html is rendered with `decision`, `blocked` (see there) and
    `retry_after`, in seconds, None when the request can never be admitted; without one a plain
    page says the same. Clients that prefer JSON get `{"detail": ..., "retry_after": ...}`.

    Args:
        request: Django's or DRF's request.
        decision: a decision that is not allowed.
    """
    wait = decision.retry_after
    if wait is not None:
        wait = max(1, headers.seconds(wait))  # as Retry-After says it
    if _prefers_json(request):
        detail = blocked(decision) or gettext("Too many requests.")
        return JsonResponse({"detail": detail, "retry_after": wait}, status=429)
    return HttpResponse(_page(request, decision, wait), status=429)


def blocked(decision: Decision) -> str:
    """Such as "Blocked until 2026-11-30 10:00 UTC."; "" where no override blocks the client.

    The reason is the operator's note, and not told.
    """
    waits = [answer.verdict.retry_after for answer in decision.answers if answer.blocked]
    if not waits:
        return ""
    found = [wait for wait in waits if wait is not None]
    if len(found) < len(waits):
        return gettext("Blocked.")
    # Rounded up to the minute, but not for the moment that has passed since it was read.
    end = datetime.now(UTC) + timedelta(milliseconds=max(found), seconds=59)
    return gettext("Blocked until %(when)s UTC.") % {"when": f"{end:%Y-%m-%d %H:%M}"}


def in_words(seconds: int) -> str:
    """A wait such as "12 seconds" or "3 minutes"; rounded up, so that waiting so long suffices."""
    if seconds < 120:
        return ngettext("%d second", "%d seconds", seconds) % seconds
    minutes = -(-seconds // 60)
    if minutes < 120:
        return ngettext("%d minute", "%d minutes", minutes) % minutes
    hours = -(-minutes // 60)
    if hours < 48:
        return ngettext("%d hour", "%d hours", hours) % hours
    days = -(-hours // 24)
    return ngettext("%d day", "%d days", days) % days


def _prefers_json(request: Any) -> bool:
    # DRF has negotiated already: by Accept, and by ?format= and the path's suffix, too.
    renderer = getattr(request, "accepted_renderer", None)
    if renderer is not None:
        return bool(renderer.format == "json")
    accept = request.META.get("HTTP_ACCEPT", "*/*")
    return len(accept) <= LONGEST_ACCEPT and _json_is_preferred(accept)


@lru_cache(maxsize=1024)
def _json_is_preferred(accept: str) -> bool:
    request = HttpRequest()
    request.META["HTTP_ACCEPT"] = accept
    preferred = request.get_preferred_type(["text/html", "application/json"])
    return bool(preferred == "application/json")


def _page(request: Any, decision: Decision, wait: int | None) -> str:
    template = _template()
    told = blocked(decision)
    if template is None:
        return _plain_page(get_language(), told, wait)
    context = {"decision": decision, "blocked": told, "retry_after": wait}
    page: str = template.render(context, request)
    return page


@lru_cache(maxsize=1024)
def _plain_page(language: str | None, told: str, wait: int | None) -> str:
    """The page of a project without a template, in the language that is active."""
    if told:
        advice = told
    elif wait is None:
        advice = gettext("This request cannot be admitted, however long you wait.")
    else:
        advice = gettext("Try again in %(wait)s.") % {"wait": in_words(wait)}
    title = gettext("Too many requests")
    return format_html(_PAGE, language=language or "en", title=title, advice=advice)


def _template() -> Any:
    """The project's template; None if it has none, which is looked for once, but for DEBUG."""
    global _missing
    if _missing and not settings.DEBUG:
        return None
    try:
        return loader.get_template(TEMPLATE)
    except TemplateDoesNotExist:
        _missing = True
        return None


_missing = False


def _forget(*, setting: str, **_: object) -> None:
    global _missing
    _missing = False
    if setting in ("LANGUAGE_CODE", "LOCALE_PATHS", "USE_I18N"):
        _plain_page.cache_clear()


setting_changed.connect(_forget)
