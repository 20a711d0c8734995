"""The history of rules and overrides: who changed what from what to what, and the way back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import BadRequest, PermissionDenied, ValidationError
from django.db import transaction
from django.http import Http404, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .log import (
    Message,
    added,
    changed,
    database,
    deleted,
    entries_of,
    last_entries,
    lock,
    values,
    write,
)
from .states import Difference, State, differences, loads, put, shown_time, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.admin.views.main import ChangeList
    from django.db.models import Model, QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    ModelAdmin = admin.ModelAdmin[Any]
else:
    from django_slidinglimit._compat import ModelAdmin


# Digits of a primary key; int() refuses thousands.
LONGEST_KEY = 19


class HistoryAdmin(ModelAdmin):
    """Writes each change to the history with its values, and puts an earlier state back."""

    object_history_template = "admin/django_slidinglimit/object_history.html"

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_restore"
        view = self.admin_site.admin_view(self.restore_view)
        return [path("<path:object_id>/restore/", view, name=name), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Rows as they are where they are written, not in a replica."""
        return super().get_queryset(request).using(database())

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any | None:
        """Read a row; who is about to write it finds it locked until then."""
        if request.method == "POST":
            try:
                lock(self.get_queryset(request).filter(**{from_field or "pk": object_id}))
            except (ValueError, ValidationError):
                return None
        return super().get_object(request, object_id, from_field)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """The fieldsets, and for those who may change the row what they began from."""
        found = list(super().get_fieldsets(request, obj))
        if obj is not None and self.has_change_permission(request, obj):
            title, options = found[0]
            found[0] = (title, {**options, "fields": (*options["fields"], "seen")})
        return found

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """The list, each row with the last entry that tells of a change of it."""
        found = super().get_changelist_instance(request)
        last = last_entries(self.model, found.result_list)
        for row in found.result_list:
            row.last_entry = last.get(str(row.pk))
        return found

    @admin.display(description=gettext_lazy("last changed"), ordering="updated")
    def last_changed(self, row: Any) -> str:
        """When a row was changed, and by whom if it was here."""
        entry = getattr(row, "last_entry", None)
        when = shown_time(row.updated, "SHORT_DATETIME_FORMAT")
        if entry is None or entry.action_time < row.updated:  # by code, since
            return when
        return _("%(when)s by %(who)s") % {"when": when, "who": entry.user.get_username()}

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list; who may do nothing with its rows is told so, instead of "no action"."""
        if request.method == "POST":
            actions = self.get_actions(request)
            if request.POST.get("action", "") not in ("", *actions):
                raise PermissionDenied
            if not actions and not self.has_change_permission(request):
                raise PermissionDenied
        return super().changelist_view(request, extra_context)

    def construct_change_message(
        self, _request: HttpRequest, form: Any, _formsets: Any, add: bool = False
    ) -> Message:
        return added(form.instance) if add else changed(form.instance, form.before)

    def log_deletions(self, request: HttpRequest, queryset: Iterable[Any]) -> list[LogEntry]:
        return write(request, DELETION, [(row, deleted(row)) for row in queryset])

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The history, with a button at each state that is not the present one."""
        response = super().history_view(request, object_id, extra_context)
        context = getattr(response, "context_data", None)
        if context is not None:
            row = context["object"]
            context["changes"] = changes_of(row, context["action_list"])
            context["may_restore"] = self.has_change_permission(request, row)
        return response

    def restore_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Put a row back into an earlier state; asks once, and says what changes by it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_change_permission(request):
            raise PermissionDenied
        with transaction.atomic(using=database()):
            row = self.get_object(request, unquote(object_id))
            if row is None:
                raise Http404(f"There is no {self.opts.verbose_name} {object_id}.")
            if not self.has_change_permission(request, row):
                raise PermissionDenied
            return self._restore(request, row)

    def _restore(self, request: HttpRequest, row: Any) -> HttpResponse:
        asked = request.POST.get("state", "")
        before = state_of(row)
        wanted = before | _kept(row, asked)
        back = reverse(
            f"admin:{self.opts.app_label}_{self.opts.model_name}_history",
            args=[quote(row.pk)],
            current_app=self.admin_site.name,
        )
        try:
            put(row, wanted)
            row.full_clean()
        except ValidationError as exc:
            told = _("This state cannot be restored any more: %(why)s")
            why = {"why": " ".join(exc.messages)}
            self.message_user(request, told % why, messages.ERROR)
            return HttpResponseRedirect(back)
        told_of = request.POST.get("seen")
        if loads(told_of) != before:
            context = {
                **self.admin_site.each_context(request),
                "title": _("Restore an earlier state of %(object)s?") % {"object": str(row)},
                "subtitle": None,
                "opts": self.opts,
                "object": row,
                "module_name": str(capfirst(self.opts.verbose_name_plural)),
                "differences": differences(self.model, before, wanted),
                "state": asked,
                "seen": json.dumps(before),
                "meanwhile": told_of is not None,
                "back": back,
            }
            request.current_app = self.admin_site.name
            return TemplateResponse(request, "admin/django_slidinglimit/restore.html", context)
        row.save()
        write(request, CHANGE, [(row, changed(row, before))])
        told = _("The earlier state of %(object)s is restored.") % {"object": str(row)}
        self.message_user(request, told, messages.SUCCESS)
        return HttpResponseRedirect(back)


@dataclass
class Change:
    """An entry of the log as the history shows it.

    Args:
        entry: the entry.
        differences: what changed, field by field; empty where the entry does not tell.
        states: the earlier states that it can lead back to: what the button sends, and whether
            it is the one before the change.
    """

    entry: LogEntry
    differences: list[Difference] = field(default_factory=list)
    states: list[tuple[str, bool]] = field(default_factory=list)


def changes_of(row: Model, entries: Iterable[LogEntry]) -> list[Change]:
    """The entries of a row's history, in their order."""
    present = state_of(row)
    last: State | None = None
    found = []
    for entry in entries:
        was, now = (values(entry, part) for part in ("was", "now"))
        change = Change(entry)
        if was and now:
            change.differences = differences(type(row), was, now)
        # What was before is offered where no entry tells of how it came about.
        if was and was not in (last, present):
            change.states.append((f"{entry.pk}:was", True))
        if now and now != present:
            change.states.append((f"{entry.pk}:now", False))
        last = now or last
        found.append(change)
    return found


def _kept(row: Model, asked: str) -> State:
    """The state that a button of a row's history names.

    Raises:
        BadRequest: it names none.
    """
    pk, _colon, part = asked.partition(":")
    is_key = pk.isdecimal() and len(pk) <= LONGEST_KEY
    entry = entries_of(row).filter(pk=int(pk)).first() if is_key else None
    found = values(entry, part) if entry and part in ("was", "now") else None
    if found is None:
        raise BadRequest("The form names no state of this row.")
    return found
