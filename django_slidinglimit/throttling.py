"""Throttles for Django REST framework: its own, counted in Redis and subject to the admin's rules.

A project swaps the import; docs/drf.md lists the differences. DRF asks a view's throttles in turn;
the first of these to be asked finds out what all of them ask, and has it decided at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django.conf import settings
from django.core.checks import CheckMessage
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.urls import get_resolver
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import BaseThrottle

from . import addresses, clients, conf, headers, keeper, limiter, refusal
from .clients import Key
from .core.decisions import Decision
from .core.rates import Rate
from .limiter import Walk
from .places import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .core.decisions import Client

# Where DRF's Request keeps what its view's throttles ask.
_ROUND = "_slidinglimit_round"


class ClientKey(str):
    """A cache key that remembers which client it was made for.

    Args:
        text: the key as DRF writes it.
        client: the client; None where the request has no identity.
    """

    client: Client | None

    def __new__(cls, text: str, client: Client | None) -> ClientKey:
        key = super().__new__(cls, text)
        key.client = client
        return key


class _DefaultRates:
    """DEFAULT_THROTTLE_RATES as it is now; DRF's own attribute keeps what it was at import."""

    def __get__(self, instance: object, owner: object = None) -> Mapping[str, str | None]:
        return cast("Mapping[str, str | None]", api_settings.DEFAULT_THROTTLE_RATES)


