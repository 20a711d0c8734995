"""The button that has a client start afresh."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_slidinglimit import connections
from django_slidinglimit.core.decisions import Hit
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.models import Rule
from django_slidinglimit.usage.rules import rule_of

from .people import people
from .rows import label, read_target

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse

    from django_slidinglimit.core.decisions import Client
    from django_slidinglimit.core.decisions import Rule as CompiledRule

    from .pages import UsagePages


def page(pages: UsagePages, request: HttpRequest) -> HttpResponse:
    """Forget what one client has used of one rule; asks once."""
    if not pages.has_reset_permission(request):
        raise PermissionDenied
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    target = request.POST.get("target", "")
    try:
        client, field = read_target(target)
        rule = rule_of(field)
    except ValueError as exc:
        raise BadRequest("The form names no client and rule.") from exc
    person = people(request, pages.admin_site, [client]).get(client)
    words = {"client": label(client, person), "rule": rule.name}
    if "confirmed" not in request.POST:
        title = _("Reset %(client)s on %(rule)s?") % words
        context = {
            "title": title,
            "target": target,
            "from": request.POST.get("from", ""),
            "back": _back(pages, request, client),
        }
        return pages.page(request, "reset", context)
    try:
        connections.store().reset([Hit(rule, client)])
    except StoreError as error:
        told = _("Redis does not answer, so %(client)s is not known to be reset: %(error)s")
        pages.message_user(request, told % {**words, "error": error}, messages.ERROR)
    else:
        _log_reset(request, rule, _("Reset %(client)s.") % words)
        told = _("%(client)s starts afresh on %(rule)s.") % words
        pages.message_user(request, told, messages.SUCCESS)
    return HttpResponseRedirect(_back(pages, request, client))


def _back(pages: UsagePages, request: HttpRequest, client: Client) -> str:
    """The page that the reset button stood on."""
    if request.POST.get("from") == "client":
        return pages.url("client", client)
    return pages.url("changelist")


def _log_reset(request: HttpRequest, rule: CompiledRule, message: str) -> None:
    """Write it to the history: of the row, or of no object for a rule in code."""
    LogEntry.objects.create(
        user=cast("User", request.user),
        content_type=ContentType.objects.get_for_model(Rule),
        object_id=rule.id.removeprefix("d") if rule.id.startswith("d") else None,
        object_repr=rule.name[:200],
        action_flag=CHANGE,
        change_message=message,
    )
