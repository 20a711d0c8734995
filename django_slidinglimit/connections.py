"""A django-redis alias -> the store that this process decides with."""

from __future__ import annotations

import logging
import os
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.cache import InvalidCacheBackendError, caches
from django.core.signals import setting_changed
from django.utils.encoding import force_bytes

from . import conf
from .core.breaker import Breaker
from .core.redis import RedisStore, Wire, own_pool
from .errors import SettingError
from .signals import store_changed

if TYPE_CHECKING:
    from .core.stores import Store, StoreError

logger = logging.getLogger("django_slidinglimit")

_breaker: Breaker | None = None
_making = Lock()


def store() -> Breaker:
    """The store behind its breaker; made when first asked for, and anew after a change of settings.

    Raises:
        SettingError: the cache alias is no django-redis cache.
    """
    return _breaker or _make()


def use(store: Store | None) -> None:
    """Decide with another store, or (None) with the settings' again."""
    global _breaker
    with _making:
        _breaker = None if store is None else Breaker(store, _changed)


def redis_store() -> RedisStore:
    """A new store with a pool of its own, as the settings describe it.

    Raises:
        SettingError: the cache alias is no django-redis cache, or cannot be used.
    """
    settled = conf.current()
    cache: Any = _cache(settled.CACHE)
    prefix = f"{cache.key_prefix}{settled.PREFIX}"
    if "{" in prefix or "}" in prefix:
        problem = f"the KEY_PREFIX of {settled.CACHE!r} may hold no braces, as {prefix!r} does."
        raise SettingError("CACHE", problem)
    client = cache.client
    factory = client.connection_factory
    # The first server of a list is the one that is written to.
    pool = factory.get_connection_pool(factory.make_connection_params(client._server[0]))
    wire = Wire(own_pool(pool), settled.TIMEOUT)
    return RedisStore(wire, prefix=prefix, buckets=settled.BUCKETS, secret=secret())


def secret() -> bytes:
    """The key of all digests of identities, derived from SECRET_KEY."""
    return blake2b(force_bytes(settings.SECRET_KEY), person=b"slidinglimit").digest()


def _cache(alias: str) -> Any:
    try:
        cache = caches[alias]
    except InvalidCacheBackendError as exc:
        raise SettingError("CACHE", f"CACHES has no usable alias {alias!r}: {exc}") from exc
    client = getattr(cache, "client", None)
    if not hasattr(client, "connection_factory") or not hasattr(client, "_server"):
        backend = f"{type(cache).__module__}.{type(cache).__qualname__}"
        problem = (
            f"{alias!r} is a {backend}, and limits need a django-redis cache: they must be counted "
            "for all processes together. Set its BACKEND to django_redis.cache.RedisCache, "
            "or name another alias."
        )
        raise SettingError("CACHE", problem)
    return cache


def _make() -> Breaker:
    global _breaker
    with _making:
        if _breaker is None:
            _breaker = Breaker(redis_store(), _changed)
        return _breaker


def _changed(error: StoreError | None) -> None:
    """Tell once per change, not once per request."""
    if error is None:
        logger.warning("Redis answers again: rate limits are counted.")
    else:
        logger.error("Redis does not answer, each rule's own choice decides: %s", error)
    store_changed.send_robust(sender=Breaker, error=error)


def _forget(*, setting: str, **_: object) -> None:
    if setting in ("CACHES", "SLIDINGLIMIT", "SECRET_KEY"):
        use(None)


def _after_fork() -> None:
    """The parent's locks and sockets are not ours."""
    global _breaker, _making
    _breaker, _making = None, Lock()


setting_changed.connect(_forget)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
