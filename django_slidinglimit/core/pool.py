"""Connections to Redis or Valkey: a pool of our own, which waits no longer than it may.

Only this module, wire.py and cluster.py import redis.
"""

from __future__ import annotations

import _socket
import socket
import ssl
import struct
import threading
import time
from copy import copy
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

if TYPE_CHECKING:
    from collections.abc import Callable


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


def pool_of_node(source: redis.ConnectionPool, host: str, port: int) -> redis.ConnectionPool:
    """A pool to another node of a cluster, whose nodes are asked alike.

    Args:
        source: a pool of `own_pool` to one of its nodes.
        host, port: the other's address.
    """
    settings = {k: v for k, v in source.connection_kwargs.items() if k not in _POOL_INTERNALS}
    settings |= {"host": host, "port": port, "connection_class": source.connection_class}
    return redis.ConnectionPool(max_connections=source.max_connections, **settings)


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


patience = _Patience()


# A wait that is longer by so much, in seconds, is not worth telling the kernel.
_NEGLIGIBLE = 0.0005
# A thread that was let run so soon after sending, in seconds, has not been late.
_PROMPT = 0.001


@cache
def _timed(connection_class: type[Any], share: int = 1) -> type[Any]:
    """A connection class that waits no longer than the running exchange allows."""

    class Timed(connection_class):  # type: ignore[misc]
        @property
        def socket_timeout(self) -> float:
            return _allowed(share)

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
            allowed = _allowed(share)
            begun = time.monotonic()
            try:
                self._timed = _timed_socket(super()._connect(), share)
                return self._timed
            finally:
                _waited(begun, allowed)

        def is_fit(self) -> bool:
            """Whether it is open and nothing is left to be read on it."""
            reader: Any = getattr(self._parser, "_reader", None)
            if isinstance(self._timed, _PlainSocket) and hasattr(reader, "has_data"):
                return not reader.has_data() and self._timed.is_fit()
            try:
                return not self.can_read()
            except (OSError, redis.RedisError):
                return False

    return Timed


def _allowed(share: int) -> float:
    """For how many seconds a wait for the server may last."""
    return max(patience.left / share, 0.001)


def _waited(begun: float, allowed: float) -> None:
    """Take a wait off what is left.

    No more than was allowed: what goes by until this thread runs again is not the server's.
    """
    patience.left -= min(time.monotonic() - begun, allowed)


def _timed_socket(sock: Any, share: int) -> Any:
    """A socket that waits no longer than it may."""
    if isinstance(sock, _socket.socket) and not isinstance(sock, ssl.SSLSocket):
        return _PlainSocket(sock, share)
    return _TimedSocket(sock, share)  # TLS, and gevent's sockets, which are not the kernel's


class _PlainSocket:
    """A socket whose waits the kernel ends.

    To wait and to read is then one call, where Python's own timeouts take four; and what has come
    already is taken, however late the process is.
    """

    def __init__(self, sock: Any, share: int) -> None:
        sock.settimeout(None)
        self._sock = sock
        self._share = share
        self._allowed = 0.0  # as the kernel was told last
        self._looks = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def settimeout(self, seconds: float | None) -> None:
        """With 0 the pool only looks whether something has come; other waits are ours."""
        self._looks = seconds == 0

    def is_fit(self) -> bool:
        """Whether it is open and nothing is left to be read on it."""
        try:
            self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def sendall(self, data: bytes) -> None:
        self._wait(self._sock.sendall, data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        if self._looks:
            flags |= socket.MSG_DONTWAIT
        received: bytes = self._wait(self._sock.recv, size, flags)
        return received

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        if self._looks:
            flags |= socket.MSG_DONTWAIT
        count: int = self._wait(self._sock.recv_into, buffer, size, flags)
        return count

    def _wait(self, call: Callable[..., Any], *args: Any) -> Any:
        allowed = _allowed(self._share)
        if abs(allowed - self._allowed) > _NEGLIGIBLE:
            seconds, rest = divmod(allowed, 1)
            told = struct.pack("ll", int(seconds), int(rest * 1e6))
            for which in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._sock.setsockopt(socket.SOL_SOCKET, which, told)
            self._allowed = allowed
        begun = time.monotonic()
        try:
            return call(*args)
        except BlockingIOError as exc:
            if self._looks:
                raise
            raise TimeoutError("timed out") from exc
        finally:
            _waited(begun, allowed)


class _TimedSocket:
    """A socket whose every wait is as long as it then may be, however many one reply takes.

    What has come already is taken without a wait. So a process with more to do than it has time
    for, whose threads run long after their replies came, does not take the server for slow.
    """

    def __init__(self, sock: Any, share: int) -> None:
        self._sock = sock
        self._share = share
        self._sent = 0.0  # when sending last began
        self.recv = partial(self._read, sock.recv)
        self.recv_into = partial(self._read, sock.recv_into)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendall(self, data: bytes) -> None:
        self._sent = time.monotonic()
        sent: int = self._at_once(self._sock.send, data) or 0
        if sent < len(data):
            self._wait(self._sock.sendall, data[sent:])

    def _read(self, read: Callable[..., Any], *args: Any) -> Any:
        allowed = self._sock.gettimeout()
        if not allowed:  # 0: the pool only looks whether something has come
            return read(*args)
        begun = time.monotonic()
        if begun - self._sent > _PROMPT:
            come = self._at_once(read, *args)
            return self._wait(read, *args) if come is None else come
        try:  # hardly anything comes so soon
            return read(*args)
        finally:
            _waited(begun, allowed)

    def _wait(self, call: Callable[..., Any], *args: Any) -> Any:
        allowed = _allowed(self._share)
        self._sock.settimeout(allowed)
        begun = time.monotonic()
        try:
            return call(*args)
        finally:
            _waited(begun, allowed)

    def _at_once(self, call: Callable[..., Any], *args: Any) -> Any:
        """What the call gives without a wait; None if it would have to."""
        self._sock.settimeout(0)
        try:
            return call(*args)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        finally:
            self._sock.settimeout(_allowed(self._share))  # never 0, which has a meaning above
