"""The usage pages' place in the admin: their addresses and their entry in the menu."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.urls import path

from django_slidinglimit.models import Usage

from . import busiest, client, overview, undo
from .actions import Action, page_of
from .pages import NAME, UsagePages

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    from .pages import Page


class UsageAdmin(UsagePages):
    """Each page is a module with a function `page(pages, request)`."""

    def get_urls(self) -> list[URLPattern]:
        def at(route: str, page: Page, name: str) -> URLPattern:
            def view(request: HttpRequest) -> HttpResponse:
                self.require_view(request)
                return page(self, request)

            return path(route, self.admin_site.admin_view(view), name=f"{NAME}_{name}")

        return [
            path("", self.admin_site.admin_view(self.changelist_view), name=f"{NAME}_changelist"),
            at("client/", client.page, "client"),
            at("rule/", busiest.page, "rule"),
            *(at(f"{action}/", page_of(action), action) for action in Action),
            at("undo/", undo.page, "undo"),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self.require_view(request)
        return overview.page(self, request, extra_context)


admin.site.register(Usage, UsageAdmin)
