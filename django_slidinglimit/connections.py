"""A django-redis alias -> the store that this process decides with."""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.cache import caches
from django.core.signals import setting_changed
from django.utils.encoding import force_bytes
from django_redis.client import DefaultClient, ShardClient

from . import conf
from .core.breaker import Breaker
from .core.memory import MemoryStore
from .core.pool import own_pool
from .core.redis import RedisStore
from .core.refusals import RememberingStore
from .core.slots import ClusterStore
from .core.wire import Wire
from .errors import SettingError
from .signals import store_changed

if TYPE_CHECKING:
    from collections.abc import Callable

    from .core.stores import Store, StoreError

logger = logging.getLogger("django_slidinglimit")

# Seconds that a page waits for the server; nobody's request waits for a page.
PAGES_TIMEOUT = 2.0

_breaker: Breaker | None = None  # as the settings describe it
_pages: ClusterStore | None = None  # the same for pages
_making = Lock()
# What tests put in its place. Neither is dropped when settings change.
_substitute: Breaker | None = None
_apart = ""


def store() -> Breaker:
    """The store behind its breaker; made when first asked for, and anew after a change of settings.

    Raises:
        SettingError: the cache alias is no django-redis cache.
    """
    return _substitute or _breaker or _make()


def pages() -> Store:
    """The store as pages read it: past the breaker, with more patience than a request has.

    Raises:
        SettingError: the cache alias is no django-redis cache.
    """
    global _pages
    if _substitute is not None:
        return _substitute.store
    with _making:
        if _pages is None:
            _pages = ClusterStore(redis_store(max(conf.current().TIMEOUT, PAGES_TIMEOUT)))
        return _pages


def use(store: Store | None) -> Store | None:
    """Decide with another store, or (None) with the settings' again; for tests.

    Returns:
        The store that stood in the settings' place before.
    """
    global _substitute
    before = _substitute
    _substitute = None if store is None else Breaker(store, _changed)
    return before and before.store


def keep_apart(name: str) -> str:
    """Keep the counters apart from those of all others, under a name after the prefix; for tests.

    Returns:
        The name before; "" is none.
    """
    global _apart
    before, _apart = _apart, name
    _drop()
    return before


def is_shared() -> bool:
    """Whether other processes count in the same store, see its usage and the rules' version."""
    return not _apart and not isinstance(store().store, MemoryStore)


def redis_store(timeout: float | None = None) -> RedisStore:
    """A new store with a pool of its own, as the settings describe it.

    Args:
        timeout: in seconds; None: the setting's.

    Raises:
        SettingError: the cache alias is no django-redis cache, or cannot be used.
    """
    settled = conf.current()
    key_prefix, pool = server_of(settled.CACHE)
    prefix = f"{key_prefix}{settled.PREFIX}{_apart}"
    wire = Wire(own_pool(pool), timeout or settled.TIMEOUT)
    return RedisStore(wire, prefix=prefix, buckets=settled.BUCKETS, secret=secret())


def server_of(alias: str) -> tuple[str, Any]:
    """An alias's KEY_PREFIX, and a new pool to the server that it writes to; connects to nothing.

    Raises:
        SettingError: the alias is no django-redis cache with one server to write to, or its
            KEY_PREFIX has braces.
    """
    if alias not in caches.settings:
        raise SettingError("CACHE", f"CACHES has no alias {alias!r}.")
    try:
        # Not caches[alias]: django-redis 6 raises whenever Django closes a cache that is no good.
        cache: Any = caches.create_connection(alias)
        prefix: str = cache.key_prefix
        client = getattr(cache, "client", None)
        pool = None
        if isinstance(client, DefaultClient) and not isinstance(client, ShardClient):
            factory: Any = client.connection_factory
            # Of a list, and with Sentinel, the first is the one that is written to.
            params = factory.make_connection_params(next(iter(client._server)))
            pool = factory.get_connection_pool(params)
    except Exception as exc:  # django-redis, redis-py and Django each have their own
        problem = f"the cache {alias!r} cannot be used: {type(exc).__name__}: {exc}"
        raise SettingError("CACHE", problem) from exc
    if pool is None:
        found = type(client or cache)
        problem = (
            f"the cache {alias!r} is a {found.__module__}.{found.__qualname__}. Limits need a "
            "django-redis cache with one server to write to: a cache of this process alone, or "
            "several, would multiply every limit."
        )
        raise SettingError("CACHE", problem)
    if "{" in prefix or "}" in prefix:
        problem = f"the KEY_PREFIX of the cache {alias!r} may hold no braces, as {prefix!r} does."
        raise SettingError("CACHE", problem)
    return prefix, pool


@lru_cache(maxsize=1)
def secret() -> bytes:
    """The key of all digests of identities, derived from SECRET_KEY."""
    return blake2b(force_bytes(settings.SECRET_KEY), person=b"slidinglimit").digest()


def when_changed(forget: Callable[[], object]) -> None:
    """Have something forgotten whenever a setting changes that the store is made of."""

    def receive(*, setting: str, **_: object) -> None:
        if setting in ("CACHES", "SLIDINGLIMIT", "SECRET_KEY"):
            forget()

    setting_changed.connect(receive, weak=False)


def _make() -> Breaker:
    global _breaker
    with _making:
        if _breaker is None:
            _breaker = Breaker(RememberingStore(ClusterStore(redis_store())), _changed)
        return _breaker


def _changed(error: StoreError | None) -> None:
    """Tell once per change, not once per request."""
    if error is None:
        logger.warning("Redis answers again: rate limits are counted.")
    else:
        logger.error("Redis does not answer, each rule's own choice decides: %s", error)
    store_changed.send_robust(sender=Breaker, error=error)


def _drop() -> None:
    global _breaker, _pages
    with _making:
        _breaker = _pages = None


def _after_fork() -> None:
    """The parent's locks and sockets are not ours."""
    global _breaker, _pages, _making
    _breaker, _pages, _making = None, None, Lock()


when_changed(_drop)
when_changed(secret.cache_clear)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
