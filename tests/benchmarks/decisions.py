"""What overrides and rules cost a decision: all there are against the two that apply alone.

Times are those of the thread: overrides are looked up in memory, and Redis is asked the same.
"""

from __future__ import annotations

import time
from copy import copy
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from django.test import RequestFactory

from django_slidinglimit import clients, keeper, limiter
from django_slidinglimit.loading import Loaded
from django_slidinglimit.models import Override
from django_slidinglimit.places import Place, hits_of

from . import rows
from .figures import US, figure, in_turns, over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.http import HttpRequest

    from django_slidinglimit.rules import RuleSet

    from .figures import Figure, Sizes

REQUEST = RequestFactory().get(rows.PATH)
ADDRESSES = 2_000


def run(sizes: Sizes) -> Iterator[Figure]:
    rows.write_rules(sizes.rules)
    rows.write_overrides(sizes.overrides)
    everything = rows.loaded()
    Override.objects.all().delete()
    rows.leave_two_rules()
    alone = rows.loaded()
    everything = replace(everything, token=alone.token)  # else the keeper would load it anew
    keeper.current()
    place = Place(rows.SCOPE, clients.key("ip"), by_path=True)

    def find_rules(request: HttpRequest) -> object:
        return hits_of(request, [place])

    def decide(request: HttpRequest) -> object:
        return limiter.decide(request, [place], limiter.Walk())

    size = f"{sizes.rules:,} rules and {sizes.overrides:,} overrides"
    for what, call in (("What is asked of a request", find_rules), ("Decision", decide)):
        few, many = in_turns(
            sizes, under(alone, call), under(everything, call), clock=time.thread_time
        )
        yield figure(f"{what}, the 2 rules that apply alone", "us", [s * US for s in few])
        yield figure(f"{what}, {size}", "us", [s * US for s in many])
        yield figure(f"{what}, added by them", "us", [s * US for s in over(many, few)], 10)


def under(rules: RuleSet, call: Callable[[HttpRequest], object]) -> Callable[[], object]:
    """Call with a request of ever another client, under these rules."""
    numbers = count()
    loaded = Loaded(set=rules)

    def once() -> object:
        keeper._keeper.loaded = loaded
        request = copy(REQUEST)
        request.META["REMOTE_ADDR"] = rows.address(next(numbers) % ADDRESSES)
        return call(request)

    return once
