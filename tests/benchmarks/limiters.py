"""The other limiters, each as its own documentation has it set up, on the same server.

They are no dependency of the tests; the extra `bench` installs them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from rest_framework.throttling import AnonRateThrottle

from . import views
from .comparison import address

if TYPE_CHECKING:
    from collections.abc import Callable

    from .views import View


class Peer(NamedTuple):
    """Another limiter.

    Args:
        name: what it is called in the table.
        module: what must be installed.
        over: what its cost is measured over, of `views.UNLIMITED`.
        limited: makes the view that lets so many requests an hour of an address pass.
    """

    name: str
    module: str
    over: str
    limited: Callable[[int], View]

    @property
    def installed(self) -> bool:
        return find_spec(self.module) is not None


def rest_framework(limit: int) -> View:
    """DRF's AnonRateThrottle on the project's cache: a list of times a client."""
    view: View = views.throttled(views.throttle(AnonRateThrottle, limit))
    return view


def django_ratelimit(limit: int) -> View:
    """A fixed window on the project's cache; a refusal is an exception, as the handler gets it."""
    refused: Any = import_module("django_ratelimit.exceptions").Ratelimited
    ratelimit: Any = import_module("django_ratelimit.decorators").ratelimit
    view = ratelimit(key="ip", rate=f"{limit}/h")(views.bare)

    def answered(request: Any) -> object:
        try:
            return view(request)
        except refused:
            return None

    return answered


def django_smart_ratelimit(limit: int) -> View:
    """Its decorator with its default algorithm: a sorted set of times a client."""
    settings.RATELIMIT_BACKEND = "redis"
    settings.RATELIMIT_REDIS = {"url": address()}
    ratelimit: Any = import_module("django_smart_ratelimit").ratelimit
    view: View = ratelimit(key="ip", rate=f"{limit}/h")(views.bare)
    return view


def limits(limit: int) -> View:
    """`hit` of its sliding window counter."""
    package: Any = import_module("limits")
    storage = import_module("limits.storage").RedisStorage(address())
    limiter = import_module("limits.strategies").SlidingWindowCounterRateLimiter(storage)
    rate = package.RateLimitItemPerHour(limit)
    return lambda request: limiter.hit(rate, request.META["REMOTE_ADDR"])


def throttled(limit: int) -> View:
    """`limit` of its sliding window."""
    package: Any = import_module("throttled")
    store = import_module("throttled.store").RedisStore(server=address())
    quota = package.per_hour(limit)
    throttle = package.Throttled(using="sliding_window", quota=quota, store=store)
    return lambda request: throttle.limit(request.META["REMOTE_ADDR"])


THEIR_THROTTLE = Peer(
    "REST framework's own throttle", "rest_framework", "the unthrottled view", rest_framework
)
THEIR_HIT = Peer("limits, hit()", "limits", "nothing", limits)
PEERS = (
    THEIR_THROTTLE,
    Peer("django-ratelimit", "django_ratelimit", "the bare view", django_ratelimit),
    Peer(
        "django-smart-ratelimit",
        "django_smart_ratelimit",
        "the bare view",
        django_smart_ratelimit,
    ),
    THEIR_HIT,
    Peer("throttled-py, limit()", "throttled", "nothing", throttled),
)
