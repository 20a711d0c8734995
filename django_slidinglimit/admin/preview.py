"""What a rule would have done to the traffic of the last hour, told before it is saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpResponseNotAllowed
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_slidinglimit import conf
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.errors import SettingError
from django_slidinglimit.models import Rule
from django_slidinglimit.rules import compile_rule
from django_slidinglimit.usage import minutes, trial
from django_slidinglimit.usage.simulation import is_coarse

from . import charts
from .figures import between, number, percent_between
from .people import people
from .rows import client_query, duration, label, who

if TYPE_CHECKING:
    from django.contrib import admin
    from django.db.models import CharField
    from django.http import HttpRequest, HttpResponse, QueryDict
    from django.urls import URLPattern

    from django_slidinglimit.rules import StoredRule
    from django_slidinglimit.usage.trial import Line, Trial

    from .people import Person

    ModelAdmin = admin.ModelAdmin[Rule]
else:
    from django_slidinglimit._compat import ModelAdmin

NAME = "django_slidinglimit_rule_preview"
TEMPLATES = "admin/django_slidinglimit/preview"
# The fields of the form that it depends on.
FIELDS = ("scope", "path", "methods", "key", "rate", "mode")
# Shown: the most affected clients, and the busiest in the chart.
MOST_AFFECTED = 10
MOST_COLUMNS = 40


class PreviewAdmin(ModelAdmin):
    """A button on the rule's form that shows what the rule would have done."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.preview_view)
        return [
            path("preview/", view, name=NAME),
            path("<int:pk>/preview/", view, name=NAME),
            *super().get_urls(),
        ]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = kwargs.get("obj")
        if self.may_preview(request, row):
            of_row = [] if row is None else [row.pk]
            context["preview_url"] = reverse(
                f"admin:{NAME}", args=of_row, current_app=self.admin_site.name
            )
        return super().render_change_form(request, context, *args, **kwargs)

    def may_preview(self, request: HttpRequest, row: Rule | None) -> bool:
        """Whether the user may change this rule, or add one."""
        if row is None:
            return self.has_add_permission(request)
        return self.has_change_permission(request, row)

    def preview_view(self, request: HttpRequest, pk: int | None = None) -> HttpResponse:
        """What the rule that stands in the form would have done; saves nothing."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not (self.has_change_permission(request) or self.has_add_permission(request)):
            raise PermissionDenied
        row = None
        if pk is not None:
            row = get_object_or_404(self.get_queryset(request), pk=pk)
        if not self.may_preview(request, row):
            raise PermissionDenied
        fragment = "fragment" in request.GET
        context = {} if fragment else self.admin_site.each_context(request)
        context |= {"title": _("Preview of a rule"), "opts": self.opts}
        context |= self._told(request, row)
        request.current_app = self.admin_site.name
        template = f"{TEMPLATES}/{'_' if fragment else ''}preview.html"
        response = TemplateResponse(request, template, context)
        add_never_cache_headers(response)
        return response

    def _told(self, request: HttpRequest, row: Rule | None) -> dict[str, Any]:
        """The preview, or why there is none."""
        try:
            rule = compile_rule(proposed(request.POST, row))
        except (ValueError, ImproperlyConfigured) as exc:
            return {"problem": str(exc)}
        try:
            found = trial.run(rule, _compiled(row))
        except (StoreError, SettingError) as exc:
            return {"error": exc}
        if not found.sources:
            return {"nothing": True, "recording": conf.current().USAGE}
        affected, drawn = found.affected[:MOST_AFFECTED], found.lines[:MOST_COLUMNS]
        persons = people(request, self.admin_site, (line.client for line in [*affected, *drawn]))
        chart = charts.columns([line.busiest for line in drawn], found.room)
        return {
            "may_see_clients": request.user.has_perm("django_slidinglimit.view_usage"),
            "trial": found,
            "summary": summary(found),
            "notes": notes(found, _compiled(row)),
            "stretch": stretch(found),
            "room": number(found.room),
            "affected": [Shown(line, persons.get(line.client)) for line in affected],
            "drawn": [
                Shown(line, persons.get(line.client), box, line.busiest > found.room)
                for line, box in zip(drawn, chart.boxes, strict=True)
            ],
            "limit": chart.limit,
            "others": len(found.lines) - len(drawn),
        }


@dataclass(frozen=True)
class Shown:
    """A line as the page shows it.

    Args:
        line: the client and its numbers.
        person: the user behind it, if the one who looks may know.
        box: its column in the chart.
        over: whether the column rises above the limit.
    """

    line: Line
    person: Person | None = None
    box: charts.Box | None = None
    over: bool = False

    @property
    def who(self) -> str:
        return who(self.line.client, self.person)

    @property
    def label(self) -> str:
        return label(self.line.client, self.person)

    @property
    def query(self) -> str:
        return client_query(self.line.client)

    @property
    def asked(self) -> str:
        return number(self.line.asked)

    @property
    def busiest(self) -> str:
        return number(self.line.busiest)

    @property
    def refused(self) -> str:
        return between(self.line.refused)


def proposed(form: QueryDict, row: Rule | None) -> Rule:
    """The rule that stands in a form, with what a preview depends on and nothing else.

    Raises:
        ValueError: it has no place, a text is too long, or its share is no number.
    """
    made = Rule(pk=row.pk if row else None, name=form.get("name", ""))
    for name in FIELDS:
        text = form.get(name, "").strip()
        most = cast("CharField[str, str]", Rule._meta.get_field(name)).max_length or 0
        if len(text) > most:  # a pattern of a megabyte would take seconds
            raise ValueError(
                _("%(field)s: at most %(most)d characters.") % {"field": name, "most": most}
            )
        setattr(made, name, text)
    made.share = int(form.get("share") or made.share)
    if bool(made.scope) == bool(made.path):
        raise ValueError(_("Give either a scope or a path."))
    return made


def _compiled(row: Rule | None) -> StoredRule | None:
    """A row as it is saved; None for a new one, and for one that does not compile."""
    try:
        return None if row is None else compile_rule(row)
    except (ValueError, ImproperlyConfigured):
        return None


def summary(found: Trial) -> str:
    """What the trial came to, in a sentence."""
    told = _(
        "%(rate)s would have refused %(refused)s of %(asked)s requests of the last hour "
        "(%(percent)s), from %(clients)s of %(all)s clients."
    )
    return told % {
        "rate": found.rate,
        "refused": between(found.refused),
        "asked": number(found.asked),
        "percent": percent_between(found.refused, found.asked),
        "clients": between(found.clients),
        "all": number(len(found.lines)),
    }


def stretch(found: Trial) -> str:
    """What the columns of the chart measure."""
    if found.stretch == 1:
        return _("Busiest minute")
    if found.stretch == minutes.MOST:
        return _("In the hour")
    return _("Busiest %s minutes") % found.stretch


def notes(found: Trial, before: StoredRule | None) -> list[str]:
    """What to know of the numbers."""
    told = []
    if is_coarse(found.rate):
        told.append(
            _(
                "Traffic is recorded by the minute, which is too coarse for a window of %s: the "
                "true number lies within the range, nearer to its low end the more evenly the "
                "requests came."
            )
            % duration(found.rate.window_ms)
        )
    elif not found.refused.exact:
        told.append(
            _(
                "Traffic is recorded by the minute: the true number lies within the range, by when "
                "within their minutes the requests came; nearer to its low end the more evenly "
                "they did."
            )
        )
    if not found.own:
        names = ", ".join(sorted({f"{rule.name} ({rule.rate})" for rule in found.sources}))
        told.append(
            _("This rule has counted nothing there yet: the traffic is what %s counted.") % names
        )
        if found.rule.methods:
            told.append(_("Requests of all methods that were counted there are among it."))
    elif before is not None and before.methods != found.rule.methods:
        told.append(_("The traffic is that of the methods that the rule had so far."))
    if before is not None and found.own and before.share < found.rule.share:
        told.append(
            _("The rule has counted %s%% of clients so far: the others are not among them.")
            % before.share
        )
    if found.excepted:
        told.append(
            ngettext(
                "%d client that has an override is left out.",
                "%d clients that have an override are left out.",
                found.excepted,
            )
            % found.excepted
        )
    if found.bounded:
        told.append(_("Of minutes with more than 1,000 clients the busiest are known."))
    if found.rule.rule.observe:
        told.append(_("While the rule only observes, it refuses nothing of this."))
    return told
