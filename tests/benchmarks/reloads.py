"""Decisions while rules are loaded again and again because one row changes, and while none does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django.test import RequestFactory

from django_slidinglimit import limiter

from . import rows
from .figures import MS, Figure, figure, p99
from .processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .figures import Sizes

# Of quiet and of edits in turn, in seconds.
TURN = 1.0
EVERY = 0.5


def run(sizes: Sizes) -> Iterator[Figure]:
    rows.write_rules(sizes.rules)
    rows.write_overrides(sizes.overrides)
    quiet: list[float] = []
    edited: list[float] = []
    with Process.start() as editor:
        for turn in range(max(1, round(sizes.seconds / TURN))):
            quiet += decide_for(min(TURN, sizes.seconds))
            for half in range(2):
                editor.ask("edit", rows.SCOPE, 1_000_000 + 2 * turn + half)
                edited += decide_for(min(EVERY, sizes.seconds))
    yield figure("Decision, rules unchanged", "ms", [s * MS for s in quiet])
    yield figure("Decision, one of the rules edited twice a second", "ms", [s * MS for s in edited])
    added = (p99(edited) - p99(quiet)) * MS
    yield Figure("Decision, added to its p99 by the edits", "ms", added, limit=5)


def decide_for(seconds: float) -> list[float]:
    """Decide without a pause; how long each decision took."""
    request = RequestFactory().get("/")
    samples = []
    now = time.perf_counter()
    end = now + seconds
    while now < end:
        limiter.check(request, rows.SCOPE, key="ip")
        began, now = now, time.perf_counter()
        samples.append(now - began)
    return samples
