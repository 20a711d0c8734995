"""The page of one client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import BadRequest
from django.urls import reverse

from django_slidinglimit import clients
from django_slidinglimit.core.decisions import Client
from django_slidinglimit.usage import client as clients_usage
from django_slidinglimit.usage.server import server

from .overrides import overrides_by_key
from .people import people
from .rows import Row, client_query, label, legible, who

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from .pages import UsagePages


def page(pages: UsagePages, request: HttpRequest) -> HttpResponse:
    """One client under each of its rules; the query names it by `kind` and `identity`."""
    client = Client(request.GET.get("kind", ""), request.GET.get("identity", ""))
    if not client.kind:
        raise BadRequest("The address names no client.")
    person = people(request, pages.admin_site, [client]).get(client)
    context: dict[str, Any] = {
        "title": label(client, person),
        "client": client,
        "identity": legible(client.identity) or who(client),
        "person": person,
    }
    with pages.told(context):
        everywhere = clients_usage.override_everywhere(client)
        rows_of = overrides_by_key([everywhere])
        context["everywhere"] = everywhere and rows_of.get(everywhere.pk)
        context["server"] = server()
        found = clients_usage.of_client(client)
        rows_of = overrides_by_key(standing.override for _, standing in found)
        context["rows"] = [
            Row(usage, s, person, rows_of.get(s.override.pk) if s.override else None)
            for usage, s in found
        ]
        context["new_override"] = _new_override(pages, request, client)
    return pages.page(request, "client", context)


def _new_override(pages: UsagePages, request: HttpRequest, client: Client) -> str:
    """Where an override for a client is made, for those who may, if it can be written down."""
    if not request.user.has_perm(f"{pages.opts.app_label}.add_override"):
        return ""
    try:
        if clients.settled(*client) != client or not client.identity.isprintable():
            return ""
    except ValueError:  # an address of the project's own making
        return ""
    name = f"admin:{pages.opts.app_label}_override_add"
    return f"{reverse(name, current_app=pages.admin_site.name)}?{client_query(client)}"
