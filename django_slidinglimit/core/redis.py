"""Counters in Redis or Valkey: the keys, the scripts and the wire. Only this module imports redis.

Layout: a rule's clients live in a fixed number of hash buckets, two keys a bucket, for even and odd
windows: `<prefix>{<bucket>}:<rule>:<window ms>:<0 or 1>`. Only the bucket stands in braces, so
that in a cluster all rules of one client share a slot.
"""

from __future__ import annotations

import ssl
import threading
import time
from contextlib import contextmanager
from copy import copy
from functools import cache
from hashlib import blake2b, sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from .decisions import Client, Counter, Decision
from .stores import Store, StoreBusyError, StoreError, charges, decide
from .window import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .decisions import Hit

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


TAKE = Script("take")
REFUND = Script("refund")


class RedisStore(Store):
    """Counts in Redis or Valkey, in one round trip for any number of hits.

    Args:
        wire: the way to the server.
        prefix: what all keys begin with; without braces.
        buckets: hash buckets a rule; changing it hands out a fresh allowance.
        secret: the key of the digest under which clients are kept, 64 bytes at most; changing it
            hands out a fresh allowance.
    """

    def __init__(
        self, wire: Wire, *, prefix: str = "sl:", buckets: int = 16384, secret: bytes = b""
    ) -> None:
        if "{" in prefix or "}" in prefix:
            raise ValueError(f"The prefix {prefix!r} may hold no braces: they mark the bucket.")
        self.wire = wire
        self.prefix = prefix
        self._buckets = buckets
        self._secret = secret

    def take(self, hits: Sequence[Hit]) -> Decision:
        if not hits:
            return Decision()
        readings, now = self._ask(hits, [hit.cost for hit in hits])
        return decide(hits, readings, charges(hits, readings), now)

    def peek(self, hits: Sequence[Hit]) -> Decision:
        if not hits:
            return Decision()
        readings, now = self._ask(hits, [0] * len(hits))
        return decide(hits, readings, {}, now)

    def reset(self, hits: Sequence[Hit]) -> None:
        commands = []
        for counter in {hit.counter for hit in hits}:
            even, odd, field = self._place(counter)
            commands += [("HDEL", even, field), ("HDEL", odd, field)]
        self.run(commands)

    def refund(self, decision: Decision) -> None:
        if decision.time_ms is None:
            return
        keys: list[bytes] = []
        args: list[bytes | int] = []
        for counter, cost in decision.charges.items():
            number = decision.time_ms // counter.window_ms
            *buckets, field = self._place(counter)
            keys.append(buckets[number % 2])
            args += [field, number, cost]
        if keys:
            self.wire.script(REFUND, keys, args)

    def run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return self.wire.run(commands) if commands else []

    def _ask(self, hits: Sequence[Hit], costs: Sequence[int]) -> tuple[dict[Counter, Reading], int]:
        keys: list[bytes] = []
        args: list[bytes | int] = []
        indices: dict[Counter, int] = {}
        for hit in hits:
            if hit.counter not in indices:
                indices[hit.counter] = len(indices) + 1
                even, odd, field = self._place(hit.counter)
                keys += [even, odd]
                args += [field, hit.counter.window_ms]
        for hit, cost in zip(hits, costs, strict=True):
            # A cost above every limit asks the same as the least such cost, and stays exact in Lua.
            limit = hit.rule.rate.limit
            args += [indices[hit.counter], limit, min(cost, limit + 1), int(not hit.rule.observe)]
        reply = self.wire.script(TAKE, keys, args)
        try:
            now, *counts = map(int, reply)
            pairs = list(zip(counts[::2], counts[1::2], strict=True))
        except (TypeError, ValueError) as exc:
            raise StoreError(f"The server's answer to a script makes no sense: {exc}") from exc
        if len(pairs) != len(indices):
            raise StoreError(f"The server answered for {len(pairs)} counters of {len(indices)}.")
        return {
            counter: Reading(previous, current, now % counter.window_ms)
            for counter, (previous, current) in zip(indices, pairs, strict=True)
        }, now

    def _place(self, counter: Counter) -> tuple[bytes, bytes, bytes]:
        """The counter's keys for even and odd windows, and its field in both."""
        field = self._field(counter.client)
        bucket = int.from_bytes(field) % self._buckets
        key = f"{self.prefix}{{{bucket}}}:{counter.rule}:{counter.window_ms}:".encode()
        return key + b"0", key + b"1", field

    def _field(self, client: Client) -> bytes:
        # The kind's length goes first, so that no two pairs of kind and identity read alike.
        kind = client.kind.encode(errors="surrogatepass")
        identity = client.identity.encode(errors="surrogatepass")
        text = len(kind).to_bytes(4) + kind + identity
        return blake2b(text, digest_size=8, key=self._secret).digest()


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
        _patience.left = self._timeout
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


