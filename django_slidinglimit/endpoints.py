"""The views that the site's URLs lead to, and the decorators' limits on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.urls import ResolverMatch, URLPattern, get_resolver

from . import decorators, viewnames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from django.urls import URLResolver

    from .decorators import Limit
    from .places import Place


class Endpoint(NamedTuple):
    """A view and the URL pattern that leads to it.

    Args:
        route: the pattern as it is written, with those of all includes before it.
        name: what `resolver_match.view_name` is when a request gets there.
        view: what answers.
    """

    route: str
    name: str
    view: Any

    def __str__(self) -> str:
        return viewnames.label(self.view)


def endpoints() -> Iterator[Endpoint]:
    """All that the URLs lead to; importing the views is part of it."""
    if getattr(settings, "ROOT_URLCONF", None):
        yield from _within(get_resolver().url_patterns, "", ())


def _within(
    patterns: Iterable[URLPattern | URLResolver], route: str, namespaces: tuple[str, ...]
) -> Iterator[Endpoint]:
    for entry in patterns:
        here = route + str(entry.pattern)
        if isinstance(entry, URLPattern):
            match = ResolverMatch(
                entry.callback, (), {}, url_name=entry.name, namespaces=list(namespaces)
            )
            yield Endpoint(here, match.view_name, entry.callback)
        else:
            inner = (*namespaces, entry.namespace) if entry.namespace else namespaces
            yield from _within(entry.url_patterns, here, inner)


def limits(view: Any, method: str | None = None) -> Iterator[Limit]:
    """The decorators' limits on a view: on a function, on `dispatch`, on the method that answers.

    What a decorator of somebody else's hides (one without functools.wraps) is not seen.

    Args:
        view: what a URL leads to.
        method: only the limits that a request of this method meets; None: all.
    """
    yield from decorators.limits_of(view)
    owner = class_of(view)
    if owner is None:
        return
    yield from decorators.limits_of_method(owner, "dispatch")
    methods = [method] if method else getattr(owner, "http_method_names", ())
    for name in dict.fromkeys(_handler(view, owner, each) for each in methods):
        yield from decorators.limits_of_method(owner, name)
        yield from decorators.limits_of(_behind_api_view(getattr(owner, name, None)))


def throttle_places(match: ResolverMatch, request: Any) -> list[tuple[str, Place]]:
    """What the throttles of a view ask of a request, if it is one of REST framework's.

    Returns:
        Places, each with the dotted path of its throttle.

    Raises:
        Whatever the view and its throttles raise.
    """
    made = throttled_view(match, request)
    if made is None:
        return []
    from . import rounds  # needs DRF

    return rounds.places_of(made.request, made)


def throttled_view(match: ResolverMatch, request: Any) -> Any:
    """A view as REST framework sets it up for a request; None if it is none of its.

    Raises:
        Whatever the view raises.
    """
    owner, view = class_of(match.func), match.func
    if not hasattr(owner, "throttle_classes"):
        return None
    made = owner(**getattr(view, "initkwargs", {}))
    if actions := dict(getattr(view, "actions", None) or {}):
        if "get" in actions:
            actions.setdefault("head", actions["get"])
        made.action_map = actions
        for method, action in actions.items():
            setattr(made, method, getattr(made, action))
    made.setup(request, *match.args, **match.kwargs)
    made.headers = {}
    made.request = made.initialize_request(request, *match.args, **match.kwargs)
    return made


def class_of(view: Any) -> Any:
    """The class whose as_view() made a view, if one did."""
    return getattr(view, "view_class", None) or getattr(view, "cls", None)


def _handler(view: Any, owner: Any, method: str) -> str:
    """The name of the method of a class that answers an HTTP method."""
    name = method.lower()
    if name == "head" and not hasattr(owner, name):
        name = "get"
    actions: dict[str, str] = getattr(view, "actions", None) or {}
    return actions.get(name, name)


def _behind_api_view(handler: Any) -> Any:
    """The function that REST framework's api_view has made a class of: it keeps it nowhere else."""
    if getattr(handler, "__module__", None) != "rest_framework.decorators":
        return None
    return dict(zip(handler.__code__.co_freevars, handler.__closure__ or (), strict=True))[
        "func"
    ].cell_contents
