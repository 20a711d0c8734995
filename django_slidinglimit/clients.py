"""Who is asking: a request -> a Client, by a key's name.

Identities are bounded and hold no secret: one from a header, the query or a form becomes a keyed
digest and its last four characters; one over 128 characters is cut, with a digest.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from . import addresses, conf, connections
from .core.decisions import Client
from .core.redis import HASHED, digest

if TYPE_CHECKING:
    from django.http import HttpRequest

logger = logging.getLogger("django_slidinglimit")

KeyFunction = Callable[[str, Any], Any]

BUILT_IN = ("ip", "user", "user_or_ip", "global")
PREFIXES = ("header:", "get:", "post:")
ACCEPTED = (
    "ip, user, user_or_ip, global, header:<name>, get:<name>, post:<name> or a name in "
    'SLIDINGLIMIT["KEYS"]'
)
LONGEST = 128
# An identity that `concealed` has made.
_CONCEALED = re.compile("[0-9a-f]{16}~.{0,4}", re.DOTALL)


class Key(NamedTuple):
    """How a place or a rule tells its clients apart.

    `find` takes the group (the scope) and the request; None means that there is no identity.
    `by_group`: whether it may find another client for another group.
    """

    name: str
    find: Callable[[str, HttpRequest], Client | None]
    by_group: bool = False

    def client(self, group: str, request: Any, known: dict[Key, Client | None]) -> Client | None:
        """Who asks, found once for all groups if that is the same for all.

        Args:
            group: the group.
            request: the request.
            known: what was found for this request before.
        """
        if self.by_group:
            return self.find(group, request)
        if self not in known:
            known[self] = self.find(group, request)
        return known[self]


def key(given: str | KeyFunction) -> Key:
    """The key that code names: a name, a callable `(group, request)`, or its dotted path.

    Callables of one module and qualified name (those that a factory makes) count as one key; give
    them a `__qualname__` each where one scope uses several. Lambdas are told apart by their line.

    Raises:
        ImproperlyConfigured: there is no such key; the message says what is accepted.
    """
    if callable(given):
        return _own(_name_of(given), given)
    if not isinstance(given, str):
        raise _unknown(given)
    if "." in given and not given.startswith(PREFIXES) and given not in conf.current().KEYS:
        return _own(given, _load(given))
    return named(given)


def named(name: str) -> Key:
    """The key that a database rule names: as `key`, but the project's own only by registered name.

    Raises:
        ImproperlyConfigured: there is no such key; the message says what is accepted.
    """
    found = _BUILT_IN.get(name)
    if found is not None:
        return Key(name, found)
    source, _, field = name.partition(":")
    field = field.strip()
    if field and source in _SOURCES:
        field = field.lower() if source == "header" else field
        return _from_source(f"{source}:{field}", _SOURCES[source](field))
    path = conf.current().KEYS.get(name)
    if path is None:
        raise _unknown(name)
    return _own(name, _load(path))


def settled(kind: str, identity: str) -> Client:
    """A client as it is counted, from what an operator writes.

    Args:
        kind: what a rule's key counts: user, ip, global, header:<name> and so on.
        identity: a primary key, an address, or a header's value; a digest that stands on a page
            stays what it is. Empty: the requests without identity.

    Raises:
        ValueError: no client has such a kind or identity; the message says what to write.
    """
    kind, identity = kind.strip(), identity.strip()
    source, colon, field = kind.partition(":")
    if source == "header":
        kind = f"{source}:{field.strip().lower()}"
    if not kind or kind == "user_or_ip" or (colon and not field.strip()):
        raise ValueError("Name the kind of client, such as user, ip or header:x-api-key.")
    if kind in ("ip", "global") and identity:
        network = addresses.parse_network(identity) if kind == "ip" else None
        widest = conf.current().IPV6_PREFIX if network and network.version == 6 else 32
        if network is None or network.prefixlen < widest:
            raise ValueError(f"{identity!r} is not the {kind} of one client; write an address.")
        return cast("Client", by_address(network.network_address))
    if kind.startswith(PREFIXES) and identity and not _CONCEALED.fullmatch(identity):
        return concealed(kind, identity)
    return bounded(kind, identity)


def is_known(kind: str) -> bool:
    """Whether a key is known that counts clients of a kind; the project's code may have others."""
    known = ("user", "ip", "global", "key", *conf.current().KEYS)
    return kind in known or kind.startswith(PREFIXES)


