"""The shell of the usage pages: who may see them, the live part alone, what is told of Redis."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.cache import add_never_cache_headers, get_conditional_response
from django.utils.http import url_has_allowed_host_and_scheme

from django_slidinglimit import conf, connections, keeper
from django_slidinglimit._compat import BREADCRUMBS_ARE_A_LIST
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.errors import SettingError
from django_slidinglimit.usage import minutes
from django_slidinglimit.usage.rules import stored_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.contrib import admin
    from django.http import HttpRequest, HttpResponse

    from django_slidinglimit.models import Usage

    ModelAdmin = admin.ModelAdmin[Usage]
    Page = Callable[["UsagePages", HttpRequest], HttpResponse]
else:
    from django_slidinglimit._compat import ModelAdmin

NAME = "django_slidinglimit_usage"
TEMPLATES = "admin/django_slidinglimit/usage"


class UsagePages(ModelAdmin):
    """Pages instead of a list of rows; to see them takes the permission `view_usage`."""

    def _no(self, *_: Any, **__: Any) -> bool:
        """There are no rows to write."""
        return False

    has_add_permission = has_change_permission = has_delete_permission = _no

    def has_reset_permission(self, request: HttpRequest) -> bool:
        """Whether the user may reset clients: who may change a rule may."""
        return request.user.has_perm(f"{self.opts.app_label}.change_rule")

    def require_view(self, request: HttpRequest) -> None:
        """`admin_view` asks for staff and nothing more.

        Raises:
            PermissionDenied: the user may not see these pages.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied

    @contextmanager
    def told(self, context: dict[str, Any]) -> Iterator[None]:
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
            context.update(error=error, **when_away())

    def page(self, request: HttpRequest, name: str, context: dict[str, Any]) -> HttpResponse:
        """A whole page, or its live part alone when the page itself asks for that."""
        fragment = "fragment" in request.GET
        shell = {} if fragment else self.admin_site.each_context(request)
        request.current_app = self.admin_site.name
        time_ms = minutes.now_ms()
        response = TemplateResponse(
            request,
            f"{TEMPLATES}/{'_' if fragment else ''}{name}.html",
            {
                **shell,
                "opts": self.opts,
                "fragment": fragment,
                "poll": conf.current().USAGE_POLL,
                "time_ms": time_ms,
                "page": name,
                "breadcrumbs_are_a_list": BREADCRUMBS_ARE_A_LIST,
                "may_see_overrides": request.user.has_perm(f"{self.opts.app_label}.view_override")
                or request.user.has_perm(f"{self.opts.app_label}.change_override"),
                "may_reset": self.has_reset_permission(request),
                "may_override": request.user.has_perm(f"{self.opts.app_label}.add_override"),
                "may_end": request.user.has_perm(f"{self.opts.app_label}.change_override"),
                "recording": conf.current().USAGE,
                "rules_failure": keeper.failure(),
                **context,
            },
        )
        add_never_cache_headers(response)
        return self._unless_known(request, response, time_ms, context) if fragment else response

    def _unless_known(
        self,
        request: HttpRequest,
        response: TemplateResponse,
        time_ms: int,
        context: dict[str, Any],
    ) -> HttpResponse:
        """The live part, or 304 if the page shows it already.

        What changes with each look goes beside it: the server's time, and how long it took.
        """
        response.render()
        etag = f'"{blake2b(response.content, digest_size=16).hexdigest()}"'
        response["ETag"] = etag
        answer = get_conditional_response(request, etag=etag, response=response) or response
        answer["X-Redis-Time"] = str(time_ms)
        if "trip" in context:
            answer["Server-Timing"] = f"redis;dur={context['trip'].took_ms:.1f}"
        return answer

    def back(self, request: HttpRequest) -> str:
        """The page that a button stood on, if it is one of these."""
        given, first = request.POST.get("back", ""), self.url("changelist")
        known = given.startswith(first) and url_has_allowed_host_and_scheme(given, None)
        return given if known else first

    def url(self, name: str) -> str:
        """Where a page is: "changelist", "client", "rule" and so on."""
        return reverse(f"admin:{NAME}_{name}", current_app=self.admin_site.name)


def when_away() -> dict[str, int]:
    """How many rules of the database let requests through while Redis is away, or refuse them."""
    chosen = Counter(stored.rule.when_down for stored in stored_rules().values())
    return {"allow": chosen["allow"], "deny": chosen["deny"]}
