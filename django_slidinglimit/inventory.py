"""Where the site's views limit requests: found once, by a survey of its URLs, and kept.

What only a call of `limiter.check` asks is not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib.auth.models import AnonymousUser
from django.core.signals import setting_changed
from django.http import HttpRequest
from django.urls import ResolverMatch

from . import endpoints
from .paths import PathPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from .decorators import Limit
    from .endpoints import Endpoint
    from .places import Place

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")  # HEAD is counted as GET is

# What begins that part of a route which stands for many paths, in path() and in re_path().
_OPEN = re.compile(r"[<(\[\\.?*+{|]")


class Way(NamedTuple):
    """A route to a view.

    Args:
        beginning: the plain text that all its paths begin with.
        open: whether anything follows.
        name: the view's name.
    """

    beginning: str
    open: bool
    name: str

    @classmethod
    def to(cls, endpoint: Endpoint) -> Way:
        route = endpoint.route.replace("^", "").replace("$", "").replace(r"\Z", "")
        found = _OPEN.search(route)
        return cls(route[: found.start()] if found else route, found is not None, endpoint.name)

    def may_match(self, pattern: PathPattern) -> bool:
        """Whether a path of this route may match a pattern: not if their beginnings differ."""
        if pattern.view is not None:
            return pattern.view == self.name
        text = pattern.text.removeprefix("/")
        beginning = re.split("[<*]", text, maxsplit=1)[0]
        if self.open and beginning.startswith(self.beginning):
            return True
        if beginning != text and self.beginning.startswith(beginning):
            return True
        return beginning == self.beginning


@dataclass(frozen=True, eq=False)
class Source:
    """What asks about requests of one method, on one view or on many alike.

    Args:
        name: what it is, in words.
        method: the requests' method.
        places: a request -> what it asks of it, as far as the caller is concerned; raises whatever
            the project's own code raises.
        ways: the routes by which it is reached.
    """

    name: str
    method: str
    places: Callable[[Any], list[Place]]
    ways: tuple[Way, ...] = ()


@lru_cache(maxsize=1)
def sources() -> tuple[Source, ...]:
    """All that asks about requests; importing the views is part of finding it.

    Views whose throttles are of the same classes and scopes are one source, asked by the first.
    """
    limits: dict[tuple[Limit, str], None] = {}
    views: dict[tuple[Hashable, str], list[Endpoint]] = {}
    for endpoint in endpoints.endpoints():
        for method in _methods_of(endpoint.view):
            for limit in endpoints.limits(endpoint.view, method):
                if limit.counts(method):
                    limits[limit, method] = None
            for alike in _throttles(endpoint, method):
                views.setdefault((alike, method), []).append(endpoint)
    decorated = [
        Source(f"@ratelimit({limit.place.scope!r})", method, _asked_by_limit(limit))
        for limit, method in limits
    ]
    throttled = [
        Source(
            f"the throttles of {found[0]}",
            method,
            _asked_by_throttles(found[0]),
            tuple(dict.fromkeys(map(Way.to, found))),
        )
        for (_alike, method), found in views.items()
    ]
    return (*decorated, *throttled)


@lru_cache(maxsize=16_384)
def leads_to(source: Source, path: str) -> bool:
    """Whether requests that match a rule's path may get to a source."""
    pattern = PathPattern(path)
    return any(way.may_match(pattern) for way in source.ways)


def _methods_of(view: Any) -> Iterator[str]:
    owner = endpoints.class_of(view)
    handlers = {*(getattr(view, "actions", None) or {})}
    for method in METHODS:
        name = method.lower()
        if owner is None or name in handlers or hasattr(owner, name):
            yield method


def _asked_by_limit(limit: Limit) -> Callable[[Any], list[Place]]:
    # What a request costs may hang on what it holds; here nothing is charged.
    free = limit._replace(cost=None)
    return lambda request: [free.place_for(request)]


def _asked_by_throttles(endpoint: Endpoint) -> Callable[[Any], list[Place]]:
    match = ResolverMatch(endpoint.view, (), {})
    return lambda request: [place for _, place in endpoints.throttle_places(match, request)]


def _throttles(endpoint: Endpoint, method: str) -> Iterator[Hashable]:
    """What tells the throttles of a view from those of others, if it has any."""
    owner = endpoints.class_of(endpoint.view)
    if not hasattr(owner, "throttle_classes"):
        return
    chosen = owner.get_throttles
    request: Any = HttpRequest()
    request.method = method
    request.user = request._force_auth_user = AnonymousUser()  # REST framework's takes the latter
    try:
        view = endpoints.throttled_view(ResolverMatch(endpoint.view, (), {}), request)
        kinds = [type(throttle) for throttle in view.get_throttles()]
    except Exception:  # it may need a real request, or more of one
        yield endpoint
        return
    scopes = [getattr(view, kind.scope_attr, None) for kind in kinds if hasattr(kind, "scope_attr")]
    if kinds or chosen.__qualname__ != "APIView.get_throttles":
        yield (chosen, *kinds, *scopes)


def _forget(*, setting: str, **_: object) -> None:
    if setting in ("ROOT_URLCONF", "REST_FRAMEWORK", "SLIDINGLIMIT", "INSTALLED_APPS"):
        sources.cache_clear()
        leads_to.cache_clear()


setting_changed.connect(_forget)
