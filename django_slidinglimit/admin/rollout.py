"""Rules that are tried out before they bite: what an observing one has seen, and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.html import format_html
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_slidinglimit import conf
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.errors import SettingError
from django_slidinglimit.models import Rule
from django_slidinglimit.rules import compile_rule
from django_slidinglimit.usage import hour

from .figures import number, percent
from .log import entries_of, values

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from django.contrib.admin.views.main import ChangeList
    from django.forms import ModelForm
    from django.http import HttpRequest

    from django_slidinglimit.usage.hour import Seen

    ModelAdmin = admin.ModelAdmin[Rule]
else:
    from django_slidinglimit._compat import ModelAdmin

BEGIN_SO = gettext_lazy(
    "Begin with observe: this page then tells what the rule would have refused, before it does."
)


class RolloutAdmin(ModelAdmin):
    """Proposes to observe first, and tells what was observed where one decides to enforce."""

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"mode": Rule.Mode.OBSERVE.value, **super().get_changeform_initial_data(request)}

    def get_form(
        self, request: HttpRequest, obj: Rule | None = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm[Rule]]:
        form = super().get_form(request, obj, change=change, **kwargs)
        mode = form.base_fields.get("mode")
        if mode is not None and obj is None:
            mode.help_text = BEGIN_SO
        elif mode is not None and obj is not None and obj.mode == Rule.Mode.OBSERVE:
            mode.help_text = seen_so_far(obj)
        return form

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """The list, each observing rule with what it saw in the last hour."""
        found = super().get_changelist_instance(request)
        seen = seen_by(found.result_list)
        for row in found.result_list:
            row.seen = seen.get(row.pk)
        return found

    def save_model(
        self, request: HttpRequest, obj: Rule, form: ModelForm[Rule], change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        before = form.initial
        if change and {before.get("mode"), obj.mode} == {Rule.Mode.ENFORCE.value}:
            warning = tightened(str(before.get("rate")), obj.rate)
            if warning:
                self.message_user(request, warning, messages.WARNING)


def force_of(rule: Rule) -> str:
    """How far a rule is in force, and what it saw if it only observes."""
    states = {
        Rule.Mode.ENFORCE: ("ok", _("enforced")),
        Rule.Mode.OBSERVE: ("observed", _("only observed")),
        Rule.Mode.OFF: ("off", _("off")),
    }
    mode = Rule.Mode(rule.mode)
    state, words = states[mode]
    if mode is Rule.Mode.ENFORCE and rule.share < 100:
        words = _("enforced for %s%% of clients") % rule.share
    shown = format_html('<span class="sl-state sl-{}">{}</span>', state, words)
    seen: Seen | None = getattr(rule, "seen", None)
    if seen is None or not seen.all:
        return shown
    told = _("%(over)s of %(all)s over it in the last hour") % {
        "over": number(seen.over),
        "all": number(seen.all),
    }
    return format_html('{} <span class="sl-quiet">{}</span>', shown, told)


def seen_by(rows: Iterable[Rule]) -> dict[int, Seen]:
    """What observing rules saw in the last hour, by primary key; nothing if it cannot be read."""
    observing = {}
    for row in rows:
        if row.mode == Rule.Mode.OBSERVE:
            try:
                observing[row.pk] = compile_rule(row).rule
            except (ValueError, ImproperlyConfigured):  # told of in the list
                continue
    try:
        seen = hour.seen(observing.values())
    except (StoreError, SettingError):
        return {}
    return {pk: seen[rule] for pk, rule in observing.items()}


def seen_so_far(rule: Rule) -> str:
    """Since when a rule observes, and what it has seen as far as usage reaches back."""
    since = timesince(observing_since(rule), timezone.now(), depth=1)
    return f"{_('In observe for %s.') % since} {_seen_in_words(rule)}"


def _seen_in_words(rule: Rule) -> str:
    if not conf.current().USAGE:
        return _('What it sees is not recorded: the setting SLIDINGLIMIT["USAGE"] is False.')
    try:
        compiled = compile_rule(rule).rule
    except (ValueError, ImproperlyConfigured):
        return _("It is left out, so it sees nothing.")
    try:
        seen = hour.seen([compiled])[compiled]
        clients = hour.clients_over(compiled) if seen.over else 0
    except (StoreError, SettingError):
        return _("Redis does not answer, so what it has seen is not known.")
    if not seen.all:
        return _("It has counted no request in the last hour.")
    told = ngettext(
        "In the last hour it would have refused %(over)s of %(all)s requests (%(percent)s), of "
        "%(clients)s client.",
        "In the last hour it would have refused %(over)s of %(all)s requests (%(percent)s), of "
        "%(clients)s clients.",
        clients,
    )
    return told % {
        "over": number(seen.over),
        "all": number(seen.all),
        "percent": percent(seen.over, seen.all),
        "clients": number(clients),
    }


def observing_since(rule: Rule) -> datetime:
    """When a rule was set to observe, by the history; else when it was last saved."""
    since = None
    for entry in entries_of(rule).order_by("-action_time", "-pk"):
        now = values(entry, "now")
        if now is None:
            continue
        if now.get("mode") != Rule.Mode.OBSERVE:
            break
        since = entry.action_time
        was = values(entry, "was")
        if was is not None and was.get("mode") != Rule.Mode.OBSERVE:
            break
    return since or rule.updated


def tightened(before: str, after: str) -> str:
    """A warning if a rate admits less than half of what another did; "" if not, or if one is none.

    Args:
        before, after: rates as people write them.
    """
    try:
        old, new = Rate.parse(before), Rate.parse(after)
    except ValueError:
        return ""
    if 2 * new.limit * old.window_ms >= old.limit * new.window_ms:
        return ""
    return _(
        "This enforced rule admits less than half of what it did: %(old)s became %(new)s. Clients "
        "above that are refused from now on."
    ) % {"old": old, "new": new}
