"""Decisions as a store makes them, and traffic of the last hour as if it had been decided then."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from django_slidinglimit import connections, limiter
from django_slidinglimit.core.decisions import Client, Decision, Hit, Rule
from django_slidinglimit.core.stores import charges, decide
from django_slidinglimit.core.window import Reading
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.rules import compile_rule
from django_slidinglimit.usage.recorder import Recorder, flush

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def recorder() -> Iterator[Recorder]:
    """A recorder of the test's own, which writes only when it is told to."""
    own = Recorder()
    with patch("django_slidinglimit.usage.recorder.FLUSH_SECONDS", 60.0):
        yield own
    own.stop()


def decided(client: Client, used: int, *rules: Rule, now: int, cost: int = 1) -> Decision:
    """What a store decides on a request of a client that has used so much."""
    hits = [Hit(rule, client, cost) for rule in rules]
    readings = {hit.counter: Reading(0, used, 0) for hit in hits}
    return decide(hits, readings, charges(hits, readings), now)


def minute_now() -> int:
    """The running minute, by the server's time."""
    seconds, _ = connections.store().run([("TIME",)])[0]
    return int(seconds) // 60


def record(
    rule: Rule, client: Client, times: int = 1, *, ago: int = 0, used: int = 0, cost: int = 1
) -> None:
    """Have a client ask a rule, within one minute.

    Args:
        rule: the rule.
        client: who asks.
        times: how often.
        ago: so many minutes ago.
        used: what the counter holds before; each admitted request adds to it.
        cost: what a request uses.
    """
    now = (minute_now() - ago) * 60_000
    with recorder() as own:
        for _ in range(times):
            decision = decided(client, used, rule, now=now, cost=cost)
            used += sum(decision.charges.values())
            own.record(decision)
        own.flush()


def ask(rule: Rule, client: Client, times: int = 1) -> None:
    """Have a client ask a rule now, and what came of it be written."""
    for _ in range(times):
        limiter.take([Hit(rule, client)])
    flush()


def stored(**fields: Any) -> Rule:
    """A rule of the database, as it is asked."""
    row = Row.objects.create(**{"name": "Search", "scope": "search", "rate": "10/h", **fields})
    return compile_rule(row).rule
