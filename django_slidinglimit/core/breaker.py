"""A circuit breaker around a store, so that one that is away costs a short timeout now and then.

Closed, every call goes through. A failure opens it: calls fail at once, without a trip, until a
pause is over; then one caller tries, and success closes it. Each failed try doubles the pause.
(The pattern: Michael Nygard, "Release It!", 2007.)
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .stores import Store, StoreBusyError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .decisions import Decision, Held, Hit

A = TypeVar("A")
T = TypeVar("T")

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 4.0


class Failure(NamedTuple):
    """Why the breaker is open, its pause in seconds, and the clock's time to try again.

    `counting`: counting failed. A server that is out of memory or only a replica still answers
    what only reads, so that this alone does not prove that it counts again.
    """

    error: StoreError
    pause: float
    retry_at: float
    counting: bool


class Breaker(Store):
    """Passes calls to a store while it answers.

    Args:
        store: the store.
        on_change: called with the error when the breaker opens and with None when it closes, once
            per change.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        store: Store,
        on_change: Callable[[StoreError | None], object] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.prefix = store.prefix
        self.failure: Failure | None = None
        self._on_change = on_change
        self._clock = clock
        self._changing = Lock()
        self._trying = Lock()

    @property
    def retry_in_ms(self) -> int:
        """Milliseconds until the store is tried again; 0 when closed."""
        failure = self.failure
        return 0 if failure is None else max(0, round((failure.retry_at - self._clock()) * 1000))

    def take(self, hits: Sequence[Hit]) -> Decision:
        return self._call(self.store.take, hits, counting=True)

    def peek(self, hits: Sequence[Hit]) -> Decision:
        return self._call(self.store.peek, hits)

    def reset(self, hits: Sequence[Hit]) -> list[Held]:
        return self._call(self.store.reset, hits)

    def restore(self, held: Sequence[Held]) -> None:
        self._call(self.store.restore, held, counting=True)

    def refund(self, decision: Decision) -> None:
        self._call(self.store.refund, decision, counting=True)

    def forget_refusals(self) -> None:
        self.store.forget_refusals()

    def run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return self._call(self.store.run, commands)

    def _call(self, method: Callable[[A], T], argument: A, *, counting: bool = False) -> T:
        failure = self.failure
        if failure is None:
            return self._try(None, method, argument, counting)
        if not self._trying.acquire(blocking=False):
            raise _refusal(failure)
        try:
            failure = self.failure  # another caller may have tried since
            if failure is not None and self._clock() < failure.retry_at:
                raise _refusal(failure)
            return self._try(failure, method, argument, counting)
        finally:
            self._trying.release()

    def _try(
        self, before: Failure | None, method: Callable[[A], T], argument: A, counting: bool
    ) -> T:
        try:
            result = method(argument)
        except StoreBusyError:
            raise
        except StoreError as error:
            self._failed(before, error, counting)
            raise
        if before is not None and (counting or not before.counting):
            self._recovered()
        return result

    def _failed(self, before: Failure | None, error: StoreError, counting: bool) -> None:
        # When it is back it may have lost what it counted, and no answer from memory proves that.
        self.store.forget_refusals()
        with self._changing:
            if self.failure is not before:  # a call that was under way when it opened
                return
            pause = FIRST_PAUSE
            if before is not None:
                pause = min(before.pause * 2, LONGEST_PAUSE)
                counting = counting or before.counting
            self.failure = Failure(error, pause, self._clock() + pause, counting)
        if before is None:
            self._on_change(error)

    def _recovered(self) -> None:
        with self._changing:
            self.failure = None
        self._on_change(None)


def _refusal(failure: Failure) -> StoreError:
    error = StoreError(str(failure.error))
    error.__cause__ = failure.error
    return error
