"""A site whose URLs lead to limits of every sort."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from rest_framework.decorators import action, api_view, throttle_classes
from rest_framework.request import Request  # noqa: TC002
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.throttling import BaseThrottle
from rest_framework.throttling import UserRateThrottle as TheirOwn
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.throttling import RuleThrottle, ScopedRateThrottle, UserRateThrottle


class Burst(UserRateThrottle):
    scope = "site.burst"
    rate = "3/min"


class Theirs(TheirOwn):
    scope = "site.theirs"
    rate = "3/min"


class Nameless(UserRateThrottle):
    scope = None
    rate = "4/min"


class Scoped(ScopedRateThrottle):
    THROTTLE_RATES = {  # noqa: RUF012
        "site.list": "30/min",
        "site.upload": "2/min",
        "site.write": "1/min",
        "site.later": None,
    }


class Files(ViewSet):
    throttle_classes: Any = (Scoped, RuleThrottle)
    throttle_scope: str | None = "site.list"

    def get_throttles(self) -> list[BaseThrottle]:
        if self.action == "create":
            self.throttle_scope = "site.write"
        return super().get_throttles()

    def list(self, request: Request, branch: str) -> Response:
        return Response([])

    create = list  # noqa: A003

    @action(methods=["post"], detail=False, throttle_scope="site.upload")
    def upload(self, request: Request, branch: str) -> Response:
        return Response(status=201)

    @action(detail=False, throttle_scope="site.later", throttle_classes=[Burst, Scoped])
    def later(self, request: Request, branch: str) -> Response:
        return Response([])

    @method_decorator(ratelimit("site.action", rate="6/min"))
    @action(detail=False, throttle_classes=[])
    def decorated(self, request: Request, branch: str) -> Response:
        return Response([])


class Plain(APIView):
    throttle_classes = (Nameless, Theirs)

    def get(self, request: Request, branch: str) -> Response:
        return Response([])


class Ruled(APIView):
    throttle_classes = (RuleThrottle,)

    def get(self, request: Request, branch: str, pk: int) -> Response:
        return Response(pk)

    post = get


@api_view(["GET"])
@throttle_classes([Burst])
@ratelimit("site.function", key="ip", rate="5/min", method="GET")
def function(request: Request, branch: str) -> Response:
    return Response([])


@never_cache
@ratelimit("site.login", key="ip", rate="5/min", method="POST")
@never_cache
@ratelimit("site.login.soft", rate=lambda group, request: "9/min", block=False)
def login(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


@ratelimit()
def bare(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


@method_decorator(
    [ratelimit("site.class", rate="5/min"), ratelimit("site.class", rate="50/day")], name="dispatch"
)
class Reports(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")

    @method_decorator(ratelimit(key="ip", rate="7/min"))
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("fine")


router = SimpleRouter()
router.register("files", Files, basename="files")

api: list[Any] = [
    path("", include(router.urls)),
    path("plain/", Plain.as_view(), name="plain"),
    path("ruled/<int:pk>/", Ruled.as_view(), name="ruled"),
    path("function/", function),
]
urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/<slug:branch>/", include((api, "api"))),
    path("login/", login, name="login"),
    path("bare/", bare),
    path("reports/", Reports.as_view(), name="reports"),
    path("given/", ratelimit("site.given", rate="8/min")(Reports.as_view())),
]
