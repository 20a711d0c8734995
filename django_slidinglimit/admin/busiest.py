"""The page of one rule: its hour, and its clients by use or by refusals."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.core.exceptions import BadRequest
from django.http import Http404
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_slidinglimit.usage import busiest
from django_slidinglimit.usage.busiest import Wanted
from django_slidinglimit.usage.layout import field_rule
from django_slidinglimit.usage.rules import stored_rules
from django_slidinglimit.usage.server import server
from django_slidinglimit.usage.standings import State

from .figures import number
from .hours import Hour
from .people import named, people
from .rows import Row, kind_label, state_label

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse, QueryDict

    from django_slidinglimit.rules import StoredRule
    from django_slidinglimit.usage.busiest import Page

    from .pages import UsagePages

# No identity is longer, and none may fill an address.
LONGEST_TEXT = 500
PARTS = ("rule", "order", "kind", "state", "text", "page")


def page(pages: UsagePages, request: HttpRequest) -> HttpResponse:
    """The rule that the query names by `rule`, and those of its clients that it asks for."""
    key = request.GET.get("rule", "")
    try:
        title = _name(key)
    except ValueError as exc:
        raise BadRequest("The address names no rule.") from exc
    wanted = _wanted(pages, request)
    context: dict[str, Any] = {"title": title, "key": key, "wanted": wanted}
    with pages.told(context):
        try:
            found = busiest.of_rule(key, wanted)
        except LookupError as exc:
            raise Http404(_("There is no such rule, and none was asked in the last hour.")) from exc
        context.update(
            title=found.usage.rule.name,
            usage=found.usage,
            found=found,
            rows=_rows(pages, request, found),
            server=server(),
            trip=found.listed.trip,
            place=_place(found.usage.stored),
            hour=_hour(found),
            caption=_caption(found, wanted),
            others=found.others and number(found.others),
        )
        context["links"] = _links(request.GET, found)
    kinds = {wanted.kind, *(found.kinds if "found" in context else ())} - {""}
    context["kinds"] = [(kind, kind_label(kind)) for kind in sorted(kinds)]
    observe = "usage" in context and context["usage"].rule.observe
    never = (State.LIMITED, State.BLOCKED) if observe else (State.OBSERVED,)
    context["states"] = [(s.value, state_label(s)) for s in State if s not in never]
    may = ("change_rule", "add_override", "change_override")
    context["may_act"] = any(request.user.has_perm(f"{pages.opts.app_label}.{p}") for p in may)
    return pages.page(request, "busiest", context)


def _name(key: str) -> str:
    """What to call a rule of which nothing was read.

    Raises:
        ValueError: it is no rule's key.
    """
    stored = stored_rules().get(key)
    if stored is not None:
        return stored.rule.name
    if key.startswith("d") and key[1:].isdigit() and key.isascii():
        return _("Rule %s") % key[1:]
    return field_rule(key).id


def _wanted(pages: UsagePages, request: HttpRequest) -> Wanted:
    """What the address asks for; what makes no sense in it is left out."""
    asked = request.GET
    text = asked.get("text", "").strip()[:LONGEST_TEXT]
    state, at = None, 1
    with suppress(ValueError):
        state = State(asked.get("state", ""))
    with suppress(ValueError):
        at = int(asked.get("page", ""))
    return Wanted(
        order="over" if asked.get("order") == "over" else "used",
        kind=asked.get("kind", ""),
        state=state,
        text=text,
        named=named(request, pages.admin_site, text) if text else (),
        page=at,
    )


def _rows(pages: UsagePages, request: HttpRequest, found: Page) -> list[Row]:
    persons = people(request, pages.admin_site, (line.standing.client for line in found.lines))
    return [
        Row(
            found.usage,
            line.standing,
            persons.get(line.standing.client),
            within=line.within,
            over=line.over,
        )
        for line in found.lines
    ]


def _place(stored: StoredRule | None) -> str:
    """Where a row's rule holds, for which requests, and who is counted there."""
    if stored is None:
        return ""
    parts = [_("scope %s") % stored.scope]
    if stored.path:
        kind = _("view %s") if stored.path.view else _("path %s")
        parts = [kind % stored.path.text]
    if stored.methods:
        parts.append(", ".join(sorted(stored.methods)))
    parts.append(
        _("counts by %s") % stored.key.name if stored.key else _("counts as the place does")
    )
    if stored.share < 100:
        parts.append(_("for %s%% of the clients") % stored.share)
    return " · ".join(parts)


def _hour(found: Page) -> Hour:
    """The rule's decisions."""
    counts = found.listed.counts
    return Hour(
        [each.allowed for each in counts],
        [each.refused + each.would for each in counts],
        found.listed.trip.time_ms,
    )


def _caption(found: Page, wanted: Wanted) -> str:
    """Which clients of how many the table shows."""
    shown = {
        "first": number(found.first),
        "last": number(found.last),
        "matching": number(found.matching),
        "looked": number(found.looked),
        "candidates": number(found.candidates),
        "active": number(found.usage.active),
    }
    if wanted.state:
        told = _("%(matching)s in this state, of %(looked)s that were looked at")
        if found.candidates > found.looked:
            told = _("%(matching)s in this state, of the likeliest %(looked)s of %(candidates)s")
    else:
        told = _("%(first)s to %(last)s of %(matching)s clients")
        if found.usage.active > found.matching and not wanted.narrowed:
            told = _(
                "%(first)s to %(last)s of the busiest %(matching)s of about %(active)s clients"
            )
    return told % shown


def _links(query: QueryDict, found: Page) -> dict[str, str]:
    """The addresses of the same clients in another order, and of the pages around."""

    def link(**changed: object) -> str:
        asked = {name: query.get(name, "") for name in PARTS}
        asked.update({name: str(value) for name, value in changed.items()})
        return f"?{urlencode({name: value for name, value in asked.items() if value})}"

    links = {
        "used": link(order="", page=""),
        "over": link(order="over", page=""),
        "all": link(kind="", state="", text="", page=""),
    }
    if found.number > 1:
        links["before"] = link(page=found.number - 1)
    if found.number < found.pages:
        links["after"] = link(page=found.number + 1)
    return links
