"""The way to one Redis or Valkey server, and the scripts that are run there."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from hashlib import sha1
from importlib.resources import files
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import redis
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    MovedError,
    NoScriptError,
    ResponseError,
    TryAgainError,
)

from .pool import own_pool
from .sockets import patience
from .stores import StoreBusyError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

# More than any sensible number of threads; a flood of greenlets must not open thousands.
MOST_CONNECTIONS = 256
# How long to queue for one of them while others are served, in timeouts.
LONGEST_QUEUE = 20
# For how many seconds a connection is kept from the pool, which may have something to do with it:
# sign in anew, or leave a master that is none any more.
LONGEST_AWAY = 1.0


# How a node of a cluster says that it has not executed a command.
REDIRECTIONS = (MovedError, AskError, TryAgainError, ClusterCrossSlotError)


class ElsewhereError(StoreError):
    """The server is a node of a cluster, and did nothing: another is to be asked, or it later.

    Args:
        reply: what it answered.
    """

    def __init__(self, reply: Exception) -> None:
        super().__init__(f"{type(reply).__name__}: {reply}")
        self.reply = reply


class Script:
    """A Lua script of this package, by its file's name."""

    def __init__(self, name: str) -> None:
        self.source = (files(__package__) / "lua" / f"{name}.lua").read_bytes()
        # Redis names scripts by SHA-1; nothing here relies on it being hard to forge.
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest()

    def call(self, keys: Sequence[bytes], args: Sequence[bytes]) -> bytes:
        """The command that runs the script, as it is sent: an array of strings in RESP.

        redis-py's way to pack a command takes three times as long.
        """
        words = (*keys, *args)
        count = b"%d" % len(keys)
        return b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$%d\r\n%b\r\n%b" % (
            len(words) + 3,
            self.sha.encode(),
            len(count),
            count,
            b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words]),
        )


