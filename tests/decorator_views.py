"""Views under `ratelimit`, and their addresses."""

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from rest_framework.decorators import action, api_view, throttle_classes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_slidinglimit import limiter
from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.throttling import UserRateThrottle

soft = ratelimit("soft", rate="3/min", block=False)
hard = ratelimit("hard", rate="10/min")


def foreign(view: Callable[..., Any]) -> Callable[..., Any]:
    """Somebody else's decorator; functools.wraps copies our attributes to its wrapper."""

    @wraps(view)
    def between(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return view(request, *args, **kwargs)

    return between


def told(request: Any) -> HttpResponse:
    return HttpResponse(f"limited={request.limited} allowed={request.ratelimit.allowed}")


@ratelimit("plain", rate="2/min")
def plain(request: HttpRequest) -> HttpResponse:
    return told(request)


@ratelimit(rate="1/min")
def unnamed(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit(rate="1/min")
def unnamed_too(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@soft
@hard
def soft_over_hard(request: HttpRequest) -> HttpResponse:
    return told(request)


@soft
@foreign
@hard
def soft_apart_from_hard(request: HttpRequest) -> HttpResponse:
    return told(request)


@ratelimit("many", rate="9/day")
@foreign
@ratelimit("few", rate="2/min")
def many_apart_from_few(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit("burst", rate="2/min")
@ratelimit("burst", rate="5/day")
@ratelimit("ip", key="ip", rate="50/min")
@ratelimit("agent", key="header:user-agent", rate="50/min")
def four(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit("raises", rate="2/min")
def raises(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("the view's own")


@ratelimit("options", rate="1/min")
def options_free(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit("options named", rate="1/min", method="options, get")
def options_counted(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit("posts", rate="1/min", method=["post", "Put"])
def posts(request: HttpRequest) -> HttpResponse:
    return told(request)


@ratelimit(
    "callables",
    rate=lambda group, request: request.GET.get("rate"),
    cost=lambda group, request: int(request.GET["cost"]),
)
def callables(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit("rubbish", rate=lambda group, request: 5)  # type: ignore[arg-type, return-value]
def rubbish_rate(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit("rubbish", rate="5/m", cost=lambda group, request: "5")  # type: ignore[arg-type, return-value]
def rubbish_cost(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit("nothing", rate="0/min")
def nothing(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit("dear", rate="5/min", cost=6)
def dear(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit("until a rule")
def until_a_rule(request: HttpRequest) -> HttpResponse:
    return told(request)


@ratelimit("until a rule", block=False)
def soft_until_a_rule(request: HttpRequest) -> HttpResponse:
    return told(request)


@ratelimit("streamed", rate="1/min")
def streamed(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(iter(["a", "b"]))


@ratelimit("exempt", rate="9/min")
@csrf_exempt
def exempt(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit("checked", rate="4/min")
def checked(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class ChecksFirst:
    """A middleware that opens the walk and asks what the view's decorator will ask."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with limiter.walk(request):
            limiter.check(request, "checked", rate="4/min")
            return self.get_response(request)


def key_of_project(group: str, request: HttpRequest) -> str | None:
    return request.GET.get("who")


@ratelimit("own key", key="tests.decorator_views.key_of_project", rate="1/min")
def own_key(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class OnMethod(View):
    @method_decorator(ratelimit("on method", rate="2/min"))
    def get(self, request: HttpRequest, *, pk: int) -> HttpResponse:
        return told(request)

    def post(self, request: HttpRequest, *, pk: int) -> HttpResponse:
        return HttpResponse()


@method_decorator([soft, hard], name="dispatch")
class InAList(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return told(request)


@method_decorator(ratelimit(rate="1/min"), name="dispatch")
class Parent(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class Child(Parent):
    pass


class Misused(View):
    @ratelimit("misused", rate="2/min")
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class Plain(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class PlainToo(Plain):
    pass


@ratelimit("async", rate="5/min")
async def async_view(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(0)
    return told(request)


@soft
@hard
async def async_soft_over_hard(request: HttpRequest) -> HttpResponse:
    return told(request)


@ratelimit("async user", key="user", rate="1/min")
async def async_user(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@ratelimit("async raises", rate="1/min")
async def async_raises(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("the view's own")


@method_decorator(ratelimit("async class", rate="2/min"), name="dispatch")
class AsyncClass(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        return told(request)


@method_decorator([foreign, ratelimit("async class", rate="2/min"), foreign], name="dispatch")
class AsyncClassBetween(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return told(request)


def answers(view: Callable[..., Any]) -> Callable[..., Any]:
    """A plain decorator that answers itself, as login_required does."""

    @wraps(view)
    def instead(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse("instead")

    return instead


@method_decorator([ratelimit("async answered", rate="1/min"), answers], name="dispatch")
class AsyncClassAnswered(AsyncClass):
    pass


class AsyncMethod(View):
    @method_decorator(ratelimit("async method", rate="2/min"))
    async def get(self, request: HttpRequest) -> HttpResponse:
        return told(request)


def drf_told(request: Request) -> Response:
    inner = request._request
    for asked in (request, inner):
        assert vars(asked)["ratelimit"] is inner.ratelimit  # type: ignore[attr-defined]
    return Response({"limited": [vars(request)["limited"], vars(inner)["limited"]]})


@api_view(["GET"])
@ratelimit("drf", rate="2/min")
def drf_inside(request: Request) -> Response:
    return drf_told(request)


@api_view(["GET"])
@ratelimit("drf soft", rate="2/min", block=False)
def drf_soft(request: Request) -> Response:
    return drf_told(request)


@ratelimit(rate="1/min")
@api_view(["GET"])
def drf_outside(request: Request) -> Response:
    return Response()


@ratelimit(rate="1/min")
@api_view(["GET"])
def drf_outside_too(request: Request) -> Response:
    return Response()


class TwoADay(UserRateThrottle):
    scope = "throttle"
    rate = "2/day"


@ratelimit("around", rate="9/day")
@api_view(["GET"])
@throttle_classes([TwoADay])
def drf_throttled(request: Request) -> Response:
    return Response()


@api_view(["GET"])
@throttle_classes([TwoADay])
@ratelimit("within", rate="1/day")
def drf_throttled_around(request: Request) -> Response:
    return Response()


class Views(ViewSet):
    @method_decorator(ratelimit(rate="2/min"))
    def list(self, request: Request) -> Response:
        return drf_told(request)

    @action(detail=False)
    @method_decorator(ratelimit(rate="2/min"))
    def extra(self, request: Request) -> Response:
        return drf_told(request)


@method_decorator(ratelimit("drf dispatch", rate="1/min"), name="dispatch")
class DispatchedAPI(APIView):
    def get(self, request: Request) -> Response:
        # Django's request was told; DRF's passes the look-up on.
        return Response({"limited": request.limited})  # type: ignore[attr-defined]


urlpatterns = [
    path("plain/", plain),
    path("unnamed/", unnamed),
    path("unnamed-too/", unnamed_too),
    path("soft-over-hard/", soft_over_hard),
    path("soft-apart-from-hard/", soft_apart_from_hard),
    path("many-apart-from-few/", many_apart_from_few),
    path("four/", four),
    path("raises/", raises),
    path("options-free/", options_free),
    path("options-counted/", options_counted),
    path("posts/", posts),
    path("callables/", callables),
    path("rubbish-rate/", rubbish_rate),
    path("rubbish-cost/", rubbish_cost),
    path("nothing/", nothing),
    path("dear/", dear),
    path("until-a-rule/", until_a_rule),
    path("soft-until-a-rule/", soft_until_a_rule),
    path("streamed/", streamed),
    path("exempt/", exempt),
    path("checked/", checked),
    path("own-key/", own_key),
    path("on-method/<int:pk>/", OnMethod.as_view()),
    path("in-a-list/", InAList.as_view()),
    path("parent/", Parent.as_view()),
    path("child/", Child.as_view()),
    path("misused/", Misused.as_view()),
    path("class/", ratelimit(rate="1/min")(Plain.as_view())),
    path("class-too/", ratelimit(rate="1/min")(PlainToo.as_view())),
    path("async/", async_view),
    path("async-soft-over-hard/", async_soft_over_hard),
    path("async-user/", async_user),
    path("async-class/", AsyncClass.as_view()),
    path("async-class-between/", AsyncClassBetween.as_view()),
    path("async-class-answered/", AsyncClassAnswered.as_view()),
    path("async-class-in-urls/", ratelimit("async urls", rate="2/min")(AsyncMethod.as_view())),
    path("async-method/", AsyncMethod.as_view()),
    path("drf-inside/", drf_inside),
    path("drf-soft/", drf_soft),
    path("drf-outside/", drf_outside),
    path("drf-outside-too/", drf_outside_too),
    path("drf-throttled/", drf_throttled),
    path("drf-throttled-around/", drf_throttled_around),
    path("drf-list/", Views.as_view({"get": "list"})),
    path("drf-extra/", Views.as_view({"get": "extra"})),
    path("drf-dispatch/", DispatchedAPI.as_view()),
]
