"""The usage pages: who is limited now, one client in detail, and the button that resets it."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext as _

from django_slidinglimit import clients, conf, connections, keeper
from django_slidinglimit._compat import BREADCRUMBS_ARE_A_LIST
from django_slidinglimit.core.decisions import Client, Hit
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.errors import SettingError
from django_slidinglimit.models import Rule, Usage
from django_slidinglimit.usage import reader

from .overrides import overrides_by_key
from .rows import Row, cards, client_query, label, legible, people, read_target, who

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    from django_slidinglimit.core.decisions import Rule as CompiledRule

    ModelAdmin = admin.ModelAdmin[Usage]
else:
    from django_slidinglimit._compat import ModelAdmin

NAME = "django_slidinglimit_usage"
TEMPLATES = "admin/django_slidinglimit/usage"


class UsageAdmin(ModelAdmin):
    """Pages instead of a list of rows; to see them takes the permission `view_usage`."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name=f"{NAME}_changelist"),
            path("client/", view(self.client_view), name=f"{NAME}_client"),
            path("reset/", view(self.reset_view), name=f"{NAME}_reset"),
        ]

    def _no(self, *_: Any, **__: Any) -> bool:
        """There are no rows to write."""
        return False

    has_add_permission = has_change_permission = has_delete_permission = _no

    def has_reset_permission(self, request: HttpRequest) -> bool:
        """Whether the user may reset clients: who may change a rule may."""
        return request.user.has_perm(f"{self.opts.app_label}.change_rule")

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The clients of each rule that were active in the last minutes."""
        self._require_view(request)
        context: dict[str, Any] = {"title": _("Usage"), **(extra_context or {})}
        with self._told(context):
            context["server"] = server = reader.server()
            usages = reader.overview(server.minute)
            found = people(request, self.admin_site, (s.client for u in usages for s in u.clients))
            context["groups"] = [
                (usage, [Row(usage, s, found.get(s.client)) for s in usage.clients])
                for usage in usages
            ]
            context["cards"] = cards(row for _, rows in context["groups"] for row in rows)
        return self._page(request, "overview", context)

    def client_view(self, request: HttpRequest) -> HttpResponse:
        """One client under each of its rules; the query names it by `kind` and `identity`."""
        self._require_view(request)
        client = Client(request.GET.get("kind", ""), request.GET.get("identity", ""))
        if not client.kind:
            raise BadRequest("The address names no client.")
        person = people(request, self.admin_site, [client]).get(client)
        context: dict[str, Any] = {
            "title": label(client, person),
            "client": client,
            "identity": legible(client.identity) or who(client),
            "person": person,
        }
        with self._told(context):
            everywhere = reader.override_everywhere(client)
            rows_of = overrides_by_key([everywhere])
            context["everywhere"] = everywhere and rows_of.get(everywhere.pk)
            context["server"] = server = reader.server()
            found = reader.of_client(server.minute, client)
            rows_of = overrides_by_key(standing.override for _, standing in found)
            context["rows"] = [
                Row(usage, s, person, rows_of.get(s.override.pk) if s.override else None)
                for usage, s in found
            ]
            context["new_override"] = self._new_override(request, client)
        return self._page(request, "client", context)

    def _new_override(self, request: HttpRequest, client: Client) -> str:
        """Where an override for a client is made, for those who may, if it can be written down."""
        if not request.user.has_perm(f"{self.opts.app_label}.add_override"):
            return ""
        try:
            if clients.settled(*client) != client or not client.identity.isprintable():
                return ""
        except ValueError:  # an address of the project's own making
            return ""
        name = f"admin:{self.opts.app_label}_override_add"
        return f"{reverse(name, current_app=self.admin_site.name)}?{client_query(client)}"

    def reset_view(self, request: HttpRequest) -> HttpResponse:
        """Forget what one client has used of one rule; asks once."""
        self._require_view(request)
        if not self.has_reset_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        target = request.POST.get("target", "")
        try:
            client, field = read_target(target)
            rule = reader.rule_of(field)
        except ValueError as exc:
            raise BadRequest("The form names no client and rule.") from exc
        person = people(request, self.admin_site, [client]).get(client)
        words = {"client": label(client, person), "rule": rule.name}
        if "confirmed" not in request.POST:
            title = _("Reset %(client)s on %(rule)s?") % words
            context = {
                "title": title,
                "target": target,
                "from": request.POST.get("from", ""),
                "back": self._back(request, client),
            }
            return self._page(request, "reset", context)
        try:
            connections.store().reset([Hit(rule, client)])
        except StoreError as error:
            told = _("Redis does not answer, so %(client)s is not known to be reset: %(error)s")
            self.message_user(request, told % {**words, "error": error}, messages.ERROR)
        else:
            self._log_reset(request, rule, _("Reset %(client)s.") % words)
            told = _("%(client)s starts afresh on %(rule)s.") % words
            self.message_user(request, told, messages.SUCCESS)
        return HttpResponseRedirect(self._back(request, client))

    def _require_view(self, request: HttpRequest) -> None:
        """`admin_view` asks for staff and nothing more."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    @contextmanager
    def _told(self, context: dict[str, Any]) -> Iterator[None]:
        """Where reading or counting fails, have the page say so, and what becomes of requests."""
        error: Exception | None
        try:
            yield
            failure = connections.store().failure  # such as a full server, which can still be read
            error = failure and failure.error
        except (StoreError, SettingError) as exc:
            context.pop("server", None)
            error = exc
        if error is not None:
            chosen = Counter(stored.rule.when_down for stored in reader.stored_rules().values())
            context.update(error=error, allow=chosen["allow"], deny=chosen["deny"])

    def _page(self, request: HttpRequest, name: str, context: dict[str, Any]) -> HttpResponse:
        """A whole page, or its live part alone when the page itself asks for that."""
        fragment = "fragment" in request.GET and name != "reset"
        shell = {} if fragment else self.admin_site.each_context(request)
        request.current_app = self.admin_site.name
        response = TemplateResponse(
            request,
            f"{TEMPLATES}/{'_' if fragment else ''}{name}.html",
            {
                **shell,
                "opts": self.opts,
                "page": name,
                "breadcrumbs_are_a_list": BREADCRUMBS_ARE_A_LIST,
                "may_see_overrides": request.user.has_perm(f"{self.opts.app_label}.view_override")
                or request.user.has_perm(f"{self.opts.app_label}.change_override"),
                "may_reset": self.has_reset_permission(request),
                "recording": conf.current().USAGE,
                "rules_failure": keeper.failure(),
                "minutes": reader.MINUTES,
                **context,
            },
        )
        add_never_cache_headers(response)
        return response

    def _back(self, request: HttpRequest, client: Client) -> str:
        """The page that the reset button stood on."""
        if request.POST.get("from") != "client":
            return reverse(f"admin:{NAME}_changelist", current_app=self.admin_site.name)
        url = reverse(f"admin:{NAME}_client", current_app=self.admin_site.name)
        return f"{url}?{client_query(client)}"

    def _log_reset(self, request: HttpRequest, rule: CompiledRule, message: str) -> None:
        """Write it to the history: of the row, or of no object for a rule in code."""
        LogEntry.objects.create(
            user=cast("User", request.user),
            content_type=ContentType.objects.get_for_model(Rule),
            object_id=rule.id.removeprefix("d") if rule.id.startswith("d") else None,
            object_repr=rule.name[:200],
            action_flag=CHANGE,
            change_message=message,
        )


admin.site.register(Usage, UsageAdmin)
