"""What a limit adds to a view: by decorators and by a throttle, admitted and refused at Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import views
from .comparison import GET, Comparison
from .figures import Figure
from .views import ONE, limited, second_visits, throttle, throttled, visits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .figures import Sizes

BARE, API = "the bare view", "the unthrottled view"
DECORATORS = {
    f"Decorator, admitted, {n} rule{'s' * (n > 1)}": limited(views.bare, rules=n)
    for n in (1, 4, 10)
}
ONE_RULE, FOUR_RULES, _ = DECORATORS
REFUSED = "Decorator, refused at Redis"
THROTTLE, THROTTLE_REFUSED = "Throttle, admitted", "Throttle, refused at Redis"


def run(sizes: Sizes) -> Iterator[Figure]:
    found = Comparison(
        sizes,
        {
            BARE: visits(views.bare),
            **{name: visits(view) for name, view in DECORATORS.items()},
            REFUSED: second_visits(limited(views.bare, ONE), sizes),
            API: visits(views.API),
            THROTTLE: visits(throttled(throttle())),
            THROTTLE_REFUSED: second_visits(throttled(throttle(limit=ONE)), sizes),
        },
    )
    yield from map(found.figure, (GET, BARE, API))
    for name in (*DECORATORS, REFUSED):
        yield found.figure(name, over=BARE)
    for name in (THROTTLE, THROTTLE_REFUSED):
        yield found.figure(name, over=API)
    one, four = (found.cost(name, over=BARE) for name in (ONE_RULE, FOUR_RULES))
    yield Figure("Decorator, admitted / redis-py GET", "x", one / found.cost(GET), limit=1.3)
    yield Figure("Decorators, 4 rules / 1 rule", "x", four / one, limit=1.5)
