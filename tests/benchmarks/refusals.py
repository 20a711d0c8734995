"""Refusals that this process answers from memory: what they cost, and how often Redis is asked."""

from __future__ import annotations

import time
from itertools import cycle
from typing import TYPE_CHECKING

from . import views
from .comparison import GET, Comparison
from .figures import Figure
from .scripts import Statistics
from .site import usage
from .views import FIRST_REFUSED, ONE, limited, throttle, throttled, visits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .figures import Sizes
    from .views import View

BARE, API = "the bare view", "the unthrottled view"
DECORATOR, THROTTLE = "Decorator, refused from memory", "Throttle, refused from memory"
# So few that each comes back within the second that a refusal is remembered.
CLIENTS = 20


def run(sizes: Sizes) -> Iterator[Figure]:
    decorator = limited(views.bare, ONE)
    found = Comparison(
        sizes,
        {
            BARE: visits(views.bare),
            DECORATOR: refused(decorator, CLIENTS),
            API: visits(views.API),
            THROTTLE: refused(throttled(throttle(limit=ONE)), CLIENTS),
        },
    )
    yield found.figure(GET)
    yield found.figure(DECORATOR, over=BARE)
    yield found.figure(THROTTLE, over=API)
    ratio = found.cost(DECORATOR, over=BARE) / found.cost(GET)
    yield Figure(f"{DECORATOR} / {GET}", "x", ratio, limit=0.2)
    with usage(False):  # it is written by scripts, too
        often = commands(refused(decorator, 1), sizes.seconds)
    yield Figure("Commands a second for one client that is refused", "", often, limit=1)


def refused(view: View, clients: int) -> Callable[[], object]:
    """Visits of clients that have used up what they may."""
    visit = visits(view, cycle(range(FIRST_REFUSED, FIRST_REFUSED + clients)))
    for _ in range(2 * clients):
        visit()
    return visit


def commands(visit: Callable[[], object], seconds: float) -> float:
    """How many scripts a second are run for a client that comes as often as it can."""
    statistics = Statistics()
    visit()
    before = statistics.ran()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        visit()
    return (statistics.ran().calls - before.calls) / seconds
