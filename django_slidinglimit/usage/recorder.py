"""Counts decisions in memory and writes them to Redis once a second, for the usage pages.

The request path only adds to a tally. What a killed process loses is its last second's statistics,
never a decision.

tally.py is what is counted, writer.py how it is written, layout.py where it stands.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from django.core.signals import request_finished

from django_slidinglimit import conf, connections
from django_slidinglimit.core.stores import StoreError

from .housekeeping import Housekeeper
from .tally import Tally
from .writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_slidinglimit.core.decisions import Decision

logger = logging.getLogger("django_slidinglimit")

FLUSH_SECONDS = 1.0
# A flush so late is made by whoever ends a request: the thread does not get to run.
LATE_SECONDS = 1.5


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
        self._writer = Writer()
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
                for commands in self._writer.exchanges(tally, store.prefix):
                    (seconds, micros), *replies = store.run([("TIME",), *commands])
                    time_ms = int(seconds) * 1000 + int(micros) // 1000
                    self._ahead_ms = time_ms - time.monotonic() * 1000
                    self._writer.learn(commands, replies)

    def flush_if_late(self) -> None:
        """Flush in the thread's place, where it does not get to run (uWSGI without threads)."""
        now = time.monotonic()
        if self._tally.minutes and now - self._flushed > LATE_SECONDS:
            self._flushed = now  # once is enough, however many requests end now
            self._work()

    def stop(self) -> None:
        """Record no more; what is not yet written never will be."""
        with self._lock:
            self._stopped.set()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(FLUSH_SECONDS)

    def finish(self) -> None:
        """Write what is left, as the process ends."""
        self._quietly(self.flush)

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


request_finished.connect(_after_response)
connections.when_changed(forget)
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
