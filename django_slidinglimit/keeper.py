"""How the rule set of this process is kept fresh.

A change in the database sets a fresh random token in Redis; every process looks at it now and then
from a thread of its own and loads the rows anew when it differs. The request path makes no database
query and takes no lock, unless the last look is over a second old (a process that was idle).

Loading gives way: Python runs one thread at a time, and takes it from one that computes after 5 ms
only, each time another wants it. So the thread sleeps after each millisecond.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any

from django.core.signals import setting_changed
from django.db import connections as databases
from django.db import transaction

from . import conf, connections, loading
from .core.refusals import resets_key
from .core.stores import StoreError
from .loading import Loaded
from .usage import processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from .rules import RuleSet

logger = logging.getLogger("django_slidinglimit")

# A decision accepts a look this old, in seconds; one look is waited for no longer than that.
OLDEST_LOOK = 1.0
# Rows are loaded after so many seconds even if the token is the same: raw SQL sets none.
RELOAD = 60.0
# While rows are loaded: seconds of work, and of sleep after them.
SLICE = 0.001
BREAK = 0.001


class Keeper:
    """Holds this process's rule set and keeps it fresh."""

    def __init__(self, loaded: Loaded | None = None) -> None:
        self.loaded = loaded or Loaded()
        self.error: Exception | None = None  # why the last load failed
        self._due = float("-inf")  # when rows are loaded whatever the token says
        self._looked = float("-inf")  # when the last finished look began
        self._kept = float("-inf")  # when the set was last known to be kept up
        self._edit = threading.local()  # when a thread made its last edit
        self._give_up_until = float("-inf")
        self._reset: bytes | None = None  # the token that the last reset of a counter has set
        self._dirty = False  # rows may have changed, whatever the token says
        self._untold = False  # Redis is not told yet of a change made here
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._turn = threading.Condition()
        self._since = 0.0  # when the loading thread slept last

    @property
    def rules(self) -> RuleSet:
        """The rules as they were loaded last."""
        return self.loaded.set

    def current(self) -> RuleSet:
        """The rules to decide by now."""
        if conf.current().RULES_POLL == 0 or not connections.is_shared():
            self._load(None, _go_on)
        elif not self._is_fresh():
            self._catch_up()
        return self.loaded.set

    def expire(self) -> None:
        """Have the next look load the rows."""
        self._dirty = True

    def publish(self) -> None:
        """Tell every process that the rules have changed; made up for if Redis is away."""
        self.expire()
        connections.store().forget_refusals()
        self._edit.made = time.monotonic()
        try:
            self._tell()
        except StoreError:  # the breaker has told of it
            self._untold = True
            if conf.current().RULES_POLL:
                self._start()

    def stop(self) -> None:
        """End the thread; the next decision starts another."""
        self._thread = None
        self._wake.set()

    def look(self) -> None:
        """Compare the token, and load the rows if it differs or a load is due.

        Another token, in the same trip, says that a counter was reset somewhere.
        """
        began = time.monotonic()
        token = self.rules.token
        untold, self._untold = self._untold, False
        try:
            if untold:
                self._tell()
            # Before the rows: rows older than their token would never be loaded again.
            beat = processes.beat(self.rules.token)
            store = connections.store()
            resets = ("GET", resets_key(store.prefix))
            token, reset, _ = store.run([("GET", token_key()), resets, beat])
            if reset != self._reset:
                self._reset = reset
                store.forget_refusals()
        except StoreError:
            self._untold |= untold
        if self._dirty or token != self.rules.token or began >= self._due:
            self._dirty = False
            if self._load(token, self._give_way):
                self._due = began + RELOAD
            else:
                self._dirty = True
        with self._turn:
            self._looked = began
            self._kept = max(self._kept, began)
            self._turn.notify_all()

    def _tell(self) -> None:
        connections.store().run([("SET", token_key(), secrets.token_hex(8))])

    def _load(self, token: bytes | None, pause: Callable[[], None]) -> bool:
        try:
            loaded = loading.load(self.loaded, token, pause)
        except Exception as exc:  # whatever the database does, the last good set serves
            self._load_failed(exc)
            return False
        self._load_failed(None)
        for which, problem in loaded.set.problems.items() - self.rules.problems.items():
            logger.error("The %s is left out: %s", which, problem)
        self.loaded = loaded
        return True

    def _load_failed(self, error: Exception | None) -> None:
        if (error is None) != (self.error is None):  # once per change
            if error is None:
                logger.warning("The rules can be loaded again.")
            else:
                logger.error("The rules cannot be loaded, the last good set serves: %s", error)
        self.error = error

    def _give_way(self) -> None:
        """Let the threads of requests run; if they wait for this load anyway, be done with it."""
        now = time.monotonic()
        if now - self._kept <= OLDEST_LOOK:
            self._kept = now  # however long it takes, nobody waits
            if now - self._since >= SLICE:
                time.sleep(BREAK)
                self._since = time.monotonic()

    def _is_fresh(self) -> bool:
        """Whether the set is kept up, and has what this very thread has edited."""
        edited = getattr(self._edit, "made", float("-inf"))
        return self._looked > edited and time.monotonic() - self._kept <= OLDEST_LOOK

    def _catch_up(self) -> None:
        if time.monotonic() < self._give_up_until:
            return
        self._start()
        with self._turn:
            if not self._turn.wait_for(self._is_fresh, timeout=OLDEST_LOOK):
                # The database hangs: one wait now and then, not one per request.
                self._give_up_until = time.monotonic() + 10 * OLDEST_LOOK

    def _start(self) -> None:
        """Have the thread look now."""
        with self._turn:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="slidinglimit-rules", daemon=True
                )
                self._thread.start()
            self._wake.set()

    def _run(self) -> None:
        me = threading.current_thread()
        pause = OLDEST_LOOK
        while me is self._thread:
            began = time.monotonic()
            try:
                self._wake.clear()
                self.look()
                pause = conf.current().RULES_POLL or OLDEST_LOOK
            except Exception:
                logger.exception("Looking for changed rules failed.")
            finally:
                databases.close_all()  # this thread's own
            # Looks begin so far apart, unless one takes nearly as long.
            self._wake.wait(max(began + pause - time.monotonic(), pause / 5))


