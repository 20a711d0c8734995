"""From an edit to the moment when every one of several busy processes obeys it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from django_slidinglimit.models import Rule

from . import rows
from .figures import Figure, figure
from .processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .figures import Sizes

# Seconds.
LIMIT_WITH_RULES = 1.0
LIMIT_WITH_OVERRIDES = 2.0


def run(sizes: Sizes) -> Iterator[Figure]:
    rows.write_rules(sizes.rules)
    yield obeyed(sizes, sizes.rules, LIMIT_WITH_RULES)
    rows.write_overrides(sizes.overrides)
    yield obeyed(sizes, sizes.rules + sizes.overrides, LIMIT_WITH_OVERRIDES)


def obeyed(sizes: Sizes, number: int, limit: float) -> Figure:
    """How long edits take, each until the last process obeys."""
    samples = times(sizes)
    name = f"An edit among {number:,} rows, until {sizes.processes} busy processes obey"
    found = figure(name, "s", samples)
    return Figure(found.name, found.unit, found.median, found.p99, limit, "p99")


def times(sizes: Sizes) -> list[float]:
    """Seconds from each edit to the last process that obeys it."""
    samples = []
    first = Rule.objects.get(scope=rows.SCOPE)
    before = int(first.rate.partition("/")[0])
    with ExitStack() as stack:
        started = [stack.enter_context(Process.start()) for _ in range(sizes.processes + 1)]
        *deciding, editor = started
        for process in deciding:
            process.ask("decide", rows.SCOPE)
        for process in deciding:
            process.ask("obeyed", before)
        for limit in range(before + 1, before + 1 + sizes.edits):
            edited = editor.ask("edit", rows.SCOPE, limit)
            samples.append(max(process.ask("obeyed", limit) for process in deciding) - edited)
    return samples
