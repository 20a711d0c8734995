"""A site that tells callers their limits, and limits them in every way."""

from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.authentication import TokenAuthentication
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.throttling import BaseThrottle
from rest_framework.viewsets import ViewSet

from django_slidinglimit.api import OwnLimits
from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.throttling import (
    AnonRateThrottle,
    RuleThrottle,
    ScopedRateThrottle,
    UserRateThrottle,
)
from tests.admin_site import favicon


class Burst(UserRateThrottle):
    scope = "burst"
    rate = "6/min"


class Visitors(AnonRateThrottle):
    rate = "50/h"


class Scoped(ScopedRateThrottle):
    THROTTLE_RATES = {"files": "30/min", "files.write": "2/min", "notes": "4/min", "tags": "3/min"}  # noqa: RUF012


class Files(ViewSet):
    authentication_classes = (TokenAuthentication,)
    permission_classes = (AllowAny,)
    throttle_classes: Any = (Burst, Visitors, Scoped, RuleThrottle)
    throttle_scope = "files"

    def get_throttles(self) -> list[BaseThrottle]:
        if self.action == "create":
            self.throttle_scope = "files.write"
        return super().get_throttles()

    def list(self, request: Request) -> Response:
        return Response([])

    create = list  # noqa: A003


class Notes(Files):
    throttle_classes = (Scoped,)
    throttle_scope = "notes"


class Tags(Notes):
    throttle_scope = "tags"


class PerName(UserRateThrottle):
    """Counts by what stands in the body."""

    scope = "name"
    rate = "9/min"

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        return request.data.get("username")  # type: ignore[no-any-return]


class Names(Files):
    throttle_classes = (PerName,)


class PerBranch(UserRateThrottle):
    """Cannot be asked without an address's own parts."""

    scope = "branch"
    rate = "9/min"

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        return str(view.kwargs["branch"])


class Branches(Files):
    throttle_classes = (PerBranch,)


class WithToken(OwnLimits):
    authentication_classes = (TokenAuthentication,)


@ratelimit("report", key="ip", rate="5/min")
def report(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


@ratelimit("report", key="ip", rate="3/min")
def short_report(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


@ratelimit("soft", key="ip", rate="5/min", block=False)
@ratelimit("login", key="post:username", rate="5/min", method="POST")
@ratelimit("keyed", key="header:X-API-Key", rate="5/min", cost=lambda group, request: 1 // 0)
def login(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


@ratelimit("plan", key="ip", rate=lambda group, request: "7/min" if request.user.pk else "4/min")
def plan(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


def sent(group: str, request: HttpRequest) -> str:
    return request.body.decode()


@ratelimit("sent", key=sent, rate="10/min")
@ratelimit("export", key="ip", rate="10/min")
def export(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


@ratelimit("free", key="ip")
def free(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


class Forms(View):
    @method_decorator(ratelimit("forms", key="ip", rate="8/min"))
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")


def sign_in(request: HttpRequest) -> HttpResponse:
    return HttpResponse("sign in" if isinstance(request.user, AnonymousUser) else "signed in")


router = SimpleRouter()
router.register("files", Files, basename="files")
router.register("folders", Files, basename="folders")
router.register("notes", Notes, basename="notes")
router.register("tags", Tags, basename="tags")
router.register("names", Names, basename="names")

urlpatterns = [
    path("limits/", include("django_slidinglimit.urls")),
    path("limits/token/", WithToken.as_view()),
    path("api/", include(router.urls)),
    path("api/<slug:branch>/branches/", Branches.as_view({"get": "list"})),
    path("report/", report),
    path("report/short/", short_report),
    path("login/", login),
    path("plan/", plan),
    path("export/", export),
    path("free/", free),
    path("forms/", Forms.as_view()),
    path("accounts/login/", sign_in),
    path("favicon.ico", favicon),
]