class Wire:
    """The way to one server: a pool of our own, one deadline for each exchange.

    Args:
        pool: where connections come from; see `own_pool`.
        timeout: seconds to wait in a whole exchange: for a connection, connecting, signing in,
            loading a script and reading the reply. Resolving a host's name is not bounded by it.
            What this process itself is late (many threads, no processor) is not the server's.
    """

    def __init__(self, pool: redis.ConnectionPool, timeout: float = 0.1) -> None:
        self.pool = pool
        self.timeout = timeout
        # One for each connection that may be in use, handed over as they come: to give back to a
        # semaphore may wait, under gevent, and whoever is interrupted there never gives it back.
        self._turns: SimpleQueue[None] = SimpleQueue()
        for _ in range(MOST_CONNECTIONS):
            self._turns.put(None)
        # Connections between two exchanges, each with the time until when it is kept here. To give
        # one back and have the pool look it up costs half as much as a whole exchange.
        self._idle: list[tuple[Any, float]] = []
        self._pid = os.getpid()
        # Only ever compared with themselves, to see whether something happens: a count that two
        # threads raise at once may miss one.
        self._served = 0
        self._failed = 0

    @classmethod
    def from_url(cls, url: str, timeout: float = 0.1) -> Wire:
        """A wire to the server at a redis://, rediss:// or unix:// address."""
        return cls(own_pool(redis.ConnectionPool.from_url(url)), timeout)

    @property
    def host(self) -> str:
        """Where the server is."""
        return str(self.pool.connection_kwargs.get("host", "localhost"))

    def script(
        self, script: Script, keys: Sequence[bytes], args: Sequence[bytes], *, asking: bool = False
    ) -> Any:
        """Run a script, and load it where the server does not know it (yet, or any more).

        Args:
            script: the script.
            keys, args: what it is called with.
            asking: tell a node of a cluster that a slot's keys are on their way to it.
        """

        def talk(connection: Any) -> Any:
            if asking:
                _ask(connection)
            connection.send_packed_command((script.call(keys, args),))
            try:
                return connection.read_response()
            except NoScriptError:  # answered before anything ran, so sending again is safe
                if asking:
                    _ask(connection)
                connection.send_command("EVAL", script.source, len(keys), *keys, *args)
                return connection.read_response()

        return self._exchange(talk)

    def run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run plain commands in one round trip; raises if any of them failed."""

        def talk(connection: Any) -> list[Any]:
            replies = _replies(connection, commands)
            for reply in replies:
                if isinstance(reply, ResponseError):
                    raise reply
            return replies

        return self._exchange(talk)

    def replies(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """As `run`, but with the errors of commands in place of their replies."""
        return self._exchange(lambda connection: _replies(connection, commands))

    def _exchange(self, talk: Callable[[Any], T]) -> T:
        self._wait_for_turn()
        begun = time.monotonic()
        patience.left = self.timeout
        try:
            connection, until = self._connection(begun)
            try:
                answer = talk(connection)
            except BaseException:  # a reply may still come, or the master has moved
                connection.disconnect()
                self.pool.release(connection)
                raise
            self._idle.append((connection, until))
            self._served += 1
            return answer
        except REDIRECTIONS as exc:
            raise ElsewhereError(exc) from exc
        except Exception as exc:
            # Any failure of the wire is the store's: sockets, TLS, Sentinel, a credential provider.
            # Save that it was asked so late that most of the time went by in this process.
            busy = time.monotonic() - begun >= 2 * self.timeout
            kind = StoreBusyError if busy else StoreError
            self._failed += 1
            if not busy:  # what befell this connection may have befallen all that lie idle
                self._release_idle()
                self.pool.disconnect(inuse_connections=False)
            raise kind(f"{type(exc).__name__}: {exc}") from exc
        finally:
            self._turns.put(None)

    def _connection(self, now: float) -> tuple[Any, float]:
        """A connection that is fit to be sent on, and the time until when it is kept here."""
        if self._pid == os.getpid():
            try:
                connection, until = self._idle.pop()
            except IndexError:  # all are in use
                return self.pool.get_connection(), now + LONGEST_AWAY
            fit = False
            try:
                fit = now < until and connection.is_fit()
            finally:  # under gevent, looking may be interrupted
                if not fit:
                    self.pool.release(connection)
            if fit:
                return connection, until
        # With all of them, the pool replaces those that are dead or lead to an old master.
        self._release_idle()
        return self.pool.get_connection(), now + LONGEST_AWAY

    def _release_idle(self) -> None:
        if self._pid != os.getpid():  # the parent's, which the pool does not know here
            self._idle, self._pid = [], os.getpid()
        with suppress(IndexError):
            while True:
                self.pool.release(self._idle.pop()[0])

    def _wait_for_turn(self) -> None:
        """Wait for one of the connections, as long as others are served and none fails.

        A crowd within this process is no reason to let it pass uncounted; a server that has ceased
        to answer is one to tell all who wait at once.
        """
        if self._has_turn():
            return
        failed, begun = self._failed, time.monotonic()
        while True:
            served = self._served
            got_it = self._has_turn(self.timeout)
            late = time.monotonic() - begun >= LONGEST_QUEUE * self.timeout
            if got_it and self._failed == failed:
                return
            if got_it:
                self._turns.put(None)
            if got_it or late or self._served == served:
                raise StoreBusyError(f"All {MOST_CONNECTIONS} connections are in use.")

    def _has_turn(self, timeout: float | None = None) -> bool:
        try:
            self._turns.get(timeout is not None, timeout)
        except Empty:
            return False
        return True


def _replies(connection: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    connection.send_packed_command(connection.pack_commands(commands))
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(connection.read_response())
        except ResponseError as error:  # the other replies still wait to be read
            replies.append(error)
    return replies


def _ask(connection: Any) -> None:
    connection.send_command("ASKING")
    connection.read_response()
