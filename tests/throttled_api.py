"""An API whose views are throttled, as a project would write it, and ways to ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import AnonymousUser, User
from django.http import Http404
from django.urls import path
from rest_framework.decorators import action, api_view, throttle_classes
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.test import APIRequestFactory, force_authenticate
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_slidinglimit.core.redis import TAKE
from django_slidinglimit.models import Rule
from django_slidinglimit.throttling import (
    AnonRateThrottle,
    RuleThrottle,
    ScopedRateThrottle,
    UserRateThrottle,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from redis import Redis

    View: TypeAlias = Callable[..., Response]

ALICE, BOB = User(pk=42, username="alice"), User(pk=43, username="bob")


class Burst(UserRateThrottle):
    scope = "burst"
    rate = "3/min"


class ButStaff(Burst):
    """Exempts some."""

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        return None if request.user.is_staff else super().get_cache_key(request, view)


class Sustained(UserRateThrottle):
    scope = "sustained"
    rate = "100/day"


class Anonymous(AnonRateThrottle):
    rate = "50/hour"


class Scoped(ScopedRateThrottle):
    THROTTLE_RATES = {"search": "30/min", "upload": "2/min", "later": None}  # noqa: RUF012


class Stranger(BaseThrottle):
    """A throttle of somebody else's; `answer` and `wait_s` are the test's to set."""

    answer = True
    wait_s: float | None = None
    asked = 0

    def allow_request(self, request: Request, view: APIView) -> bool:
        type(self).asked += 1
        return self.answer

    def wait(self) -> float | None:
        return self.wait_s


class Answers(APIView):
    """A view that answers as it is asked to."""

    def get(self, request: Request, answer: str = "") -> Response:
        match answer:
            case "bad":
                raise ParseError
            case "missing":
                raise Http404
        return Response("fine")

    post = get


class Limited(Answers):
    throttle_classes = [Burst]  # noqa: RUF012


class Four(Answers):
    throttle_classes = [Burst, Sustained, Anonymous, Scoped]  # noqa: RUF012
    throttle_scope = "search"


class ByRules(Answers):
    throttle_classes = [RuleThrottle]  # noqa: RUF012


class Files(ViewSet):
    throttle_classes = [Scoped]  # noqa: RUF012
    throttle_scope = "search"

    def list(self, request: Request) -> Response:
        return Response([])

    @action(methods=["post"], detail=False, throttle_scope="upload")
    def upload(self, request: Request) -> Response:
        return Response(status=201)

    @action(detail=False, throttle_scope=None)
    def free(self, request: Request) -> Response:
        return Response("free")


def scoped(view: Any, scope: str) -> Any:
    """A function view in a scope, in the way that every DRF knows."""
    view = api_view(["GET"])(throttle_classes([Scoped])(view))
    view.cls.throttle_scope = scope
    return view


router = SimpleRouter()
router.register("files", Files, basename="files")

urlpatterns = [
    path("limited/", Limited.as_view()),
    path("limited/<str:answer>/", Limited.as_view()),
    path("four/", Four.as_view()),
    path("rules/", ByRules.as_view()),
    path("rules/<str:answer>/", ByRules.as_view()),
    *router.urls,
]


def view_of(*throttles: type, **attributes: Any) -> View:
    """A view behind throttles."""
    kind: Any = type("View", (Answers,), {"throttle_classes": throttles, **attributes})
    view: View = kind.as_view()
    return view


def call(view: View, *, user: User | None = None, method: str = "GET", **meta: Any) -> Response:
    """One request; `meta` are WSGI variables such as REMOTE_ADDR."""
    request = APIRequestFactory().generic(method, "/", **meta)
    if user is not None:
        force_authenticate(request, user)
    return view(request)


def ask(view: View, times: int = 1, **kwargs: Any) -> list[int]:
    """The status codes of so many requests."""
    return [call(view, **kwargs).status_code for _ in range(times)]


def drf_request(user: Any = None, **meta: Any) -> Request:
    request = Request(APIRequestFactory().get("/", **meta))
    request.user = AnonymousUser() if user is None else user
    return request


def counted(response: Response) -> list[tuple[str, str]]:
    """The limits that a response names, with what remains of each."""
    if "RateLimit" not in response:
        return []
    entries = (entry.split(";") for entry in response["RateLimit"].split(", "))
    return [(entry[0].strip('"'), entry[1].removeprefix("r=")) for entry in entries]


def rule(scope: str = "", rate: str = "1/min", **fields: Any) -> Rule:
    return Rule.objects.create(name=fields.pop("name", "rule"), scope=scope, rate=rate, **fields)


def commands(redis_client: Redis, ask: Callable[[], object]) -> int:
    """How many deciding commands Redis is sent while something is asked."""
    redis_client.script_load(TAKE.source)
    redis_client.config_resetstat()
    ask()
    stats: dict[str, dict[str, int]] = redis_client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))
