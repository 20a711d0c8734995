"""Throttles for Django REST framework: its own, counted in Redis and subject to the admin's rules.

A project swaps the import; docs/drf.md lists the differences. How the throttles of one view are
decided together, rounds.py tells.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django.core.exceptions import ImproperlyConfigured
from rest_framework.request import Request
from rest_framework.settings import api_settings

from . import addresses, clients, conf, keeper, limiter, rounds
from .clients import Key
from .core.decisions import Decision
from .core.rates import Rate
from .limiter import Walk
from .places import Place
from .rounds import Asking, Round, path_of, undeclared

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .core.decisions import Client


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


class SimpleRateThrottle(Asking):
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
            raise ImproperlyConfigured(f"{path_of(type(self))} needs a `scope` or a `rate`.")
        try:
            rate: str | None = self.THROTTLE_RATES[self.scope]
        except KeyError:
            raise undeclared(path_of(type(self)), self.scope) from None
        return rate

    def parse_rate(self, rate: str | None) -> tuple[float | None, float | None]:
        """The number of requests and the seconds of a rate; (None, None) for None.

        Raises:
            ImproperlyConfigured: the rate is wrong; the message says what is accepted.
        """
        try:
            parsed = _parsed(rate)
        except (TypeError, ValueError) as exc:
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
        asked = rounds.round_of(request)
        if asked is not None and asked.recording:
            asked.asked.append((self, place))
            return True
        if isinstance(request, Request) and hasattr(view, "get_throttles"):
            walk = limiter.keep_walk(request)
            if asked is None or asked.view is not view:
                alone = self._is_alone(view)
                asked = Round(view) if alone else rounds.ask_all(request, view, walk)
            place = asked.without_doubles(self, place)
        else:
            walk = limiter.walk_of(request) or Walk()
        self.decision = rounds.decide(request, view, [place], walk)
        if not self.decision.answers:
            return True
        if self.decision.allowed:
            return self.throttle_success()
        self._wait_ms = walk.decision.retry_after
        return self.throttle_failure()

    def _is_alone(self, view: Any) -> bool:
        """Whether this one asks once, and no other throttle of the view asks anything."""
        kinds: Sequence[Any] = getattr(view, "throttle_classes", ())
        return (
            len(kinds) == 1
            and kinds[0] is type(self)
            # By name: REST framework's views import the throttles of the project.
            and type(view).get_throttles.__qualname__ == "APIView.get_throttles"
            and type(self).allow_request.__module__ == __name__
        )

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
        scope = self.scope or path_of(type(self))
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
            return _rate(math.ceil(number), round(duration * 1000))
        except (TypeError, ValueError, OverflowError) as exc:
            problem = f"num_requests {number!r} and duration {duration!r} make no rate: {exc}"
            raise self._wrong_rate(problem) from exc

    def _wrong_rate(self, problem: object) -> ImproperlyConfigured:
        return ImproperlyConfigured(f"{path_of(type(self))}, scope {self.scope!r}: {problem}")

    def _user_key(self, request: Any) -> str | None:
        """The key of a signed-in user."""
        user = request.user
        if user and user.is_authenticated:
            return self._key("user", user.pk)
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
    needs_rate = False
    rate = None
    num_requests = None
    duration = None

    def __init__(self) -> None:
        pass  # all rates are the rules'

    def _place(self, request: Any, view: Any) -> Place:
        self.scope = getattr(view, self.scope_attr, None)
        return self._counting(self.scope or "", request, view, by_path=True)


# A throttle is made for each request.
_parsed = lru_cache(maxsize=1024)(Rate.parse)
_rate = lru_cache(maxsize=1024)(Rate)
