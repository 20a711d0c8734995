"""What throttles and views say of themselves, without a request. Needs REST framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.core.checks import CheckMessage
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from django.urls import get_resolver
from django.utils.module_loading import import_string
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from .rounds import path_of
from .throttling import RuleThrottle, ScopedRateThrottle, SimpleRateThrottle

if TYPE_CHECKING:
    from collections.abc import Iterator


class Throttled(NamedTuple):
    """A throttle of a view.

    Args:
        throttle: its class's dotted path.
        scope: the scope that rules reach it by; "" if they do not.
        limited: whether the code sets a rate.
        problem: why it would raise at each request; "" if it would not.
    """

    throttle: str
    scope: str
    limited: bool
    problem: str = ""


def throttles_of(view: Any) -> Iterator[Throttled]:
    """The throttles that a view made by as_view() names; its own `get_throttles` is not asked."""
    kinds = _kinds(view)
    left_to = {
        kind.scope_attr
        for kind in kinds
        if hasattr(kind, "scope_attr") and not issubclass(kind, RuleThrottle)
    }
    for kind in kinds:
        attribute = getattr(kind, "scope_attr", None)
        if attribute is None:
            if issubclass(kind, SimpleRateThrottle):
                yield _without_request(kind, None)
        elif not (issubclass(kind, RuleThrottle) and attribute in left_to):
            scope = _given(view, attribute)
            if scope:
                yield _without_request(kind, scope)


def default_throttles() -> Iterator[Throttled]:
    """Those of DEFAULT_THROTTLE_CLASSES that have a scope of their own."""
    for path in _setting("DEFAULT_THROTTLE_CLASSES"):
        kind = import_string(path) if isinstance(path, str) else path
        if issubclass(kind, SimpleRateThrottle) and not hasattr(kind, "scope_attr"):
            yield _without_request(kind, None)


def declared() -> Iterator[tuple[str, bool]]:
    """The scopes that DEFAULT_THROTTLE_RATES declares, and whether with a rate."""
    rates = _setting("DEFAULT_THROTTLE_RATES")
    yield from ((scope, rate is not None) for scope, rate in dict(rates).items())


def unread_scope(view: Any) -> str:
    """The `throttle_scope` of a view none of whose throttles reads it; "" if one may."""
    own = getattr(getattr(view, "cls", None), "get_throttles", None)
    if getattr(own, "__qualname__", "") != "APIView.get_throttles":
        return ""
    if any(hasattr(kind, "scope_attr") for kind in _kinds(view)):
        return ""
    return _given(view, ScopedRateThrottle.scope_attr) or ""


def _kinds(view: Any) -> list[type[Any]]:
    return [kind for kind in _given(view, "throttle_classes") or () if isinstance(kind, type)]


def _setting(name: str) -> Any:
    """What the project itself has set: REST framework's own defaults declare scopes, too."""
    return getattr(settings, "REST_FRAMEWORK", {}).get(name) or ()


def _given(view: Any, name: str) -> Any:
    """What as_view() was given, or else the class has; None where view is none of DRF's."""
    given = getattr(view, "initkwargs", {})
    return given[name] if name in given else getattr(getattr(view, "cls", None), name, None)


def _without_request(kind: type[Any], scope: str | None) -> Throttled:
    """What becomes of a throttle when REST framework makes one for a request.

    Args:
        kind: its class.
        scope: the view's scope, for a throttle that reads it there.
    """
    name = scope or getattr(kind, "scope", None) or path_of(kind)
    # Rules do not reach those of others.
    reached = name if issubclass(kind, SimpleRateThrottle) else ""
    try:
        throttle = kind()
        if scope is not None:
            throttle.scope = scope
            throttle.rate = throttle.get_rate()
            throttle.parse_rate(throttle.rate)
    except ImproperlyConfigured as exc:
        return Throttled(path_of(kind), reached, True, str(exc))
    except Exception:  # it may need a request; if not, it tells when it is reached
        return Throttled(path_of(kind), reached, True)
    # A RuleThrottle needs the scope declared, and leaves its rate alone.
    limited = throttle.rate is not None and not issubclass(kind, RuleThrottle)
    return Throttled(path_of(kind), reached, limited)


_WITHOUT_MEANING = {
    "timer": "Redis tells the time. Remove it.",
    "cache": 'Counters are kept in the cache that SLIDINGLIMIT["CACHE"] names. Remove it.',
    "history": "No list of requests is kept. Remove it; `decision` says what was decided and why.",
}


def check_throttles(app_configs: object, **kwargs: object) -> list[CheckMessage]:  # noqa: ARG001
    """Warn of subclasses that set what has a meaning only in DRF's own throttles."""
    if getattr(settings, "ROOT_URLCONF", None):
        _ = get_resolver().url_patterns  # imports the views, and with them their throttles
    _ = api_settings.DEFAULT_THROTTLE_CLASSES  # imports them, too
    return [
        CheckWarning(
            f"{path_of(throttle)} sets `{name}`, which has no meaning "
            "for throttles of django_slidinglimit.",
            hint=hint,
            obj=throttle,
            id="slidinglimit.W030",
        )
        for throttle in _subclasses(SimpleRateThrottle)
        for name, hint in _WITHOUT_MEANING.items()
        if hasattr(throttle, name)
        # Told once, of the class that brings it in.
        and not any(
            hasattr(base, name) for base in throttle.__bases__ if issubclass(base, BaseThrottle)
        )
    ]


def _subclasses(throttle: type[SimpleRateThrottle]) -> Iterator[type[SimpleRateThrottle]]:
    for subclass in throttle.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
