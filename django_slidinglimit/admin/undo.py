"""The button that takes an action back: it stands in the message that tells of the action.

What it sends is signed, for the one who acted, and holds for an hour.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_slidinglimit import interventions, keeper
from django_slidinglimit.core.decisions import Client, Counter, Held
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.interventions import Step
from django_slidinglimit.usage.layout import field_rule, rule_field

from . import log
from .people import people
from .rows import label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django.http import HttpRequest, HttpResponse

    from django_slidinglimit.core.decisions import Rule
    from django_slidinglimit.interventions import Change

    from .pages import UsagePages

    # What is signed: texts, numbers and lists of them.
    Done = dict[str, Any]

SALT = "django_slidinglimit.undo"
SECONDS = 3600


def of_reset(client: Client, held: Sequence[Held], rules: Iterable[Rule]) -> Done:
    """What takes a reset back."""
    return {
        "client": client,
        "rules": [[rule_field(rule), rule.name] for rule in rules],
        "held": [[h.counter.rule, h.counter.window_ms, h.number, h.amount] for h in held],
        "once": secrets.token_hex(8),
    }


def of_overrides(client: Client, changes: Iterable[Change]) -> Done:
    """What takes changes of overrides back."""
    return {
        "client": client,
        "steps": [
            [pk, updated.isoformat(), made, expires and expires.isoformat()]
            for pk, updated, made, expires in interventions.steps(changes)
        ],
    }


def offer(pages: UsagePages, request: HttpRequest, told: str, done: Done) -> None:
    """Tell that an action is done, with the button that takes it back."""
    signed = signing.dumps({**done, "user": str(request.user.pk)}, salt=SALT, compress=True)
    told = format_html(
        '{} <button class="sl-undo" form="sl-undo" name="done" value="{}">{}</button>',
        told[:1].upper() + told[1:], signed, _("Undo"),
    )  # fmt: skip
    pages.message_user(request, told, messages.SUCCESS)


def page(pages: UsagePages, request: HttpRequest) -> HttpResponse:
    """Take an action back."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    answer = HttpResponseRedirect(pages.back(request))
    try:
        done = signing.loads(request.POST.get("done", ""), salt=SALT, max_age=SECONDS)
    except signing.BadSignature:
        told = _("This can no longer be undone here. Overrides can be ended in their list.")
        pages.message_user(request, told, messages.ERROR)
        return answer
    if done["user"] != str(request.user.pk):
        raise PermissionDenied
    client = Client(*done["client"])
    whom = label(client, people(request, pages.admin_site, [client]).get(client))
    if "held" in done:
        _restore(pages, request, client, whom, done)
    else:
        _undo(pages, request, whom, done)
    return answer


def _restore(
    pages: UsagePages, request: HttpRequest, client: Client, whom: str, done: Done
) -> None:
    if not pages.has_reset_permission(request):
        raise PermissionDenied
    held = [
        Held(Counter(rule, window, client), number, amount)
        for rule, window, number, amount in done["held"]
    ]
    try:
        first = interventions.restore(held, done["once"], SECONDS)
    except StoreError as error:
        told = _("Redis does not answer, so nothing is known to be undone: %s") % error
        pages.message_user(request, told, messages.ERROR)
        return
    if not first:
        pages.message_user(request, _("This is undone already."), messages.WARNING)
        return
    rules = [field_rule(*rule) for rule in done["rules"]]
    log.write_counts(request, rules, _("Undid the reset of %s.") % label(client))
    told = _("Undone: what %s had used is counted again, as far as it has not lapsed.") % whom
    pages.message_user(request, told, messages.SUCCESS)


def _undo(pages: UsagePages, request: HttpRequest, whom: str, done: Done) -> None:
    steps = [
        Step(pk, datetime.fromisoformat(at), made, expires and datetime.fromisoformat(expires))
        for pk, at, made, expires in done["steps"]
    ]
    needed = {"add_override" if step.made else "change_override" for step in steps}
    if not request.user.has_perms([f"{pages.opts.app_label}.{name}" for name in needed]):
        raise PermissionDenied
    changes = interventions.undo(steps)
    log.write_changes(request, changes)
    keeper.current()  # waits for what was changed: the page that follows is another thread's
    if len(changes) < len(steps):
        told = _("An override for %s was changed since, or undone: that one stays as it is.") % whom
        pages.message_user(request, told, messages.WARNING)
    else:
        told = _("Undone: for %s it is as it was before.") % whom
        pages.message_user(request, told, messages.SUCCESS)
