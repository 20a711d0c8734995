"""`ratelimit`: limits for views that are functions, methods or coroutines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import cache, wraps
from inspect import isawaitable
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from weakref import ref

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from . import clients, conf, headers, limiter, refusal, viewnames
from .clients import Key
from .places import Place, methods_of, rate_of

if TYPE_CHECKING:
    from django.http import HttpResponse

    from .clients import KeyFunction
    from .core.rates import Rate
    from .limiter import Walk

View = TypeVar("View", bound=Callable[..., Any])
RateFunction = Callable[[str, Any], "str | Rate | None"]
CostFunction = Callable[[str, Any], int]

# Every scope that `ratelimit` has declared in this process so far. The dotted path of a class's
# method joins when the method is first called: before that its class is not known.
scopes: set[str] = set()
# The project's own keys that it has named in place of passing them, for the system check.
own_keys: set[str] = set()

# Where a wrapper keeps its _Mark.
_MARK = "_slidinglimit_mark"
# Where the function comes from that method_decorator tries decorators on, and never calls.
_DUMMY = "django.utils.decorators"
# It copies that function's attributes to the method: those that begin so hold the method's limits.
_LIMIT = "_slidinglimit_limit_"


def ratelimit(
    scope: str | None = None,
    *,
    key: str | KeyFunction | None = None,
    rate: str | Rate | RateFunction | None = None,
    group: str | None = None,
    method: str | Iterable[str] | None = None,
    block: bool = True,
    cost: int | CostFunction = 1,
) -> Callable[[View], View]:
    """Limit a view: a function, `async def` or not, or through method_decorator a method.

    Decorators that stand directly on one another are decided together, in one round trip: all
    count the request or none does. Others ask in turn, and what they counted is given back when a
    later one refuses. The view finds `request.limited` (a limit refuses, `block=False` included)
    and `request.ratelimit` (the decision so far). A refused request is answered with 429 and
    without the view; see `refusal.response`.

    Args:
        scope: the name of the place, for rules in the database; views of one scope share its
            limits. None: the view's dotted path.
        key: who is counted: ip, user, user_or_ip (the default), global, header:<name>, get:<name>,
            post:<name>, a name in SLIDINGLIMIT["KEYS"], a callable `(group, request)` or its
            dotted path, which is imported at the first request.
        rate: such as "100/min", or a callable `(group, request)` that returns one; None: no limit
            until a rule in the database sets one.
        group: another word for scope, django-ratelimit's.
        method: the methods that are counted, as a list or a text such as "POST, PUT". None: all
            but OPTIONS, which only a `method` that names it counts.
        block: False never refuses: it counts what it would admit and sets `request.limited`.
        cost: what a request uses, a whole number of 0 or more, or a callable `(group, request)`.

    Raises:
        ImproperlyConfigured: an argument is wrong; the message names the scope. (What callables
            return, and a key's dotted path, turn out wrong only when they are used.)
    """
    if callable(scope):
        raise ImproperlyConfigured("Write @ratelimit(...), with parentheses.")
    name = group if scope is None else scope
    with _blaming(name):
        if group is not None and group != name:
            raise ValueError(f"group is another word for scope, and says {group!r}.")
        if name is not None and (not isinstance(name, str) or not name):
            raise ValueError("a scope is a text.")
        place = Place(
            scope=name or "",
            key=_key("user_or_ip" if key is None else key),
            rate=None if callable(rate) else rate_of(rate),
            methods=methods_of(method),
            observe=not block,
            cost=1 if callable(cost) else cost,
        )
        limit = Limit(place, rate if callable(rate) else None, cost if callable(cost) else None)
    if name is not None:
        scopes.add(name)

    def decorate(view: View) -> View:
        if isinstance(view, type):
            raise TypeError('On a class, write @method_decorator(ratelimit(...), name="dispatch").')
        if view.__module__ == _DUMMY:
            setattr(view, f"{_LIMIT}{id(limit)}", limit)
            return view
        below = _stack_of(view)
        inner = below.view if below else view
        here = limit if name is not None else limit.at(viewnames.dotted_path(inner))
        stack = _Stack(inner, (here, *(below.limits if below else ())))
        wrapper = _async_wrapper(stack) if _is_async(inner) else _wrapper(stack)
        wraps(view)(wrapper)
        setattr(wrapper, _MARK, _Mark(ref(wrapper), stack))
        return cast("View", wrapper)

    return decorate


class Limit(NamedTuple):
    """One `ratelimit(...)`: its place, and the callables that complete it for a request."""

    place: Place
    rate: RateFunction | None
    cost: CostFunction | None

    def at(self, scope: str) -> Limit:
        """The same for a view by its dotted path."""
        scopes.add(scope)
        return self._replace(place=replace(self.place, scope=scope))

    def counts(self, method: str) -> bool:
        """Whether requests of a method are counted."""
        methods = self.place.methods
        return method in methods if methods else method != "OPTIONS"

    def place_for(self, request: Any) -> Place:
        """The place as it is for one request."""
        place = self.place
        if self.rate is not None:
            rate = self.rate(place.scope, request)
            with _blaming(place.scope):
                place = replace(place, rate=rate_of(rate))
        if self.cost is not None:
            cost = self.cost(place.scope, request)
            with _blaming(place.scope):
                place = replace(place, cost=cost)
        return place


class _Stack(NamedTuple):
    """Limits that stand directly on one another, outermost first, and the view below them."""

    view: Callable[..., Any]
    limits: tuple[Limit, ...]

    def ask(self, request: Any, walk: Walk) -> HttpResponse | None:
        """Decide on a request and tell it; the response if it is refused."""
        places = [limit.place_for(request) for limit in self.limits if limit.counts(request.method)]
        allowed = limiter.decide(request, places, walk).allowed
        decision = walk.decision
        for told in (request, getattr(request, "_request", None)):  # DRF's, and Django's inside it
            if told is not None:
                told.limited, told.ratelimit = decision.limited, decision
        return None if allowed else refusal.response(request, decision)


class _Mark(NamedTuple):
    """Says that a function is a wrapper of ours.

    Other decorators copy attributes to their wrappers (functools.wraps); those are not `wrapper`.
    """

    wrapper: ref[Callable[..., Any]]
    stack: _Stack


def limits_of(view: Any) -> Iterator[Limit]:
    """The limits of a function view, outermost first; other decorators may stand between."""
    while view is not None:
        stack = _stack_of(view)
        if stack is not None:
            yield from stack.limits
            view = stack.view
        else:
            view = getattr(view, "__wrapped__", None)


def limits_of_method(owner: type, name: str) -> Iterator[Limit]:
    """The limits that a class's method has through method_decorator."""
    method: Any = getattr(owner, name, None)
    for attribute, limit in list(getattr(method, "__dict__", {}).items()):
        if not attribute.startswith(_LIMIT):
            continue
        if limit.place.scope:
            yield limit
        else:
            with suppress(ImproperlyConfigured):  # no path of its own: each request raises this
                yield limit.at(viewnames.dotted_path(MethodType(method, owner)))


def _stack_of(view: Callable[..., Any]) -> _Stack | None:
    mark = getattr(view, _MARK, None)
    return mark.stack if isinstance(mark, _Mark) and mark.wrapper() is view else None


def _wrapper(stack: _Stack) -> Callable[..., Any]:
    def wrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
        with _walk(request) as walk:
            response = stack.ask(request, walk)
            if response is None:
                response = stack.view(request, *args, **kwargs)
            return _answered(response, walk)

    return wrapper


def _async_wrapper(stack: _Stack) -> Callable[..., Any]:
    # In the request's own thread, where Django keeps its database connections: keys may load the
    # user, and templates anything.
    ask = sync_to_async(stack.ask)

    async def wrapper(request: Any, *args: Any, **kwargs: Any) -> Any:
        with _walk(request) as walk:
            response: Any = await ask(request, walk)
            if response is None:
                response = stack.view(request, *args, **kwargs)
                if isawaitable(response):
                    response = await response
            return _answered(response, walk)

    return wrapper


def _is_async(view: Callable[..., Any]) -> bool:
    """Whether calling a view gives a coroutine."""
    if iscoroutinefunction(view):
        return True
    # `dispatch` of a class with async handlers is a plain function that returns their coroutine.
    method = viewnames.bound_method(view)
    return method is not None and bool(getattr(method.__self__, "view_is_async", False))


def _walk(request: Any) -> AbstractContextManager[Walk]:
    if not isinstance(getattr(request, "_request", request), HttpRequest):
        raise TypeError(
            f"A view under @ratelimit was called with {type(request).__qualname__} in place of a "
            "request. On a method, write @method_decorator(ratelimit(...))."
        )
    return limiter.walk(request)


def _answered(response: Any, walk: Walk) -> Any:
    if isinstance(response, HttpResponseBase):  # if not, Django says so better than we could
        told = response.headers
        for name, value in headers.fields(walk.decision).items():
            told[name] = value
    return response


@contextmanager
def _blaming(scope: str | None) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError, ImproperlyConfigured) as exc:
        called = "ratelimit()" if scope is None else f"ratelimit({scope!r})"
        raise ImproperlyConfigured(f"{called}: {exc}") from exc


def _key(given: str | KeyFunction) -> Key:
    if isinstance(given, str) and given not in clients.BUILT_IN:
        own = not given.startswith(clients.PREFIXES)
        if own and ("." in given or given in conf.current().KEYS):
            return _imported(given)
    return clients.key(given)


def _imported(path: str) -> Key:
    """A key of the project's own, imported when first used: it may import the views in turn."""
    own_keys.add(path)
    load = cache(clients.key)
    return Key(path, lambda group, request: load(path).find(group, request), by_group=True)
