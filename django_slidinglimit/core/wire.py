"""The way to one Redis or Valkey server, and the scripts that are run there."""

from __future__ import annotations

import threading
import time
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

import redis
from redis.exceptions import NoScriptError, ResponseError

from .pool import own_pool, patience
from .stores import StoreBusyError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

# More than any sensible number of threads; a flood of greenlets must not open thousands.
MOST_CONNECTIONS = 256
# How long to queue for one of them while others are served, in timeouts.
LONGEST_QUEUE = 20


class Script:
    """A Lua script of this package, by its file's name."""

    def __init__(self, name: str) -> None:
        self.source = (files(__package__) / "lua" / f"{name}.lua").read_bytes()
        # Redis names scripts by SHA-1; nothing here relies on it being hard to forge.
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest()


class Wire:
    """The way to one server: a pool of our own, one deadline for each exchange.

    Args:
        pool: where connections come from; see `own_pool`.
        timeout: seconds to wait in a whole exchange: for a connection, connecting, signing in,
            loading a script and reading the reply. Resolving a host's name is not bounded by it.
            What this process itself is late (many threads, no processor) is not the server's.
    """

    def __init__(self, pool: redis.ConnectionPool, timeout: float = 0.1) -> None:
        self._pool = pool
        self._timeout = timeout
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        # Only ever compared with themselves, to see whether something happens: a count that two
        # threads raise at once may miss one.
        self._served = 0
        self._failed = 0

    @classmethod
    def from_url(cls, url: str, timeout: float = 0.1) -> Wire:
        """A wire to the server at a redis://, rediss:// or unix:// address."""
        return cls(own_pool(redis.ConnectionPool.from_url(url)), timeout)

    def script(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | int]) -> Any:
        """Run a script, and load it where the server does not know it (yet, or any more)."""

        def talk(connection: Any) -> Any:
            connection.send_command("EVALSHA", script.sha, len(keys), *keys, *args)
            try:
                return connection.read_response()
            except NoScriptError:  # answered before anything ran, so sending again is safe
                connection.send_command("EVAL", script.source, len(keys), *keys, *args)
                return connection.read_response()

        return self._exchange(talk)

    def run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run plain commands in one round trip; raises if any of them failed."""

        def talk(connection: Any) -> list[Any]:
            connection.send_packed_command(connection.pack_commands(commands))
            replies: list[Any] = []
            for _ in commands:
                try:
                    replies.append(connection.read_response())
                except ResponseError as error:  # the other replies still wait to be read
                    replies.append(error)
            for reply in replies:
                if isinstance(reply, ResponseError):
                    raise reply
            return replies

        return self._exchange(talk)

    def _exchange(self, talk: Callable[[Any], T]) -> T:
        self._wait_for_turn()
        begun = time.monotonic()
        patience.left = self._timeout
        try:
            connection = self._pool.get_connection()  # replaces one that it finds dead
            try:
                answer = talk(connection)
                self._served += 1
                return answer
            except BaseException:  # a reply may still come, or the master has moved
                connection.disconnect()  # type: ignore[no-untyped-call]
                raise
            finally:
                self._pool.release(connection)
        except Exception as exc:
            # Any failure of the wire is the store's: sockets, TLS, Sentinel, a credential provider.
            # Save that it was asked so late that most of the time went by in this process.
            busy = time.monotonic() - begun >= 2 * self._timeout
            kind = StoreBusyError if busy else StoreError
            self._failed += 1
            if not busy:  # what befell this connection may have befallen all that lie idle
                self._pool.disconnect(inuse_connections=False)
            raise kind(f"{type(exc).__name__}: {exc}") from exc
        finally:
            self._free.release()

    def _wait_for_turn(self) -> None:
        """Wait for one of the connections, as long as others are served and none fails.

        A crowd within this process is no reason to let it pass uncounted; a server that has ceased
        to answer is one to tell all who wait at once.
        """
        if self._free.acquire(blocking=False):
            return
        failed, begun = self._failed, time.monotonic()
        while True:
            served = self._served
            got_it = self._free.acquire(timeout=self._timeout)
            late = time.monotonic() - begun >= LONGEST_QUEUE * self._timeout
            if got_it and self._failed == failed:
                return
            if got_it:
                self._free.release()
            if got_it or late or self._served == served:
                raise StoreBusyError(f"All {MOST_CONNECTIONS} connections are in use.")
