"""What the pages do about a client: reset, block, exempt, another rate, and the end of these.

Each asks once, in a dialog or on a page of its own, is written to the history, and can be undone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from django.contrib import messages
from django.core.exceptions import BadRequest, PermissionDenied, ValidationError
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext as _

from django_slidinglimit import interventions, keeper
from django_slidinglimit.core.decisions import Hit
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.models import Override
from django_slidinglimit.usage import client as clients_usage
from django_slidinglimit.usage.rules import rule_of

from . import log, undo
from .people import people
from .rows import label, read_target
from .states import shown_time
from .terms import RateForm, TimeForm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django import forms
    from django.http import HttpRequest, HttpResponse

    from django_slidinglimit.core.decisions import Client
    from django_slidinglimit.core.decisions import Rule as CompiledRule
    from django_slidinglimit.interventions import Change
    from django_slidinglimit.overrides import Effect
    from django_slidinglimit.overrides import Override as Compiled

    from .pages import Page, UsagePages


# The id of a rule in the database; more digits no primary key has.
_STORED = re.compile("d[0-9]{1,18}")


class Action(StrEnum):
    """What can be done about a client; also the last part of its address."""

    RESET = "reset"
    BLOCK = "block"
    EXEMPT = "exempt"
    RATE = "rate"
    END = "end"


@dataclass(frozen=True)
class Asked:
    """What is asked for.

    Args:
        pages: where.
        request: by whom.
        action: what.
        client: about whom.
        rule: on which rule; None: on all.
    """

    pages: UsagePages
    request: HttpRequest
    action: Action
    client: Client
    rule: CompiledRule | None

    @property
    def whom(self) -> str:
        """The client in words."""
        found = people(self.request, self.pages.admin_site, [self.client])
        return label(self.client, found.get(self.client))

    @property
    def words(self) -> dict[str, str]:
        return {"client": self.whom, "rule": self.rule.name if self.rule else _("all rules")}

    @property
    def row(self) -> int | None:
        """The rule's primary key; None: all rules.

        Raises:
            BadRequest: it is a rule in code, on which no override can be.
        """
        if self.rule is None:
            return None
        if not _STORED.fullmatch(self.rule.id):
            raise BadRequest("An override is on a rule of the database or on all rules.")
        return int(self.rule.id[1:])

    def may(self, permission: str) -> bool:
        return self.request.user.has_perm(f"{self.pages.opts.app_label}.{permission}")


def page_of(action: Action) -> Page:
    """The page that asks for an action, and does it."""
    return partial(_page, action)


def _page(action: Action, pages: UsagePages, request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    target = request.POST.get("target", "")
    try:
        client, field = read_target(target)
        rule = rule_of(field) if field else None
    except ValueError as exc:
        raise BadRequest("The form names no client and rule.") from exc
    asked = Asked(pages, request, action, client, rule)
    if action is Action.RESET:
        return _reset(asked)
    if action is Action.END:
        return _end(asked)
    return _override(asked)


def _reset(asked: Asked) -> HttpResponse:
    pages, request, words = asked.pages, asked.request, asked.words
    if not pages.has_reset_permission(request):
        raise PermissionDenied
    if "confirmed" not in request.POST:
        if asked.rule:
            told = _(
                "What the client has used of this rule is forgotten: it starts afresh, with the "
                "whole limit."
            )
        else:
            told = _("What the client has used is forgotten: it starts afresh under all rules.")
        title = _("Reset %(client)s on %(rule)s?") % words
        return _ask(asked, title, told, _("Reset"))
    try:
        if asked.rule:
            rules = [asked.rule]
        else:
            found = clients_usage.of_client(asked.client, most=None).rules
            rules = [under.standing.rule for under in found]
        held = interventions.reset([Hit(rule, asked.client) for rule in rules])
    except StoreError as error:
        told = _("Redis does not answer, so %(client)s is not known to be reset: %(error)s")
        pages.message_user(request, told % {**words, "error": error}, messages.ERROR)
        return HttpResponseRedirect(pages.back(request))
    log.write_counts(request, rules, _("Reset %(client)s.") % {"client": label(asked.client)})
    told = _("%(client)s starts afresh on %(rule)s.") % words
    undo.offer(asked.pages, request, told, undo.of_reset(asked.client, held, rules))
    return HttpResponseRedirect(pages.back(request))


def _override(asked: Asked) -> HttpResponse:
    if not asked.may("add_override"):
        raise PermissionDenied
    if not interventions.is_writable(asked.client):
        raise BadRequest("No override can be for this client.")
    effect = cast("Effect", Override.Effect(asked.action.value).value)
    voiding = list(interventions.voiding(asked.client, effect, asked.row))
    if voiding and not asked.may("change_override"):
        raise PermissionDenied
    request = asked.request
    kind = RateForm if asked.action is Action.RATE else TimeForm
    form = kind(request.POST if "confirmed" in request.POST else None, initial=_initial(asked))
    if form.is_valid():
        given = form.cleaned_data
        try:
            changes = interventions.override(
                asked.client, effect, given["expires"],
                rule=asked.row, rate=given.get("rate", ""), reason=given["reason"],
                user=request.user,
            )  # fmt: skip
        except ValidationError as exc:
            for name, errors in exc.error_dict.items():
                form.add_error({"rate": "rate", "expires": "until"}.get(name), errors)
        else:
            words = {
                **asked.words,
                "rate": given.get("rate", ""),
                "when": shown_time(given["expires"]),
            }
            told = {
                Action.BLOCK: _("%(client)s is blocked until %(when)s on %(rule)s."),
                Action.EXEMPT: _("%(client)s is exempt until %(when)s on %(rule)s."),
                Action.RATE: _("%(client)s has %(rate)s until %(when)s on %(rule)s."),
            }[asked.action]
            return _done(asked, changes, told % words)
    title, told, button = {
        Action.BLOCK: (
            _("Block %(client)s on %(rule)s?"),
            _("Every request is refused with 429, whatever is left of the limit."),
            _("Block"),
        ),
        Action.EXEMPT: (
            _("Exempt %(client)s on %(rule)s?"),
            _("Requests are neither counted nor refused."),
            _("Exempt"),
        ),
        Action.RATE: (
            _("Give %(client)s another rate on %(rule)s?"),
            _("With another window than the rule's it counts anew: a fresh allowance."),
            _("Give this rate"),
        ),
    }[asked.action]
    return _ask(asked, title % asked.words, told, button, form=form, voiding=voiding)


def _end(asked: Asked) -> HttpResponse:
    if not asked.may("change_override"):
        raise PermissionDenied
    pages, request = asked.pages, asked.request
    winner = _winner(asked)
    if winner is None or not keeper.current().overrides.is_own(winner, asked.client):
        told = _("No override of its own holds for %(client)s on %(rule)s.") % asked.words
        pages.message_user(request, told, messages.WARNING)
        return HttpResponseRedirect(pages.back(request))
    row = asked.row if winner.rule is not None else None
    words = {**asked.words, **({} if row else {"rule": _("all rules")})}
    title, told, button = {
        "block": (
            _("Unblock %(client)s on %(rule)s?"),
            _("%(client)s is not blocked any more on %(rule)s."),
            _("Unblock"),
        ),
        "exempt": (
            _("End the exemption of %(client)s on %(rule)s?"),
            _("%(client)s is not exempt any more on %(rule)s."),
            _("End the exemption"),
        ),
        "rate": (
            _("End the other rate of %(client)s on %(rule)s?"),
            _("%(client)s has no rate of its own any more on %(rule)s."),
            _("End the other rate"),
        ),
    }[winner.effect]
    if "confirmed" not in request.POST:
        now = _("It ends now, in every process within a second.")
        return _ask(asked, title % words, now, button)
    changes = interventions.end(asked.client, winner.effect, row)
    still = _winner(asked)
    if still and still.effect == winner.effect:
        told = _("Ended; but another override still does the same for %(client)s on %(rule)s.")
    return _done(asked, changes, told % words)


def _ask(
    asked: Asked,
    title: str,
    told: str,
    button: str,
    *,
    form: forms.Form | None = None,
    voiding: Iterable[Override] = (),
) -> HttpResponse:
    """The question, alone for a dialog or as a page."""
    context = {
        "title": title,
        "told": told,
        "button": button,
        "form": form,
        "voiding": voiding,
        "zone": timezone.get_current_timezone_name(),
        "target": asked.request.POST["target"],
        "back": asked.pages.back(asked.request),
    }
    return asked.pages.page(asked.request, "ask", context)


def _done(asked: Asked, changes: list[Change], told: str) -> HttpResponse:
    log.write_changes(asked.request, changes)
    keeper.current()  # waits for what was changed: the page that follows is another thread's
    undo.offer(asked.pages, asked.request, told, undo.of_overrides(asked.client, changes))
    return HttpResponseRedirect(asked.pages.back(asked.request))


def _winner(asked: Asked) -> Compiled | None:
    """The override that holds now for the client there."""
    overrides = keeper.current().overrides
    return overrides.winner(asked.rule.id if asked.rule else "", asked.client)


def _initial(asked: Asked) -> dict[str, Any]:
    """The rate that the client has now."""
    if asked.action is not Action.RATE:
        return {}
    override = _winner(asked)
    if override and override.rate:
        return {"rate": override.rate}
    return {"rate": asked.rule.rate if asked.rule else ""}
