"""The page of one client."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django.core.exceptions import BadRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from django_slidinglimit import clients, interventions, keeper
from django_slidinglimit.core.decisions import Client
from django_slidinglimit.core.redis import HASHED
from django_slidinglimit.usage import client as clients_usage
from django_slidinglimit.usage.server import server
from django_slidinglimit.usage.standings import State

from .hours import Hour
from .override_rows import overrides_by_key
from .people import people
from .rows import Row, client_query, duration, label, legible, target, who
from .states import shown_time

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from django_slidinglimit.usage.client import ClientUsage

    from .pages import UsagePages
    from .people import Person


# In these states the page tells since when a client is refused.
REFUSING = (State.LIMITED, State.BLOCKED)


class Other(NamedTuple):
    """Another client that was seen in one request with this one."""

    kind: str
    who: str
    query: str


@dataclass(frozen=True)
class ClientRow(Row):
    """A rule that the client is under.

    Args:
        time_ms: the server's time, in milliseconds since 1970.
        since_ms: when it began to be refused; None: it is not.
    """

    time_ms: int = 0
    since_ms: int | None = None

    @property
    def began_ms(self) -> int:
        """When the running window began: the same at each look, unlike the time since."""
        return self.standing.time_ms - self.standing.reading.elapsed_ms

    @property
    def since(self) -> str:
        return duration(max(0, self.time_ms - (self.since_ms or 0)))

    @property
    def since_time(self) -> str:
        return shown_time(datetime.fromtimestamp((self.since_ms or 0) / 1000, UTC))

    @property
    def hour(self) -> Hour:
        return Hour(self.within, self.over, self.time_ms)


def page(pages: UsagePages, request: HttpRequest) -> HttpResponse:
    """One client under each of its rules; the query names it by `kind` and `identity`."""
    client = Client(request.GET.get("kind", ""), request.GET.get("identity", ""))
    if not client.kind:
        raise BadRequest("The address names no client.")
    person = people(request, pages.admin_site, [client]).get(client)
    context: dict[str, Any] = {
        "title": label(client, person),
        "label": label(client, person),
        "client": client,
        "identity": legible(client.identity) or who(client),
        "person": person,
        "hashed": client.kind.startswith(HASHED),
        "writable": interventions.is_writable(client),
        "target": target(client),
        "all_rules": _("all rules"),
    }
    with pages.told(context):
        everywhere = clients_usage.override_everywhere(client)
        context["everywhere"] = everywhere and overrides_by_key([everywhere]).get(everywhere.pk)
        is_own = everywhere and keeper.current().overrides.is_own(everywhere, client)
        context["ends"] = everywhere.effect if everywhere and is_own else ""
        found = clients_usage.of_client(client)
        context["server"] = server()
        context["trip"] = found.trip
        context["rows"] = _rows(found, person)
        context["others"] = _others(pages, request, found)
        context["new_override"] = _new_override(pages, request, client)
    return pages.page(request, "client", context)


def _rows(found: ClientUsage, person: Person | None) -> list[ClientRow]:
    rows = overrides_by_key(under.standing.override for under in found.rules)
    return [
        ClientRow(
            under.usage,
            under.standing,
            person,
            rows.get(under.standing.override.pk) if under.standing.override else None,
            within=under.within,
            over=under.over,
            time_ms=found.trip.time_ms,
            since_ms=under.since_ms if under.standing.state in REFUSING else None,
        )
        for under in found.rules
    ]


def _others(pages: UsagePages, request: HttpRequest, found: ClientUsage) -> list[Other]:
    persons = people(request, pages.admin_site, found.others)
    return [
        Other(other.kind, who(other, persons.get(other)), client_query(other))
        for other in found.others
    ]


def _new_override(pages: UsagePages, request: HttpRequest, client: Client) -> str:
    """The form of an override for a client, for those who may, if it can be written down there."""
    if not request.user.has_perm(f"{pages.opts.app_label}.add_override"):
        return ""
    try:
        if clients.settled(*client) != client or not client.identity.isprintable():
            return ""
    except ValueError:  # an address of the project's own making
        return ""
    name = f"admin:{pages.opts.app_label}_override_add"
    return f"{reverse(name, current_app=pages.admin_site.name)}?{client_query(client)}"