def _go_on() -> None:
    """No pause: the one thread that would run is the one that loads."""


_keeper = Keeper()


def current() -> RuleSet:
    """The rules that this process decides by now."""
    return _keeper.current()


def stop() -> None:
    """End the thread; the next decision starts another."""
    _keeper.stop()


def failure() -> Exception | None:
    """Why this process could not load the rules when it last tried; None: it could."""
    return _keeper.error


def token_key() -> str:
    """Where the rule set's version stands in Redis."""
    return f"{connections.store().prefix}rules:version"


def publish() -> None:
    """Tell every process that the rules have changed. Call it after the change is committed."""
    if connections.is_shared():
        _keeper.publish()


def publish_on_commit(*, using: str | None = None, **_: Any) -> None:
    """Receiver of everything that changes rules.

    Each change has a publication of its own: one flag for a whole transaction would be lost with a
    savepoint that is rolled back.
    """
    transaction.on_commit(publish, using=using or loading.database(), robust=True)


def expire_when_back(*, error: StoreError | None, **_: Any) -> None:
    """Receiver of store_changed: while Redis was away it could not be told of changes."""
    if error is None:
        _keeper.expire()


def _after_fork() -> None:
    """Threads do not survive a fork, and its locks may be held for ever."""
    global _keeper
    _keeper = Keeper(_keeper.loaded)


def _forget(*, setting: str, **_: object) -> None:
    global _keeper
    if setting in ("CACHES", "SLIDINGLIMIT", "SECRET_KEY", "ROOT_URLCONF"):
        _keeper.stop()
        _keeper = Keeper()


setting_changed.connect(_forget)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
