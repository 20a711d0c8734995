"""Where the site's views limit requests: found once, by a survey of its URLs, and kept.

What only a call of `limiter.check` asks is not known.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib.auth.models import AnonymousUser
from django.core.signals import setting_changed
from django.http import HttpRequest
from django.urls import ResolverMatch

from . import endpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from .decorators import Limit
    from .endpoints import Endpoint
    from .paths import PathPattern
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


@dataclass(frozen=True, eq=False)
class Source:
    """What asks about requests of one method, on one view or on many alike.

    Args:
        name: what it is, in words.
        method: the requests' method.
        places: a request -> what it asks of it, as far as the caller is concerned; raises whatever
            the project's own code raises.
        ways: the routes by which it is reached, if rules of paths may be heeded there.
    """

    name: str
    method: str
    places: Callable[[Any], list[Place]]
    ways: tuple[Way, ...] = ()


class Inventory:
    """All that asks about requests, for look-up by the path of a rule.

    Views whose throttles are of the same classes and scopes are one source, asked by the first.

    Attributes:
        sources: all of it.
        failing: what is known to raise, so that it is told of once.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources = tuple(sources)
        self.failing: set[str] = set()
        self._named: dict[str, list[Source]] = {}
        self._beginning: dict[str, list[tuple[bool, Source]]] = {}
        for source in self.sources:
            for way in source.ways:
                self._named.setdefault(way.name, []).append(source)
                self._beginning.setdefault(way.beginning, []).append((way.open, source))
        self._beginnings = sorted(self._beginning)

    def reached_by(self, pattern: PathPattern) -> Iterator[Source]:
        """The sources that requests which match a pattern may get to; some more than once.

        A path may match the pattern and a route unless their beginnings differ.
        """
        if pattern.view is not None:
            yield from self._named.get(pattern.view, ())
            return
        text = pattern.text.removeprefix("/")
        beginning = re.split("[<*]", text, maxsplit=1)[0]
        for end in range(len(beginning) + 1):
            for is_open, source in self._beginning.get(beginning[:end], ()):
                if is_open or end == len(beginning):
                    yield source
        if beginning == text:
            return
        for longer in self._beginnings[bisect_right(self._beginnings, beginning) :]:
            if not longer.startswith(beginning):
                return
            yield from (source for _, source in self._beginning[longer])


@lru_cache(maxsize=1)
def current() -> Inventory:
    """The site's inventory; importing the views is part of making it."""
    return Inventory(_survey())


@lru_cache(maxsize=16_384)
def reached_by(pattern: PathPattern) -> frozenset[Source]:
    """The sources that requests which match a rule's path may get to."""
    return frozenset(current().reached_by(pattern))


def _survey() -> Iterator[Source]:
    limits: dict[tuple[Limit, str], None] = {}
    views: dict[tuple[Hashable, str], list[Endpoint]] = {}
    for endpoint in endpoints.endpoints():
        for method in _methods_of(endpoint.view):
            for limit in endpoints.limits(endpoint.view, method):
                if limit.counts(method):
                    limits[limit, method] = None
            for alike in _throttles(endpoint, method):
                views.setdefault((alike, method), []).append(endpoint)
    for limit, method in limits:
        yield Source(f"@ratelimit({limit.place.scope!r})", method, _asked_by_limit(limit))
    for (_alike, method), found in views.items():
        yield Source(
            f"the throttles of {found[0]}",
            method,
            _asked_by_throttles(found[0]),
            tuple(dict.fromkeys(map(Way.to, found))),
        )


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
        current.cache_clear()
        reached_by.cache_clear()


setting_changed.connect(_forget)