def own_pool(source: redis.ConnectionPool) -> redis.ConnectionPool:
    """A pool of our own to the same server as another pool.

    Server, credentials, database, TLS and Sentinel set-up are taken over. Timeouts (what the
    running exchange allows), retries (none), health checks (none: a trip more, and the pool looks
    at each connection anyway), replies (bytes, RESP2) and the pool's size are ours.
    """
    ours: dict[str, Any] = {
        "max_connections": 2**31 - 1,
        "health_check_interval": 0,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
        "decode_responses": False,
        "protocol": 2,
    }
    theirs = {k: v for k, v in source.connection_kwargs.items() if k not in _POOL_INTERNALS}
    kind = _timed(source.connection_class)
    settings = {**theirs, **ours, "connection_class": kind}
    if not isinstance(source, SentinelConnectionPool):
        return redis.ConnectionPool(**settings)
    manager = copy(source.sentinel_manager)
    manager.sentinels = [
        redis.Redis(connection_pool=_sentinel_pool(client, ours, len(manager.sentinels)))
        for client in manager.sentinels
    ]
    pool: Any = SentinelConnectionPool
    own: redis.ConnectionPool = pool(
        source.service_name, _Sentinels(manager), is_master=True, **settings
    )
    return own


# What pools put among their connections' arguments for themselves.
_POOL_INTERNALS = {"connection_pool", "event_dispatcher", "himport_registry"} | {
    "maint_notifications_config",
    "maint_notifications_pool_handler",
}


def _sentinel_pool(client: Any, ours: dict[str, Any], share: int) -> redis.ConnectionPool:
    source = client.connection_pool
    theirs = {k: v for k, v in source.connection_kwargs.items() if k not in _POOL_INTERNALS}
    # A sentinel that hangs must leave the others some of the time.
    kind = _timed(source.connection_class, share)
    return redis.ConnectionPool(**{**theirs, **ours, "connection_class": kind})


class _Sentinels:
    """Sentinels that many threads may ask at once.

    redis-py moves the one that answered to the front by swapping entries of its list; two threads
    that do so together put it there twice, and another is lost for good.
    """

    def __init__(self, manager: Sentinel) -> None:
        self._manager = manager

    def discover_master(self, service_name: str) -> tuple[str, int]:
        asked: Any = copy(self._manager)
        asked.sentinels = list(asked.sentinels)
        address: tuple[str, int] = asked.discover_master(service_name)
        self._manager.sentinels = asked.sentinels
        return address


class _Patience(threading.local):
    """For how many seconds this thread may still wait for the server in the running exchange."""

    left = 0.0


_patience = _Patience()


@contextmanager
def _waiting(share: int = 1) -> Iterator[float]:
    """A wait for the server: gives the seconds that it may take, and takes them off the rest."""
    allowed = max(_patience.left / share, 0.001)
    begun = time.monotonic()
    try:
        yield allowed
    finally:
        # No more than was allowed: what goes by until this thread runs again is not the server's.
        _patience.left -= min(time.monotonic() - begun, allowed)


@cache
def _timed(connection_class: type[Any], share: int = 1) -> type[Any]:
    """A connection class that waits no longer than the running exchange allows."""

    class Timed(connection_class):  # type: ignore[misc]
        @property
        def socket_timeout(self) -> float:
            return max(_patience.left / share, 0.001)

        @socket_timeout.setter
        def socket_timeout(self, value: float | None) -> None:
            pass  # ours is computed

        socket_connect_timeout = socket_timeout

        def connect(self) -> None:
            try:
                super().connect()
            except BaseException:  # half-way through signing in: a reply may still come
                self.disconnect()
                raise

        def _connect(self) -> Any:
            with _waiting(share):
                return _TimedSocket(super()._connect(), share)

    return Timed


class _TimedSocket:
    """A socket whose every wait is as long as it then may be, however many one reply takes.

    What has come already is taken without a wait. So a process with more to do than it has time
    for, whose threads run long after their replies came, does not take the server for slow.
    """

    def __init__(self, sock: Any, share: int) -> None:
        self._sock = sock
        self._share = share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendall(self, data: bytes) -> None:
        sent: int = self._at_once(self._sock.send, data) or 0
        if sent < len(data):
            with _waiting(self._share) as allowed:
                self._sock.settimeout(allowed)
                self._sock.sendall(data[sent:])

    def recv(self, *args: Any) -> bytes:
        data: bytes = self._read(self._sock.recv, *args)
        return data

    def recv_into(self, *args: Any) -> int:
        size: int = self._read(self._sock.recv_into, *args)
        return size

    def _read(self, read: Callable[..., Any], *args: Any) -> Any:
        if not self._sock.gettimeout():  # 0: the pool only looks whether something has come
            return read(*args)
        come = self._at_once(read, *args)
        if come is not None:
            return come
        with _waiting(self._share) as allowed:
            self._sock.settimeout(allowed)
            return read(*args)

    def _at_once(self, call: Callable[..., Any], *args: Any) -> Any:
        """What the call gives without a wait; None if it would have to."""
        self._sock.settimeout(0)
        try:
            return call(*args)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        finally:
            self._sock.settimeout(1)  # not 0, which has a meaning above; each wait sets its own
