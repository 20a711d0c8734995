"""The rules in the admin: list, form, and actions that switch them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.forms import Script
from django.urls import path
from django.utils import timezone
from django.utils.html import escape, format_html, format_html_join
from django.utils.text import Truncator
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from django_slidinglimit import conf
from django_slidinglimit.models import Override, Rule
from django_slidinglimit.rules import compile_rule

from . import known
from .explain import explain_view
from .history import HistoryAdmin
from .log import changed, database, lock, write
from .preview import PreviewAdmin
from .rollout import RolloutAdmin, force_of
from .seen import SeenForm
from .states import state_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.admin.models import LogEntry
    from django.contrib.admin.views.main import ChangeList
    from django.db.models import Field
    from django.forms import Field as FormField
    from django.forms import ModelForm
    from django.http import HttpRequest
    from django.urls import URLPattern

    from django_slidinglimit.models import ToldQuerySet

WHAT_A_RULE_DOES = _(
    "Give either a scope or a path. An enforced rule of a scope replaces the rates that the code "
    "sets there for the same key; with the key blank it replaces all of them. A rule with another "
    "key adds a limit to them. One that observes counts beside them and refuses nothing. Methods "
    "that the rule does not name keep the code's rates. Where several rules apply, all must admit. "
    "A rule of a path adds a limit, too, and bites only in views that use RuleThrottle; it takes "
    "the place of one with a wider path that counts the same clients over the same time."
)
BY_ADDRESS = ("ip", "user_or_ip")


class RuleAdmin(RolloutAdmin, PreviewAdmin, HistoryAdmin):
    """Rules, with what is wrong with those that do not compile."""

    form = SeenForm
    list_display = (
        "name",
        "place",
        "rate",
        "methods_shown",
        "key_shown",
        "in_force",
        "last_changed",
    )
    list_filter = ("mode", "when_down")
    search_fields = ("name", "description", "scope", "path", "key")
    actions = ("enforce", "observe", "switch_off")
    # The bar at the bottom has an inline style, which a strict Content-Security-Policy refuses.
    actions_on_top = True
    actions_on_bottom = False
    readonly_fields = ("created", "updated")
    fieldsets = (
        (None, {"fields": ("name", "description")}),
        (_("Where"), {"fields": ("scope", "path", "methods"), "description": WHAT_A_RULE_DOES}),
        (_("How much, for whom"), {"fields": ("rate", "key", "mode", "share")}),
        (
            _("When something is missing"),
            {"fields": ("no_identity", "when_down", "created", "updated")},
        ),
    )

    class Media:
        css = {  # noqa: RUF012
            "all": ("django_slidinglimit/pages.css", "django_slidinglimit/preview.css")
        }
        js = tuple(
            Script(f"django_slidinglimit/{name}.js", type="module")
            for name in ("rate", "rollout", "preview")
        )

    def formfield_for_dbfield(
        self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> FormField | None:
        formfield = super().formfield_for_dbfield(db_field, request, **kwargs)
        if formfield is not None:
            # Texts, not HTML: they speak of <name>.
            formfield.help_text = escape(formfield.help_text)
            if db_field.name in ("scope", "path"):
                known.suggest(formfield, db_field.name)
            if db_field.name == "rate":
                formfield.widget.attrs.update(rate_echoes())
            if db_field.name == "description":
                formfield.widget.attrs["rows"] = 3
        return formfield

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(partial(explain_view, self))
        return [
            path("explain/", view, name="django_slidinglimit_rule_explain"),
            *super().get_urls(),
        ]

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        changelist = super().get_changelist_instance(request)
        known.mark(changelist)
        return changelist

    @admin.display(description=_("place"), ordering="scope")
    def place(self, rule: Rule) -> str:
        kind = gettext("scope") if rule.scope else gettext("path")
        return format_html(
            '<span class="sl-kind">{}</span> <code>{}</code>', kind, rule.scope or rule.path
        )

    @admin.display(description=_("methods"), ordering="methods")
    def methods_shown(self, rule: Rule) -> str:
        return rule.methods or gettext("all")

    @admin.display(description=_("key"), ordering="key")
    def key_shown(self, rule: Rule) -> str:
        return rule.key or gettext("as the place counts")

    @admin.display(description=_("in force"), ordering="mode")
    def in_force(self, rule: Rule) -> str:
        problem = problem_of(rule)
        if problem:
            return format_html(
                '<span class="sl-state sl-limited">{}</span> <span title="{}">{}</span>',
                gettext("left out:"),
                problem,
                Truncator(problem).chars(60),
            )
        marks = format_html_join(
            "", '<span class="sl-mark">{}</span>', ((each,) for each in getattr(rule, "marks", ()))
        )
        return format_html("{}{}", force_of(rule), marks)

    @admin.action(description=_("Switch on: enforce selected rules"), permissions=("change",))
    def enforce(self, request: HttpRequest, rules: ToldQuerySet[Rule]) -> None:
        self._switch(request, rules, Rule.Mode.ENFORCE)

    @admin.action(description=_("Observe selected rules"), permissions=("change",))
    def observe(self, request: HttpRequest, rules: ToldQuerySet[Rule]) -> None:
        self._switch(request, rules, Rule.Mode.OBSERVE)

    @admin.action(description=_("Switch off selected rules"), permissions=("change",))
    def switch_off(self, request: HttpRequest, rules: ToldQuerySet[Rule]) -> None:
        self._switch(request, rules, Rule.Mode.OFF)

    def _switch(self, request: HttpRequest, rules: ToldQuerySet[Rule], mode: Rule.Mode) -> None:
        with transaction.atomic(using=database()):
            lock(rules)
            found = list(rules.exclude(mode=mode))
            before = [state_of(rule) for rule in found]
            Rule.objects.filter(pk__in=[rule.pk for rule in found]).update(
                mode=mode, updated=timezone.now()
            )
            for rule in found:
                rule.mode = mode
            entries = [(r, changed(r, was)) for r, was in zip(found, before, strict=True)]
            write(request, CHANGE, entries)
        count = len(found)
        told = ngettext(
            "%(count)d rule is now set to %(mode)s.",
            "%(count)d rules are now set to %(mode)s.",
            count,
        )
        self.message_user(request, told % {"count": count, "mode": mode.value}, messages.SUCCESS)

    def log_deletions(self, request: HttpRequest, queryset: Iterable[Any]) -> list[LogEntry]:
        """Also of the overrides that go with their rules."""
        gone = [*queryset, *Override.objects.using(database()).filter(rule__in=queryset)]
        return super().log_deletions(request, gone)

    def save_model(
        self, request: HttpRequest, obj: Rule, form: ModelForm[Rule], change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        if obj.key in BY_ADDRESS and not _proxies_are_known():
            told = gettext(
                'This rule counts by address, and SLIDINGLIMIT["TRUSTED_PROXIES"] is empty: if '
                "the site stands behind a proxy, all its visitors count as one client."
            )
            self.message_user(request, told, messages.WARNING)


def problem_of(rule: Rule) -> str:
    """Why a row does not compile and is left out; "" if it does."""
    try:
        compile_rule(rule)
    except (ValueError, ImproperlyConfigured) as exc:
        return str(exc)
    return ""


def rate_echoes() -> dict[str, str]:
    """What rate.js says of a rate while it is typed."""
    echoes = {
        f"data-{unit}": gettext("{limit} requests in {seconds} s, about {rate} %(unit)s")
        % {"unit": a_unit}
        for unit, a_unit in (
            ("second", gettext("a second")),
            ("minute", gettext("a minute")),
            ("hour", gettext("an hour")),
            ("day", gettext("a day")),
            ("week", gettext("a week")),
        )
    }
    return {**echoes, "data-none": gettext("Refuses every request.")}


def _proxies_are_known() -> bool:
    settled = conf.current()
    return bool(settled.TRUSTED_PROXIES) or settled.TRUST_UNIX_SOCKET


admin.site.register(Rule, RuleAdmin)
