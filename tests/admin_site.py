"""A small site under a strict Content-Security-Policy, for the tests of the admin's pages."""

from collections.abc import Callable

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_slidinglimit import headers, limiter

CSP = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"


def strict(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[..., HttpResponse]:
    """Middleware that allows nothing inline and nothing from elsewhere."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Content-Security-Policy"] = CSP
        return response

    return middleware


def search(request: HttpRequest) -> HttpResponse:
    """A limited view; ?as= says who asks."""
    client = request.GET.get("as", "")
    decision = limiter.check(request, "search", key=lambda *_: client, rate="10/h")
    return HttpResponse(
        "found" if decision.allowed else "refused",
        status=200 if decision.allowed else 429,
        headers=headers.fields(decision),
    )


urlpatterns = [path("admin/", admin.site.urls), path("search/", search)]
