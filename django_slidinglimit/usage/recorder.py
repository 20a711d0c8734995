"""Counts decisions in memory and writes them to Redis once a second, for the usage pages.

The request path only adds to a dict. What a killed process loses is its last second's statistics,
never a decision.

layout.py says where it stands.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from heapq import heappush, heapreplace
from itertools import chain
from typing import TYPE_CHECKING, Any

from django.core.signals import setting_changed

from django_slidinglimit import conf, connections
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.core.window import used

from .layout import client_member, minute_base, rule_field

if TYPE_CHECKING:
    from django_slidinglimit.core.decisions import Answer, Client, Decision, Rule

logger = logging.getLogger("django_slidinglimit")

FLUSH_SECONDS = 1.0
KEEP_SECONDS = 3600
# Busiest clients kept a rule and minute, here and in Redis.
MOST_CLIENTS = 1000
# Kept between two flushes: rules (a rate of the project's own making may differ with every client)
# and clients of all of them together, save for a few that each rule may always have.
MOST_RULES = 500
MOST_CLIENTS_IN_ALL = 10_000
FEW_CLIENTS = 10
# Clients sent in one exchange, so that each stays far from the deadline.
BATCH = 1000


class Recorder:
    """This process's tally since the last flush."""

    def __init__(self) -> None:
        self._tally: dict[tuple[int, Rule], _Minute] = {}
        self._clients = 0  # in the tally, all rules together
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()  # never held across a trip

    def record(self, decision: Decision) -> None:
        """Add a decision to the tally."""
        if decision.time_ms is None:
            return
        minute = decision.time_ms // 60_000
        allowed = decision.allowed
        with self._lock:
            for answer in decision.answers:
                if answer.reading is None:
                    continue
                rule = answer.hit.rule
                tally = self._tally.get((minute, rule))
                if tally is None:
                    if len(self._tally) >= MOST_RULES:
                        continue
                    tally = self._tally[minute, rule] = _Minute()
                tally.count(answer, allowed)
                value = used(rule.rate, answer.reading) + answer.charged
                room = self._clients < MOST_CLIENTS_IN_ALL
                self._clients += tally.note(answer, allowed, value, room)
            if self._thread is None and not self._stopped.is_set():
                self._start()

    def flush(self) -> None:
        """Write the tally to Redis, and begin a new one.

        It goes past the breaker: statistics must not make this process decide by policy.

        Raises:
            StoreError: Redis does not answer; this tally, or the rest of it, is lost.
        """
        with self._lock:
            tally, self._tally, self._clients = self._tally, {}, 0
        if not tally:
            return
        store = connections.store().store
        batch: list[tuple[Any, ...]] = []
        clients = 0
        for (minute, rule), counts in tally.items():
            batch += counts.commands(minute_base(store.prefix, minute), rule)
            clients += len(counts.clients)
            if clients >= BATCH:
                store.run(batch)
                batch, clients = [], 0
        if batch:
            store.run(batch)

    def stop(self) -> None:
        """Record no more; what is not yet written never will be."""
        with self._lock:
            self._stopped.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(FLUSH_SECONDS)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="slidinglimit-usage", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # none to be had, at the latest when Python shuts down
            return
        self._thread = thread

    def _run(self) -> None:
        while not self._stopped.wait(FLUSH_SECONDS):
            self._flush_quietly()

    def _flush_quietly(self) -> None:
        try:
            self.flush()
        except StoreError:
            pass  # a decision will tell of it; the counts of a second are lost
        except Exception:
            logger.exception("Recording usage failed.")


class _Seen:
    """One client in one minute: the counter's greatest value, what it asked, what was over."""

    __slots__ = ("asked", "over", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self.asked = 0
        self.over = 0


class _Minute:
    """One rule's decisions in one minute, and its busiest clients."""

    __slots__ = ("_order", "allowed", "clients", "refused", "would")

    def __init__(self) -> None:
        self.allowed = 0
        self.refused = 0
        self.would = 0
        self.clients: dict[Client, _Seen] = {}
        # The clients as a heap, by values that may have grown since.
        self._order: list[tuple[int, Client]] = []

    def count(self, answer: Answer, allowed: bool) -> None:
        """Count an answer of a decision that was allowed or not."""
        if not answer.verdict.allowed:
            if not answer.hit.rule.observe:
                self.refused += 1
            elif allowed:
                self.would += 1
        elif allowed:
            self.allowed += 1

    def note(self, answer: Answer, allowed: bool, value: int, room: bool) -> int:
        """Note what a client asked; where there is no room for more, in place of the least one.

        Args:
            answer: the answer that it got.
            allowed: whether the whole decision was.
            value: what the counter holds now.
            room: whether there may be more than a few clients.

        Returns:
            How many clients it has more than before.
        """
        hit, more = answer.hit, 0
        seen = self.clients.get(hit.client)
        if seen is None:
            if len(self.clients) < (MOST_CLIENTS if room else FEW_CLIENTS):
                heappush(self._order, (value, hit.client))
                more = 1
            elif value > self._least():
                del self.clients[self._order[0][1]]
                heapreplace(self._order, (value, hit.client))
            else:
                return 0
            seen = self.clients[hit.client] = _Seen(value)
        elif value > seen.value:
            seen.value = value
        seen.asked += hit.cost
        if not answer.verdict.allowed and (allowed or not hit.rule.observe):
            seen.over += hit.cost
        return more

    def _least(self) -> int:
        while True:
            value, client = self._order[0]
            grown = self.clients[client].value
            if value == grown:
                return value
            heapreplace(self._order, (grown, client))

    def commands(self, base: str, rule: Rule) -> list[tuple[Any, ...]]:
        """What writes it under keys that begin with `base`."""
        field = rule_field(rule)
        rules, counts = f"{base}rules", f"{base}counts"
        found: list[tuple[Any, ...]] = [("HSET", rules, field, rule.name)]
        found += [
            ("HINCRBY", counts, f"{field}:{what}", getattr(self, what))
            for what in ("allowed", "refused", "would")
        ]
        sets = [f"{base}{what}:{field}" for what in ("top", "asked", "over")]
        members = [(client_member(client), seen) for client, seen in self.clients.items()]
        if members:
            scores = chain.from_iterable((seen.value, member) for member, seen in members)
            found.append(("ZADD", sets[0], "GT", *scores))
        found += [("ZINCRBY", sets[1], seen.asked, member) for member, seen in members]
        found += [("ZINCRBY", sets[2], seen.over, member) for member, seen in members if seen.over]
        found += [("ZREMRANGEBYRANK", key, 0, -MOST_CLIENTS - 1) for key in sets]
        return found + [("EXPIRE", key, KEEP_SECONDS) for key in (rules, counts, *sets)]


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


def _forget(*, setting: str, **_: object) -> None:
    if setting in ("CACHES", "SLIDINGLIMIT", "SECRET_KEY"):
        forget()


setting_changed.connect(_forget)
atexit.register(lambda: recorder._flush_quietly())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
