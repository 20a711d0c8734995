"""For the tests of projects that use this app: counters of a test's own, a clock that it can set.

    class LoginTests(TestCase):
        def setUp(self):
            self.clock = self.enterContext(memory_store())

        def test_a_sixth_try_waits_a_minute(self):
            for _ in range(5):
                self.assertEqual(self.client.post("/login/").status_code, 200)
            refused = self.client.post("/login/")
            self.assertEqual(refused.status_code, 429)
            self.clock.advance(seconds=int(refused["Retry-After"]))
            self.assertEqual(self.client.post("/login/").status_code, 200)

As a pytest fixture:

    @pytest.fixture
    def clock():
        with memory_store() as clock:
            yield clock
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from . import connections
from .core.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

# 2024-01-04 00:00 UTC, a whole number of weeks since 1970: windows of a second, a minute, an hour,
# a day and a week all begin then, so that no test meets an edge by chance.
START_MS = 1_704_326_400_000


class Clock:
    """A clock that stands still until it is told.

    Args:
        now_ms: the time in milliseconds since 1970 UTC; may be set at any time.
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Move on, by a whole number of milliseconds."""
        by = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        self.now_ms += round(by / timedelta(milliseconds=1))


@contextmanager
def memory_store(now_ms: int = START_MS) -> Iterator[Clock]:
    """Count in memory, from nothing, by a clock of the test's own; no Redis is needed or asked.

    Settings may change meanwhile. Rules are read from the database at each decision, so that those
    of the test are seen; usage is not recorded.

    Args:
        now_ms: where the clock starts, in milliseconds since 1970 UTC.

    Returns:
        A context manager that gives the clock. It decorates functions, too.
    """
    clock = Clock(now_ms)
    before = connections.use(MemoryStore(clock))
    try:
        yield clock
    finally:
        connections.use(before)


@contextmanager
def fresh_counters() -> Iterator[None]:
    """Count in the settings' Redis, under a name of the test's own where nothing is counted yet.

    Nothing is deleted there: what the test counts lapses with its windows. Settings may change
    meanwhile. Rules are read and usage is left as in `memory_store`.
    """
    before = connections.keep_apart(f"test-{secrets.token_hex(8)}:")
    try:
        yield
    finally:
        connections.keep_apart(before)
