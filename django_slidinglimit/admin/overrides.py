"""The overrides in the admin: for whom, under which rule, what, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.contrib.auth import get_user_model
from django.db import models, transaction
from django.forms import Script
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.html import escape, format_html, format_html_join
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from django_slidinglimit import addresses, clients, conf
from django_slidinglimit.core.decisions import Client
from django_slidinglimit.models import Override, Rule

from .history import HistoryAdmin
from .log import changed, database, lock, write
from .people import people
from .rules import rate_echoes
from .states import shown_time, state_of
from .targets import OverrideForm, Target, in_words, target_of

if TYPE_CHECKING:
    from datetime import datetime

    from django.contrib.admin.views.main import ChangeList
    from django.db.models import Field, QuerySet
    from django.http import HttpRequest

    from django_slidinglimit.models import ToldQuerySet

    SimpleListFilter = admin.SimpleListFilter
else:
    SimpleListFilter = admin.SimpleListFilter

WHO_WINS = _(
    "Where several overrides are for a client, the most specific wins: one client over a group "
    "over a network (the narrower first) over everyone; then one rule over all rules; then block "
    "over exempt over another rate."
)
WHAT_A_RATE_DOES = _(
    "A rate with the window of the rule (100/min for 20/min) goes on with what is counted. With "
    "another window (1000/h for 20/min) the override counts in counters of its own: a fresh "
    "allowance, now and when the override ends."
)


# Users whose overrides a search by name looks for.
MOST_FOUND = 500


class Suggested(forms.TextInput):
    """A text field that proposes what else may be written."""

    def __init__(self, proposed: list[str], attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        self.proposed = proposed

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> Any:
        proposals = f"{name}-proposed"
        field = super().render(name, value, {**(attrs or {}), "list": proposals}, renderer)
        options = format_html_join(
            "", '<option value="{}"></option>', ((p,) for p in self.proposed)
        )
        return format_html('{}<datalist id="{}">{}</datalist>', field, proposals, options)


class TargetFilter(SimpleListFilter):
    """By whom they are for."""

    title = _("target")
    parameter_name = "for"

    def lookups(self, *_: Any) -> list[tuple[str, str]]:
        words = {
            Target.CLIENT: gettext("one client"),
            Target.GROUP: gettext("a group"),
            Target.NETWORK: gettext("a network"),
            Target.EVERYONE: gettext("everyone"),
        }
        return [(target.value, word) for target, word in words.items()]

    def queryset(self, _request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case Target.CLIENT:
                return queryset.exclude(kind="")
            case Target.GROUP:
                return queryset.filter(group__isnull=False)
            case Target.NETWORK:
                return queryset.exclude(network="")
            case Target.EVERYONE:
                return queryset.filter(kind="", group=None, network="")
        return queryset


class StateFilter(SimpleListFilter):
    """By whether they are in force."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, *_: Any) -> list[tuple[str, str]]:
        return [("now", gettext("in force")), ("expired", gettext("expired"))]

    def queryset(self, _request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "now":
            return queryset.exclude(expires__lte=timezone.now())
        if self.value() == "expired":
            return queryset.filter(expires__lte=timezone.now())
        return queryset


class OverrideAdmin(HistoryAdmin):
    """Overrides; `add/?kind=...&identity=...&rule=...` opens a form that is filled in so far."""

    form = OverrideForm
    list_display = (
        "whom",
        "rule_shown",
        "effect_shown",
        "until",
        "reason",
        "created_by",
        "last_changed",
    )
    list_filter = ("effect", TargetFilter, StateFilter, ("rule", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("rule", "group", "created_by")
    search_fields = ("identity", "kind", "network", "reason", "group__name", "rule__name")
    search_help_text = _("A user's name, an address, a group, a rule or a reason.")
    actions = ("end",)
    actions_on_top = True
    actions_on_bottom = False
    readonly_fields = ("created_by", "created", "updated")
    radio_fields = {"effect": admin.VERTICAL}  # noqa: RUF012
    fieldsets = (
        (
            _("Whom"),
            {
                "fields": ("target", "kind", "identity", "group", "network"),
                "description": WHO_WINS,
            },
        ),
        (_("What"), {"fields": ("rule", "effect", "rate"), "description": WHAT_A_RATE_DOES}),
        (
            _("Until when, and why"),
            {"fields": ("expires", "reason", "created_by", "created", "updated")},
        ),
    )

    class Media:
        css = {"all": ("django_slidinglimit/pages.css",)}  # noqa: RUF012
        js = (
            Script("django_slidinglimit/rate.js", type="module"),
            Script("django_slidinglimit/override.js", type="module"),
        )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """A new row has no past yet; who may only look sees no choice but what was chosen."""
        left_out: tuple[str, ...] = ()
        if obj is None:
            left_out = self.readonly_fields
        elif not self.has_change_permission(request, obj):
            left_out = ("target",)
        return [
            (title, {**options, "fields": [n for n in options["fields"] if n not in left_out]})
            for title, options in super().get_fieldsets(request, obj)
        ]

    def formfield_for_dbfield(
        self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> forms.Field | None:
        formfield = super().formfield_for_dbfield(db_field, request, **kwargs)
        if formfield is None:
            return None
        if db_field.name == "kind":
            attrs = formfield.widget.attrs
            formfield.widget = Suggested(_known_kinds(), attrs)
        elif db_field.name == "identity":
            formfield.help_text = gettext(
                "A user's name or primary key; an IP address (of IPv6 its /%(prefix)s is counted); "
                "or what stands in the header, query or form, of which only a digest is kept."
            ) % {"prefix": conf.current().IPV6_PREFIX}
        elif db_field.name == "rate":
            formfield.help_text = gettext("Only where the effect is another rate.")
            formfield.widget.attrs.update(rate_echoes())
        elif db_field.name == "expires":
            # Two fields in one, which until Django 6.1 have no names of their own.
            for part, word in zip(formfield.widget.widgets, (_("Date"), _("Time")), strict=True):
                part.attrs["aria-label"] = f"{formfield.label}: {word}"
        # Texts, not HTML: they speak of <name>.
        formfield.help_text = escape(formfield.help_text)
        return formfield

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """What the address says of a new row; an end that is no time is left out."""
        found: dict[str, Any] = dict(super().get_changeform_initial_data(request))
        if "expires" in found:
            found["expires"] = _time(str(found["expires"]))
        return found

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        found = super().get_changelist_instance(request)
        users = people(
            request, self.admin_site, (Client(r.kind, r.identity) for r in found.result_list)
        )
        for row in found.result_list:
            row.person = users.get(Client(row.kind, row.identity))
        return found

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Also by a user's name, and by an address that is counted as its network."""
        found, duplicates = super().get_search_results(request, queryset, search_term)
        term = search_term.strip()
        also = models.Q(pk__in=())
        address = clients.by_address(addresses.parse_address(term))
        if address is not None:
            also |= models.Q(kind=address.kind, identity=address.identity)
        if term:
            model = get_user_model()
            named = model._default_manager.filter(
                **{f"{model.USERNAME_FIELD}__icontains": term}
            ).values_list("pk", flat=True)
            keys = [str(key) for key in named[:MOST_FOUND]]
            also |= models.Q(kind="user", identity__in=keys)
        return found | queryset.filter(also), duplicates

    @admin.display(description=_("for"), ordering="kind")
    def whom(self, row: Override) -> str:
        """Whom a row is for, in words."""
        return in_words(row, getattr(row, "person", None))

    @admin.display(description=_("rule"), ordering="rule__name")
    def rule_shown(self, row: Override) -> str:
        return str(row.rule) if row.rule else gettext("all rules")

    @admin.display(description=_("effect"), ordering="effect")
    def effect_shown(self, row: Override) -> str:
        words = {
            Override.Effect.RATE: ("observed", row.rate),
            Override.Effect.EXEMPT: ("exempt", gettext("exempt")),
            Override.Effect.BLOCK: ("blocked", gettext("blocked")),
        }
        state, word = words[Override.Effect(row.effect)]
        return format_html('<span class="sl-state sl-{}">{}</span>', state, word)

    @admin.display(description=_("expires"), ordering="expires")
    def until(self, row: Override) -> str:
        if row.expires is None:
            return gettext("never")
        shown = shown_time(row.expires, "SHORT_DATETIME_FORMAT")
        if row.expires > timezone.now():
            return shown
        return format_html('{} <span class="sl-tag">{}</span>', shown, gettext("expired"))

    @admin.action(description=_("End selected overrides now"), permissions=("change",))
    def end(self, request: HttpRequest, overrides: ToldQuerySet[Override]) -> None:
        """Have them expire now; unlike a deletion it leaves them in the list."""
        now = timezone.now().replace(microsecond=0)  # as precise as the form
        with transaction.atomic(using=database()):
            lock(overrides)
            found = list(overrides.exclude(expires__lte=now))
            before = [state_of(row) for row in found]
            ended = Override.objects.filter(pk__in=[row.pk for row in found])
            ended.update(expires=now, updated=now)
            for row in found:
                row.expires = now
            entries = [(row, changed(row, was)) for row, was in zip(found, before, strict=True)]
            write(request, CHANGE, entries)
        told = ngettext("%d override has ended.", "%d overrides have ended.", len(found))
        self.message_user(request, told % len(found), messages.SUCCESS)

    def save_model(self, request: HttpRequest, obj: Override, form: Any, change: bool) -> None:
        if not change:
            obj.created_by_id = request.user.pk
        super().save_model(request, obj, form, change)
        for told in _doubts(obj):
            self.message_user(request, told, messages.WARNING)


def _time(text: str) -> datetime | None:
    """The time that a text tells in ISO 8601; None: it tells none."""
    try:
        found = parse_datetime(text)
    except ValueError:  # well written, and not in the calendar
        return None
    naive = settings.USE_TZ and found is not None and timezone.is_naive(found)
    return timezone.make_aware(found) if naive and found else found


def _known_kinds() -> list[str]:
    """Kinds of clients that rules and overrides are known to count."""
    keys = Rule.objects.using(database()).exclude(key="").values_list("key", flat=True)
    found = {*keys.distinct(), *conf.current().KEYS, "user", "ip", "global"}
    return sorted(found - {"user_or_ip"})


def _doubts(row: Override) -> list[str]:
    """What may not be meant so."""
    found = []
    if row.kind and not clients.is_known(row.kind):
        told = gettext("No key is known that counts clients of the kind %(kind)s.")
        found.append(told % {"kind": row.kind})
    if row.effect == Override.Effect.BLOCK and target_of(row) is Target.EVERYONE:
        found.append(
            gettext("This refuses every request under %(rule)s.")
            % {"rule": row.rule or gettext("every rule")}
        )
    return found


admin.site.register(Override, OverrideAdmin)
