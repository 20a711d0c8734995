"""The views that are measured, and the clients that visit them, each with a new request."""

from __future__ import annotations

from copy import copy
from itertools import cycle
from typing import TYPE_CHECKING, Any

from django.http import HttpResponse
from django.test import RequestFactory
from rest_framework.response import Response
from rest_framework.views import APIView

from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.throttling import AnonRateThrottle

from . import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.http import HttpRequest

    from .figures import Sizes

    View = Callable[[HttpRequest], object]

# Windows of the rules of one view, in minutes; no two alike, so that each rule is a counter.
WINDOWS = (60, 1, 5, 10, 15, 20, 30, 120, 180, 240)
# In each of them: what is never reached, and what the first request uses up.
MANY, ONE = 1_000_000, 1
# Clients that take turns; one of many requests would be slow where a list of them is kept.
CLIENTS = 1_000
# The first of those that shall be refused: some limiters count a client of two views as one.
FIRST_REFUSED = 5_000_000


def nothing(request: HttpRequest) -> None:
    """What costs no more than the request."""


def bare(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


async def async_bare(request: HttpRequest) -> HttpResponse:
    return HttpResponse("fine")


def limited(view: Any, limit: int = MANY, rules: int = 1) -> Any:
    """A view behind some decorators that stand on one another.

    Args:
        view: a function, `async def` or not.
        limit: requests in each window.
        rules: how many, each with another window.
    """
    for minutes in WINDOWS[:rules]:
        view = ratelimit(f"decorator-{limit}", key="ip", rate=f"{limit}/{minutes}m")(view)
    return view


class Api(APIView):
    """What is not throttled; authentication and permissions are not what is measured."""

    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()

    def get(self, request: object) -> Response:
        return Response("fine")


def throttled(*throttles: type) -> Any:
    """The same behind throttles."""
    kind: Any = type("Throttled", (Api,), {"throttle_classes": throttles})
    return kind.as_view()


def throttle(base: Any = AnonRateThrottle, limit: int = MANY) -> type:
    """A throttle by address, ours or REST framework's own."""
    return type("Throttle", (base,), {"scope": f"throttle-{limit}", "rate": f"{limit}/hour"})


def visits(view: View, clients: Iterable[int] = ()) -> Callable[[], object]:
    """Calls a view with a new request of the next client; by default, of `CLIENTS` in turn."""
    addresses = map(rows.address, clients or cycle(range(CLIENTS)))
    request = RequestFactory().get(rows.PATH)

    def once() -> object:
        mine = copy(request)
        mine.META["REMOTE_ADDR"] = next(addresses)
        return view(mine)

    return once


def second_visits(view: View, sizes: Sizes) -> Callable[[], object]:
    """As many visits as are timed, of clients that have been there once before.

    Under a limit of one request all are refused, and none by what a process may remember of an
    earlier refusal.
    """
    clients = range(FIRST_REFUSED, FIRST_REFUSED + sizes.rounds * sizes.calls + 1)
    first = visits(view, clients)
    for _ in clients:
        first()
    return visits(view, clients)


API = Api.as_view()
# What limits are measured over, by name.
UNLIMITED: dict[str, View] = {
    "the bare view": bare,
    "the unthrottled view": API,
    "nothing": nothing,
}