class SimpleRateThrottle(BaseThrottle):
    """A throttle by a rate; a subclass says who is counted, in `get_cache_key`.

    Attributes:
        scope: the name of the place; rules of the admin name it. Without one it is the class's
            dotted path.
        rate: such as "100/min"; without one, THROTTLE_RATES has the scope's. None: no limit until
            a rule of the scope sets one.
        num_requests, duration: the rate as numbers (seconds); what they hold when super's
            `allow_request` is called counts.
        decision: what was decided for this throttle; empty before it was asked.
    """

    cache_format = "throttle_%(scope)s_%(ident)s"
    scope: str | None = None
    THROTTLE_RATES: ClassVar[Any] = _DefaultRates()

    rate: str | None
    num_requests: float | None
    duration: float | None
    key: str | None = None
    decision = Decision()

    # What rules call a key that keeps the clients apart that `get_cache_key` does.
    _key_name = "key"
    _wait_ms: int | None = None

    def __init__(self) -> None:
        if not getattr(self, "rate", None):
            self.rate = self.get_rate()
        self.num_requests, self.duration = self.parse_rate(self.rate)

    def get_cache_key(self, request: Any, view: Any) -> str | None:
        """Who is counted: a text of one's own, or what super() gave; None: not limited."""
        raise NotImplementedError(".get_cache_key() must be overridden")

    def get_rate(self) -> str | None:
        """The scope's rate.

        Raises:
            ImproperlyConfigured: there is no scope, or no rate is declared for it.
        """
        if not self.scope:
            raise ImproperlyConfigured(f"{_path(self)} needs a `scope` or a `rate`.")
        try:
            rate: str | None = self.THROTTLE_RATES[self.scope]
        except KeyError:
            raise _undeclared(_path(self), self.scope) from None
        return rate

    def parse_rate(self, rate: str | None) -> tuple[float | None, float | None]:
        """The number of requests and the seconds of a rate; (None, None) for None.

        Raises:
            ImproperlyConfigured: the rate is wrong; the message says what is accepted.
        """
        try:
            parsed = Rate.parse(rate)
        except ValueError as exc:
            raise self._wrong_rate(exc) from exc
        return (parsed.limit, parsed.window_ms // 1000) if parsed else (None, None)

    def get_ident(self, request: Any) -> str | None:  # type: ignore[override]
        """The address that a request counts as, or its IPv6 network; None: there is none usable.

        X-Forwarded-For is read behind TRUSTED_PROXIES, else as NUM_PROXIES says, else not at all.
        """
        settled = conf.current()
        trusting = settled.TRUSTED_PROXIES or settled.TRUST_UNIX_SOCKET
        if trusting or api_settings.NUM_PROXIES is None:
            address = addresses.address_of(request)
        else:
            address = addresses.parse_address(super().get_ident(request) or "")
        client = clients.by_address(address)
        return None if client is None else client.identity

    def allow_request(self, request: Any, view: Any) -> bool:
        """Whether the request is admitted, as far as this throttle is concerned."""
        place = self._place(request, view)
        if place is None:
            return True
        asked: _Round | None = getattr(request, _ROUND, None)
        if asked is not None and asked.recording:
            asked.asked.append((self, place))
            return True
        if isinstance(request, Request) and hasattr(view, "get_throttles"):
            walk = limiter.keep_walk(request)
            if asked is None or asked.view is not view:
                asked = _ask_all(request, view, walk)
            place = asked.without_doubles(self, place)
        else:
            walk = limiter.walk_of(request) or Walk()
        self.decision = _decide(request, view, [place], walk)
        if not self.decision.answers:
            return True
        if self.decision.allowed:
            return self.throttle_success()
        self._wait_ms = walk.decision.retry_after
        return self.throttle_failure()

    def throttle_success(self) -> bool:
        """Called when the request is within the limit; what it returns is the answer."""
        return True

    def throttle_failure(self) -> bool:
        """Called when the request is over the limit; what it returns is the answer."""
        return False

    def wait(self) -> float | None:
        """Seconds until all that refuse would admit the request; None: never, or not refused."""
        return None if self._wait_ms is None else self._wait_ms / 1000

    def _place(self, request: Any, view: Any) -> Place | None:
        scope = self.scope or _path(self)
        if self.rate is None and scope not in keeper.current().scopes:
            return None
        return self._counting(scope, request, view)

    def _counting(self, scope: str, request: Any, view: Any, *, by_path: bool = False) -> Place:
        self.key = key = self.get_cache_key(request, view)
        name, client = self._key_name, None
        if isinstance(key, ClientKey):
            client = key.client
        elif key is not None:
            name, client = "key", clients.bounded("key", str(key)) if key else None
        return Place(
            scope,
            Key(name, lambda _group, _request: client),
            None if key is None else self._rate(),
            needs_identity=key is None,
            by_path=by_path,
        )

    def _rate(self) -> Rate | None:
        if self.rate is None:
            return None
        number, duration = cast("tuple[float, float]", (self.num_requests, self.duration))
        try:
            return Rate(math.ceil(number), round(duration * 1000))
        except (TypeError, ValueError, OverflowError) as exc:
            problem = f"num_requests {number!r} and duration {duration!r} make no rate: {exc}"
            raise self._wrong_rate(problem) from exc

    def _wrong_rate(self, problem: object) -> ImproperlyConfigured:
        return ImproperlyConfigured(f"{_path(self)}, scope {self.scope!r}: {problem}")

    def _user_key(self, request: Any) -> str | None:
        """The key of a signed-in user."""
        if request.user and request.user.is_authenticated:
            return self._key("user", request.user.pk)
        return None

    def _ip_key(self, request: Any) -> str:
        return self._key("ip", self.get_ident(request))

    def _key(self, kind: str, ident: Any) -> str:
        text = self.cache_format % {"scope": self.scope, "ident": ident}
        if ident in (None, ""):
            return ClientKey(text, None)
        if self.cache_format != SimpleRateThrottle.cache_format:
            return text  # a format of the project's own says itself who is counted together
        return ClientKey(text, clients.bounded(kind, str(ident)))


class AnonRateThrottle(SimpleRateThrottle):
    """Limits requests that are not signed in, by address."""

    scope: str | None = "anon"
    _key_name = "ip"

    def get_cache_key(self, request: Any, view: Any) -> str | None:  # noqa: ARG002
        return None if self._user_key(request) else self._ip_key(request)


class UserRateThrottle(SimpleRateThrottle):
    """Limits users by their primary key, and requests that are not signed in by address."""

    scope: str | None = "user"
    _key_name = "user_or_ip"

    def get_cache_key(self, request: Any, view: Any) -> str | None:  # noqa: ARG002
        return self._user_key(request) or self._ip_key(request)


class ScopedRateThrottle(SimpleRateThrottle):
    """Limits as `UserRateThrottle` does, in the view's scope; a view without one is not limited."""

    scope_attr = "throttle_scope"
    _key_name = "user_or_ip"

    def __init__(self) -> None:
        pass  # the rate is known once the view asks

    def allow_request(self, request: Any, view: Any) -> bool:
        self.scope = getattr(view, self.scope_attr, None)
        if not self.scope:
            return True
        self.rate = self.get_rate()
        self.num_requests, self.duration = self.parse_rate(self.rate)
        return super().allow_request(request, view)

    def get_cache_key(self, request: Any, view: Any) -> str | None:  # noqa: ARG002
        return self._user_key(request) or self._ip_key(request)


class RuleThrottle(UserRateThrottle):
    """Applies the admin's rules for the request's path and for the view's scope, if it has one.

    It needs no scope and no rate. Rules of a scope that another throttle of the view applies are
    left to that one.
    """

    scope = None
    scope_attr = "throttle_scope"
    rate = None
    num_requests = None
    duration = None

    def __init__(self) -> None:
        pass  # all rates are the rules'

    def _place(self, request: Any, view: Any) -> Place:
        self.scope = getattr(view, self.scope_attr, None)
        return self._counting(self.scope or "", request, view, by_path=True)


@dataclass(slots=True)
class _Round:
    """What the throttles of a view ask of one request."""

    view: Any
    asked: list[tuple[SimpleRateThrottle, Place]] = field(default_factory=list)
    declared: set[str | None] = field(default_factory=set)  # scopes of throttles that need a rate
    recording: bool = True

    @classmethod
    def of(cls, request: Request, view: Any) -> _Round:
        """Have twins of a view's throttles note down what they would ask, and nothing more."""
        round_ = cls(view)
        setattr(request, _ROUND, round_)
        try:
            for twin in view.get_throttles():
                if isinstance(twin, SimpleRateThrottle):
                    twin.allow_request(request, view)
                    if not isinstance(twin, RuleThrottle):
                        round_.declared.add(twin.scope)
        finally:
            round_.recording = False
        return round_

    def places(self) -> list[Place]:
        return [self.without_doubles(*asked) for asked in self.asked]

    def without_doubles(self, throttle: SimpleRateThrottle, place: Place) -> Place:
        """The place, without its scope's rules if a throttle of that scope is in the round.

        Raises:
            ImproperlyConfigured: nobody declares the scope; mistyped, it would mean no limit.
        """
        if not place.by_path or not place.scope:
            return place
        if any(p.scope == place.scope for _, p in self.asked if not p.by_path):
            return replace(place, scope="")
        if place.scope not in self.declared and place.scope not in throttle.THROTTLE_RATES:
            raise _undeclared(_path(throttle), place.scope)
        return place


def _ask_all(request: Request, view: Any, walk: Walk) -> _Round:
    """Have all that the view's throttles ask decided at once.

    The throttles ask again, and find the answers in the walk; one that asks something else than
    its twin did is decided in turn.
    """
    asked = _Round.of(request, view)
    _decide(request, view, asked.places(), walk)
    return asked


def places_of(request: Request, view: Any) -> list[tuple[str, Place]]:
    """What a view's throttles would ask of a request; nothing is counted.

    Args:
        request: REST framework's request.
        view: the view, set up for it.

    Returns:
        Places, each with the dotted path of its throttle.

    Raises:
        Whatever the throttles raise.
    """
    asked = _Round.of(request, view)
    return [(_path(t), p) for (t, _), p in zip(asked.asked, asked.places(), strict=True)]


class _Fields(dict[str, str]):
    """A view's header fields; when the response is finished they tell all that was decided.

    What is decided within the view, and what it gives back when it refuses, is told too.
    """

    def __init__(self, fields: dict[str, str], walk: Walk) -> None:
        super().__init__(fields)
        self._walk = walk

    def items(self) -> Any:
        told = headers.fields(self._walk.decision)
        told.pop("Retry-After", None)  # DRF's Throttled sets it
        return {**self, **told}.items()


def _decide(request: Any, view: Any, places: Sequence[Place], walk: Walk) -> Decision:
    """Decide, and have the view tell of it in whatever response it gives."""
    # Unit tests ask throttles about {}.
    known = request if hasattr(request, "method") else HttpRequest()
    decision = limiter.decide(known, places, walk)
    fields = getattr(view, "headers", None)
    if isinstance(fields, dict) and not isinstance(fields, _Fields):  # DRF made it for this request
        view.headers = _Fields(fields, walk)
    told = "" if decision.allowed else refusal.blocked(decision)
    # By name: DRF's views import the throttles of the project, and so this module.
    own = getattr(getattr(type(view), "throttled", None), "__qualname__", "")
    if told and own == "APIView.throttled":
        view.throttled = _throttled(told)
    return decision


def _throttled(detail: str) -> Callable[[Any, float | None], None]:
    """As DRF's own, and saying why."""

    def throttled(_request: Any, wait: float | None) -> None:
        raise Throttled(wait, detail)

    return throttled


def _path(throttle: SimpleRateThrottle) -> str:
    return path_of(type(throttle))


def path_of(kind: type[Any]) -> str:
    """The dotted path of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _undeclared(throttle: str, scope: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(
        f"{throttle}: no rate is declared for the scope {scope!r} in "
        'REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"] (or THROTTLE_RATES of the class). '
        "None declares it without a limit."
    )


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