def without_identity(name: str) -> Client:
    """The client that stands for all requests without an identity under a key."""
    if name not in _warned:
        _warned.add(name)
        logger.warning(
            "A request has no identity for the key %r: all such requests are counted together. "
            "A rule's no_identity can let them through or refuse them instead.",
            name,
        )
    return Client(name, "")


def by_address(address: addresses.Address | None) -> Client | None:
    """The client that an address counts as: itself, or its IPv6 network."""
    if address is None:
        return None
    prefix = 32 if address.version == 4 else conf.current().IPV6_PREFIX
    return Client("ip", _network(address, prefix))


def bounded(kind: str, identity: str) -> Client:
    """A client whose identity is cut, with a digest, where it is long."""
    if len(identity) > LONGEST:
        digest = _digest(identity)
        identity = f"{identity[: LONGEST - len(digest) - 1]}~{digest}"
    return Client(kind, identity)


def concealed(kind: str, value: str) -> Client:
    """A client known by a secret's digest and, if it is long enough, its last four characters."""
    tail = value[-4:] if len(value) >= 12 else ""
    return Client(kind, f"{_digest(value)}~{tail}")


def hashed(client: Client) -> Client:
    """The client known by nothing but the digest under which it is counted."""
    if client.kind.startswith(HASHED) or not client.identity:
        return client
    return Client(f"{HASHED}{client.kind}", digest(client, connections.secret()).hex())


def _ip(_group: str, request: HttpRequest) -> Client | None:
    return by_address(addresses.address_of(request))


def _user(_group: str, request: HttpRequest) -> Client | None:
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated or user.pk in (None, ""):
        return None
    return bounded("user", str(user.pk))


def _user_or_ip(group: str, request: HttpRequest) -> Client | None:
    return _user(group, request) or _ip(group, request)


def _global(_group: str, _request: HttpRequest) -> Client:
    return Client("global", "")


_BUILT_IN: dict[str, Callable[[str, HttpRequest], Client | None]] = {
    "ip": _ip,
    "user": _user,
    "user_or_ip": _user_or_ip,
    "global": _global,
}


def _header(field: str) -> Callable[[HttpRequest], str | None]:
    meta = field.upper().replace("-", "_")
    if meta not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        meta = f"HTTP_{meta}"
    return lambda request: request.META.get(meta)


_SOURCES: dict[str, Callable[[str], Callable[[HttpRequest], str | None]]] = {
    "header": _header,
    "get": lambda field: lambda request: request.GET.get(field),
    "post": lambda field: lambda request: request.POST.get(field),
}


def _from_source(name: str, read: Callable[[HttpRequest], str | None]) -> Key:
    def find(_group: str, request: HttpRequest) -> Client | None:
        value = read(request)
        return concealed(name, value) if value else None

    return Key(name, find)


def _own(name: str, function: KeyFunction) -> Key:
    if iscoroutinefunction(function):  # each of its coroutines would be a client of its own
        raise ImproperlyConfigured(f"The key {name!r} must be a plain function, not `async def`.")

    def find(group: str, request: HttpRequest) -> Client | None:
        found = function(group, request)
        if found is None or found == "":
            return None
        kind, identity = found if isinstance(found, Client) else (name, found)
        return bounded(kind, str(identity))

    return Key(name, find, by_group=True)


def _name_of(function: KeyFunction) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if name.endswith("<lambda>"):
        name += f":{function.__code__.co_firstlineno}"
    return f"{function.__module__}.{name}"


def _unknown(given: object) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{given!r} is not a key. Known: {ACCEPTED}.")


def _load(path: str) -> KeyFunction:
    try:
        function = import_string(path)
    except Exception as exc:  # a module may raise anything as it is imported
        raise ImproperlyConfigured(f"The key {path!r} cannot be imported: {exc}") from exc
    if not callable(function):
        raise ImproperlyConfigured(f"The key {path!r} is no callable (group, request).")
    return cast("KeyFunction", function)


@lru_cache(maxsize=4096)
def _network(address: addresses.Address, prefix: int) -> str:
    return str(address if address.version == 4 else ip_network((address, prefix), strict=False))


def _digest(text: str) -> str:
    data, secret = text.encode(errors="surrogatepass"), connections.secret()
    return blake2b(data, digest_size=8, key=secret).hexdigest()


_warned: set[str] = set()
