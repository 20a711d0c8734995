"""Finding the rules of a scope and of a path: among one, and among all."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from . import rows
from .figures import US, Figure, figure, in_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_slidinglimit.rules import RuleSet

    from .figures import Sizes


def run(sizes: Sizes) -> Iterator[Figure]:
    rows.write_rules(sizes.rules)
    every = rows.loaded()
    rows.leave_two_rules()
    one_each = rows.loaded()
    for what, find in (("scope", of_scope), ("path", of_path)):
        few, many = in_turns(
            sizes, partial(find, one_each), partial(find, every), clock=time.thread_time
        )
        one = figure(f"Rules of a {what}, of 1", "us", [s * US for s in few])
        all_ = figure(f"Rules of a {what}, of {sizes.rules:,}", "us", [s * US for s in many])
        yield from (one, all_)
        yield Figure(f"Rules of a {what}, ratio", "x", all_.median / one.median, limit=1.5)


def of_scope(rules: RuleSet) -> object:
    return rules.for_scope(rows.SCOPE, "GET")


def of_path(rules: RuleSet) -> object:
    return rules.for_path(rows.PATH, "GET")
