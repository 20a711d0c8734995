"""Counts decisions in memory and writes them to Redis once a second, for the usage pages.

The request path only adds to a tally. What a killed process loses is its last second's statistics,
never a decision.

layout.py says where it stands, tally.py and budget.py how it is bounded.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from django.core.signals import request_finished, setting_changed

from django_slidinglimit import conf, connections
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.core.wire import Script

from .budget import Budget
from .housekeeping import Housekeeper
from .layout import client_member, limited_member, link_member, minute_base, rule_field
from .tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from django_slidinglimit.core.decisions import Client, Decision
    from django_slidinglimit.core.stores import Store

    from .tally import Counts, Minute

    Command = tuple[Any, ...]

logger = logging.getLogger("django_slidinglimit")

FLUSH_SECONDS = 1.0
# A flush so late is made by whoever ends a request: the thread does not get to run.
LATE_SECONDS = 1.5
# Clients and links in one command, so that it stays far below a millisecond, and commands in one
# exchange, so that it stays far from the deadline.
CHUNK = 100
BATCH = 20
# A client that was refused so lately is still limited since it was refused first.
LIMITED_SECONDS = 60
MOST_LIMITED = 10_000

RULE = Script("usage_rule")
LIMITED = Script("usage_limited")
LINKS = Script("usage_links")


class Recorder:
    """This process's tally since the last flush, and how it is written."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()  # never held across a trip
        self._flushing = threading.Lock()
        self._flushed = time.monotonic()
        self._ahead_ms: float | None = None  # of Redis, before this process's monotonic clock
        self._rules = 0  # of all processes, in the minute that was written last
        self._limited: dict[tuple[str, Client], tuple[int, int]] = {}
        self._housekeeper = Housekeeper()

    def record(self, decision: Decision) -> None:
        """Add a decision to the tally."""
        time_ms = decision.time_ms
        if time_ms is None:
            time_ms = self.now_ms
        elif self._ahead_ms is None:
            self._ahead_ms = time_ms - time.monotonic() * 1000
        with self._lock:
            self._tally.add(decision, time_ms)
        if self._thread is None and not self._stopped.is_set():
            self._start()

    @property
    def now_ms(self) -> int:
        """The time of Redis, as far as it is known without asking; in milliseconds since 1970."""
        if self._ahead_ms is None:
            return int(time.time() * 1000)
        return int(time.monotonic() * 1000 + self._ahead_ms)

    def flush(self) -> None:
        """Write the tally to Redis, and begin a new one.

        It goes past the breaker: statistics must not make this process decide by policy.

        Raises:
            StoreError: Redis does not answer; this tally, or the rest of it, is lost.
        """
        with self._flushing:
            self._flushed = time.monotonic()
            with self._lock:
                tally, self._tally = self._tally, Tally()
            if tally.minutes:
                store = connections.store().store
                commands = chain.from_iterable(
                    self._commands(store, number, minute)
                    for number, minute in tally.minutes.items()
                )
                while batch := list(islice(commands, BATCH)):
                    self._write(store, batch)

    def flush_if_late(self) -> None:
        """Flush in the thread's place, where it does not get to run (uWSGI without threads)."""
        if (
            self._thread is not None
            and time.monotonic() - self._flushed > LATE_SECONDS
            and not self._flushing.locked()
        ):
            self._work()

    def stop(self) -> None:
        """Record no more; what is not yet written never will be."""
        with self._lock:
            self._stopped.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(FLUSH_SECONDS)

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None or self._stopped.is_set():
                return
            thread = threading.Thread(target=self._run, name="slidinglimit-usage", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # none to be had, at the latest when Python shuts down
                return
            self._thread = thread

    def _run(self) -> None:
        while not self._stopped.wait(FLUSH_SECONDS):
            self._work()

    def finish(self) -> None:
        """Write what is left, as the process ends."""
        self._quietly(self.flush)

    def _work(self) -> None:
        self._quietly(self.flush)
        self._quietly(lambda: self._housekeeper.work(connections.store().store, self.now_ms))

    def _quietly(self, work: Callable[[], object]) -> None:
        try:
            work()
        except StoreError:
            pass  # a decision will tell of it; the counts of a second are lost
        except Exception:
            logger.exception("Recording usage failed.")

    def _write(self, store: Store, commands: Sequence[Command]) -> None:
        (seconds, micros), *replies = store.run([("TIME",), *commands])
        self._ahead_ms = int(seconds) * 1000 + int(micros) // 1000 - time.monotonic() * 1000
        for command, reply in zip(commands, replies, strict=True):
            if command[1] is RULE.source:
                self._rules = int(reply[0])

    def _commands(self, store: Store, number: int, minute: Minute) -> Iterator[Command]:
        """What writes a minute."""
        budget = Budget.current()
        base = minute_base(store.prefix, number)
        limited: list[str | int] = []
        for rule, counts in minute.counts.items():
            field = rule_field(rule)
            yield from self._rule(budget, base, field, rule.name, counts)
            limited += self._refused(field, counts)
        self._forget_limited()
        keys = (f"{base}limited", f"{base}since")
        for chunk in _chunks(limited, 3):
            yield ("EVAL", LIMITED.source, 2, *keys, budget.keep, budget.limited, *chunk)
        links = [
            member
            for one, other in minute.links
            for member in (link_member(one, other), link_member(other, one))
        ]
        for chunk in _chunks(links, 2):
            yield ("EVAL", LINKS.source, 1, f"{base}links", budget.keep, budget.links, *chunk)

    def _rule(
        self, budget: Budget, base: str, field: str, name: str, counts: Counts
    ) -> Iterator[Command]:
        clients = [(client_member(client), seen) for client, seen in counts.clients.items()]
        sets = [f"{base}{what}:{field}" for what in ("top", "asked", "over")]
        keys = (f"{base}rules", f"{base}counts", f"{base}bytes", *sets)
        bounds = (budget.keep, *budget.clients([member for member, _ in clients]))
        decisions = (counts.allowed, counts.refused, counts.would)
        members: list[str | int] = []
        for member, seen in clients:
            members += (member, seen.value, seen.asked, seen.over)
        for chunk in _chunks(members, 4) or ((),):
            yield ("EVAL", RULE.source, len(keys), *keys, *bounds, field, name, *decisions, *chunk)
            decisions = (0, 0, 0)
        if budget.may_count_clients(max(self._rules, 1)):
            seen_by = [member for member, _ in clients]
            seen_by += map(client_member, counts.others)
            for start in range(0, len(seen_by), 5 * CHUNK):
                yield ("PFADD", f"{base}seen:{field}", *seen_by[start : start + 5 * CHUNK])
            yield ("EXPIRE", f"{base}seen:{field}", budget.keep)

    def _refused(self, field: str, counts: Counts) -> Iterator[str | int]:
        """The refused clients, how often, and since when as far as this process knows."""
        for client, seen in counts.clients.items():
            if seen.refused:
                key, since = (field, client), seen.first
                known = self._limited.pop(key, None)
                if known is not None and seen.first - known[1] <= LIMITED_SECONDS * 1000:
                    since = known[0]
                self._limited[key] = (since, seen.last)
                yield from (limited_member(field, client), seen.refused, since)

    def _forget_limited(self) -> None:
        """Drop those that were last refused longest ago: the first, since each moves to the end."""
        for key in list(islice(self._limited, max(0, len(self._limited) - MOST_LIMITED))):
            del self._limited[key]


def _chunks(values: Sequence[str | int], each: int) -> list[Sequence[str | int]]:
    """Values of many clients, so many of each, cut for commands of their own."""
    size = CHUNK * each
    return [values[start : start + size] for start in range(0, len(values), size)]


recorder = Recorder()


def record(decision: Decision) -> None:
    """Count a decision, unless the setting USAGE is False or a test keeps its counters apart."""
    if conf.current().USAGE and connections.is_shared():
        recorder.record(decision)


def flush() -> None:
    """Write what was counted so far.

    Raises:
        StoreError: Redis does not answer; it is lost.
    """
    recorder.flush()


def forget() -> None:
    """Drop what was counted and not yet written; tests begin so."""
    global recorder
    old, recorder = recorder, Recorder()
    old.stop()


def _after_fork() -> None:
    """Threads do not survive a fork; what the parent counted is the parent's to write."""
    global recorder
    recorder = Recorder()


def _after_response(**_: object) -> None:
    recorder.flush_if_late()


def _at_exit() -> None:
    recorder.finish()


def _forget(*, setting: str, **_: object) -> None:
    if setting in ("CACHES", "SLIDINGLIMIT", "SECRET_KEY"):
        forget()


request_finished.connect(_after_response)
setting_changed.connect(_forget)
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
