"""Connections to Redis or Valkey: a pool of our own, which waits no longer than it may.

Only this module, wire.py and cluster.py import redis.
"""

from __future__ import annotations

import time
from copy import copy
from functools import cache
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from .sockets import PlainSocket, longest_wait, timed_socket, waited


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


@cache
def _timed(connection_class: type[Any], share: int = 1) -> type[Any]:
    """A connection class that waits no longer than the running exchange allows."""

    class Timed(connection_class):  # type: ignore[misc]
        @property
        def socket_timeout(self) -> float:
            return longest_wait(share)

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
            allowed = longest_wait(share)
            begun = time.monotonic()
            try:
                self._timed = timed_socket(super()._connect(), share)
                return self._timed
            finally:
                waited(begun, allowed)

        def is_fit(self) -> bool:
            """Whether it is open and nothing is left to be read on it."""
            reader: Any = getattr(self._parser, "_reader", None)
            if isinstance(self._timed, PlainSocket) and hasattr(reader, "has_data"):
                return not reader.has_data() and self._timed.is_fit()
            try:
                return not self.can_read()
            except (OSError, redis.RedisError):
                return False

    return Timed
