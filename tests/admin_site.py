"""A small site under a strict Content-Security-Policy, for the tests of the admin's pages."""

from collections.abc import Callable

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_slidinglimit import headers, limiter, refusal

CSP = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"


def strict(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[..., HttpResponse]:
    """Middleware that allows nothing inline and nothing from elsewhere."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Content-Security-Policy"] = CSP
        return response

    return middleware


def search(request: HttpRequest) -> HttpResponse:
    """A view that is limited to 10 an hour by address."""
    decision = limiter.check(request, "search", key="ip", rate="10/h")
    response = HttpResponse() if decision.allowed else refusal.response(request, decision)
    for name, value in headers.fields(decision).items():
        response[name] = value
    return response


def favicon(request: HttpRequest) -> HttpResponse:
    """Browsers ask for it on their own."""
    return HttpResponse(status=204)


urlpatterns = [
    path("admin/", admin.site.urls),
    path("search/", search),
    path("favicon.ico", favicon),
]
