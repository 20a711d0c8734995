"""The same work done by us and by the other limiters: admitted, and refused at Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import views
from .comparison import GET, Comparison
from .figures import Figure
from .limiters import PEERS, THEIR_HIT, THEIR_THROTTLE, Peer
from .views import MANY, ONE, UNLIMITED, second_visits, visits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .figures import Sizes
    from .views import View


def decorated(limit: int) -> View:
    view: View = views.limited(views.bare, limit)
    return view


def under_throttle(limit: int) -> View:
    view: View = views.throttled(views.throttle(limit=limit))
    return view


DECORATOR = Peer("This decorator", "django_slidinglimit", "the bare view", decorated)
THROTTLE = Peer("This throttle", "django_slidinglimit", "the unthrottled view", under_throttle)


def run(sizes: Sizes) -> Iterator[Figure]:
    peers = [DECORATOR, THROTTLE]
    for peer in PEERS:
        if peer.installed:
            peers.append(peer)
        else:
            print(f"{peer.name} is left out; install the extra `bench` to measure it, too.")
    admitted = compare(sizes, peers, MANY, visits)
    refused = compare(sizes, peers, ONE, lambda view: second_visits(view, sizes))
    yield admitted.figure(GET)
    for what, found in (("admitted", admitted), ("refused", refused)):
        for peer in peers:
            yield found.figure(peer.name, peer.over, f"{peer.name}, {what}")
    ours = admitted.cost(THROTTLE.name, THROTTLE.over)
    for theirs, limit in ((THEIR_THROTTLE, 0.35), (THEIR_HIT, 1.0)):
        if theirs in peers:
            ratio = ours / admitted.cost(theirs.name, theirs.over)
            yield Figure(f"{THROTTLE.name} / {theirs.name}", "x", ratio, limit=limit)


def compare(
    sizes: Sizes,
    peers: list[Peer],
    limit: int,
    visiting: Callable[[View], Callable[[], object]],
) -> Comparison:
    """Have each limiter let so many requests an hour of a client pass."""
    limited = {peer.name: visiting(peer.limited(limit)) for peer in peers}
    return Comparison(sizes, {name: visits(view) for name, view in UNLIMITED.items()} | limited)
