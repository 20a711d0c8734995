"""Traffic of the last hour, written by a recorder as if it had been decided then."""

from __future__ import annotations

from django_slidinglimit import connections
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.stores import charges, decide
from django_slidinglimit.core.window import Reading
from django_slidinglimit.usage.recorder import Recorder


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
    recorder = Recorder()
    now = (minute_now() - ago) * 60_000
    for _ in range(times):
        hit = Hit(rule, client, cost)
        readings = {hit.counter: Reading(0, used, 0)}
        charged = charges([hit], readings)
        used += charged.get(hit.counter, 0)
        recorder.record(decide([hit], readings, charged, now))
    recorder.flush()
    recorder.stop()
