"""Rounds: what REST framework's throttles of one view ask of a request, decided together.

REST framework asks a view's throttles in turn. The first of ours to be asked finds out what all of
them ask, has it decided at once, and has the view tell of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from rest_framework.exceptions import Throttled
from rest_framework.throttling import BaseThrottle

from . import headers, limiter, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rest_framework.request import Request

    from .core.decisions import Decision
    from .limiter import Walk
    from .places import Place

# Where REST framework's Request keeps its view's round.
_ROUND = "_slidinglimit_round"


class Asking(BaseThrottle):
    """A throttle that takes part in rounds.

    Attributes:
        scope: its scope; rules of the admin name it.
        needs_rate: whether a rate, or None, must be declared for its scope.
    """

    scope: str | None = None
    needs_rate: ClassVar[bool] = True
    THROTTLE_RATES: ClassVar[Any] = {}


@dataclass(slots=True)
class Round:
    """What the throttles of a view ask of one request."""

    view: Any
    asked: list[tuple[Asking, Place]] = field(default_factory=list)
    declared: set[str | None] = field(default_factory=set)  # scopes of throttles that need a rate
    recording: bool = True

    @classmethod
    def of(cls, request: Request, view: Any) -> Round:
        """Have twins of a view's throttles note down what they would ask, and nothing more."""
        round_ = cls(view)
        setattr(request, _ROUND, round_)
        try:
            for twin in view.get_throttles():
                if isinstance(twin, Asking):
                    twin.allow_request(request, view)
                    if twin.needs_rate:
                        round_.declared.add(twin.scope)
        finally:
            round_.recording = False
        return round_

    def places(self) -> list[Place]:
        """All that is asked."""
        return [self.without_doubles(*asked) for asked in self.asked]

    def without_doubles(self, throttle: Asking, place: Place) -> Place:
        """The place, without its scope's rules if a throttle of that scope is in the round.

        Raises:
            ImproperlyConfigured: nobody declares the scope; mistyped, it would mean no limit.
        """
        if not place.by_path or not place.scope:
            return place
        if any(p.scope == place.scope for _, p in self.asked if not p.by_path):
            return replace(place, scope="")
        if place.scope not in self.declared and place.scope not in throttle.THROTTLE_RATES:
            raise undeclared(path_of(type(throttle)), place.scope)
        return place


def round_of(request: Any) -> Round | None:
    """The round that a request is in, if a throttle of ours has been asked."""
    # Asked for what it does not have, REST framework's Request makes a detour.
    found = getattr(request, "__dict__", {}).get(_ROUND)
    return found if isinstance(found, Round) else None


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
    asked = Round.of(request, view)
    return [(path_of(type(t)), p) for (t, _), p in zip(asked.asked, asked.places(), strict=True)]


def ask_all(request: Request, view: Any, walk: Walk) -> Round:
    """Have all that the view's throttles ask decided at once.

    The throttles ask again, and find the answers in the walk; one that asks something else than
    its twin did is decided in turn.
    """
    asked = Round.of(request, view)
    decide(request, view, asked.places(), walk)
    return asked


def decide(request: Any, view: Any, places: Sequence[Place], walk: Walk) -> Decision:
    """Decide, and have the view tell of it in whatever response it gives."""
    # Unit tests ask throttles about {}. (What its Request lacks itself, it finds by a detour.)
    known = request if hasattr(getattr(request, "_request", request), "method") else HttpRequest()
    decision = limiter.decide(known, places, walk)
    fields = getattr(view, "headers", None)
    if isinstance(fields, dict) and not isinstance(fields, _Fields):  # made for this request
        view.headers = _Fields(fields, walk)
    if not decision.allowed and (told := refusal.blocked(decision)):
        # By name: REST framework's views import the throttles of the project, and so this module.
        own = getattr(getattr(type(view), "throttled", None), "__qualname__", "")
        if own == "APIView.throttled":
            view.throttled = _throttled(told)
    return decision


class _Fields(dict[str, str]):
    """A view's header fields; when the response is finished they tell all that was decided.

    What is decided within the view, and what it gives back when it refuses, is told too.
    """

    def __init__(self, fields: dict[str, str], walk: Walk) -> None:
        super().__init__(fields)
        self._walk = walk

    def items(self) -> Any:
        told = headers.fields(self._walk.decision)
        told.pop("Retry-After", None)  # Throttled sets it
        return {**self, **told}.items()


def _throttled(detail: str) -> Callable[[Any, float | None], None]:
    """As REST framework's own, and saying why."""

    def throttled(_request: Any, wait: float | None) -> None:
        raise Throttled(wait, detail)

    return throttled


def path_of(kind: type[Any]) -> str:
    """The dotted path of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def undeclared(throttle: str, scope: str) -> ImproperlyConfigured:
    """What is wrong where no rate is declared for a throttle's scope."""
    return ImproperlyConfigured(
        f"{throttle}: no rate is declared for the scope {scope!r} in "
        'REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"] (or THROTTLE_RATES of the class). '
        "None declares it without a limit."
    )
