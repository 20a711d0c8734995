"""The SLIDINGLIMIT setting, typed and checked.

`conf` reads `settings.SLIDINGLIMIT` when first asked, and again after the setting has changed, so
that override_settings works.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Any, Literal, cast

from django.conf import settings
from django.core.signals import setting_changed

from .errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable

Network = IPv4Network | IPv6Network
HEADER_FAMILIES = ("x-ratelimit", "ratelimit")
# As in nginx's set_real_ip_from: trust whoever speaks over a Unix socket (it has no address).
UNIX_SOCKET = "unix:"


@dataclass(frozen=True, slots=True)
class Conf:
    """The setting's parts; docs/settings.md says what each does."""

    CACHE: str = "default"
    PREFIX: str = "sl:"
    TIMEOUT: float = 0.1
    BUCKETS: int = 16384
    TRUSTED_PROXIES: tuple[Network, ...] = ()
    TRUST_UNIX_SOCKET: bool = False  # written as an entry of TRUSTED_PROXIES
    FORWARDED_HEADER: str = "X-Forwarded-For"
    IPV6_PREFIX: int = 64
    KEYS: dict[str, str] = field(default_factory=dict)
    HEADERS: tuple[str, ...] = HEADER_FAMILIES
    RESET: Literal["seconds", "epoch"] = "seconds"
    RULES_POLL: float = 0.5
    USAGE: bool = True
    USAGE_KEEP: int = 3600
    USAGE_MEMORY: int = 64 * 2**20
    USAGE_HASHED: bool = False
    USAGE_POLL: float = 2


def read() -> Conf:
    """Read and check `settings.SLIDINGLIMIT`.

    Raises:
        SettingError: a part is unknown or wrong.
    """
    settled, problems = parse()
    for problem in problems:
        raise problem
    return settled


def parse() -> tuple[Conf, list[SettingError]]:
    """What `settings.SLIDINGLIMIT` says, with defaults where it is wrong, and all that is wrong."""
    given = getattr(settings, "SLIDINGLIMIT", {})
    if not isinstance(given, dict):
        return Conf(), [SettingError("", f"must be a dict, not {given!r}.")]
    parts: dict[str, Any] = {}
    problems = []
    for name, value in given.items():
        try:
            if name not in _PARTS:
                raise ValueError(f"there is no such part. Known: {', '.join(_PARTS)}.")
            parts[name] = _PARTS[name](value)
        except ValueError as exc:
            problems.append(SettingError(name, str(exc)))
    proxies = parts.pop("TRUSTED_PROXIES", ())
    settled = Conf(
        **parts,
        TRUSTED_PROXIES=tuple(proxy for proxy in proxies if proxy != UNIX_SOCKET),
        TRUST_UNIX_SOCKET=UNIX_SOCKET in proxies,
    )
    return settled, problems


def current() -> Conf:
    """The setting as it is now; read once and kept until it changes."""
    global _conf
    kept = _conf  # another thread may be told at any time that the setting has changed
    if kept is None:
        kept = _conf = read()
    return kept


_conf: Conf | None = None


def _forget(*, setting: str, **_: object) -> None:
    global _conf
    if setting == "SLIDINGLIMIT":
        _conf = None


setting_changed.connect(_forget)


def _network(text: str) -> Network:
    """A network as addresses are compared with it: IPv4-mapped IPv6 is IPv4."""
    network = ip_network(text)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < 96:
        return network
    return IPv4Network((mapped, network.prefixlen - 96))


# Each part's parser: what is written in the settings -> what Conf holds. They raise ValueError.


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be a text, not {value!r}.")
    return value


def _prefix(value: object) -> str:
    if not isinstance(value, str) or "{" in value or "}" in value:
        raise ValueError(f"must be a text without braces, not {value!r}.")
    return value


def _whole(low: int, high: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low} to {high}, not {value!r}.")
        return value

    return parse


def _seconds(least: float) -> Callable[[object], float]:
    def parse(value: object) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not least <= cast("float", value) <= 60:
            raise ValueError(f"must be seconds from {least} to 60, not {value!r}.")
        return cast("float", value)

    return parse


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be True or False, not {value!r}.")
    return value


def _proxies(value: object) -> list[Network | str]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of networks such as 10.0.0.0/8, not {value!r}.")
    try:
        # Of text alone: a number would be read as an address.
        return [p if p == UNIX_SOCKET else _network(str(p)) for p in value]
    except ValueError as exc:
        raise ValueError(f"{exc}. Write networks such as 10.0.0.0/8, or {UNIX_SOCKET!r}.") from exc


def _forwarded_header(value: object) -> str:
    name = _text(value)
    if name.lower() == "forwarded":
        raise ValueError(
            "the Forwarded field (RFC 7239) has a syntax of its own that is not read here; name "
            "one that holds addresses alone, such as X-Forwarded-For or X-Real-IP."
        )
    # Servers drop fields with other characters; so many a name is META's, such as HTTP_X_REAL_IP.
    if not re.fullmatch("[A-Za-z0-9-]+", name):
        raise ValueError(f"must be written as on the wire, such as X-Real-IP, not {name!r}.")
    return name


def _keys(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        isinstance(k, str) and k and ":" not in k and isinstance(v, str) and "." in v
        for k, v in value.items()
    ):
        raise ValueError("must be a dict of names (without colons) to dotted paths of callables.")
    return value


def _headers(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(name in HEADER_FAMILIES for name in value):
        raise ValueError(f"must be a list of some of {', '.join(HEADER_FAMILIES)}; not {value!r}.")
    return tuple(value)


def _reset(value: object) -> str:
    if value not in ("seconds", "epoch"):
        raise ValueError(f'must be "seconds" or "epoch", not {value!r}.')
    return value


_PARTS: dict[str, Callable[[object], Any]] = {
    "CACHE": _text,
    "PREFIX": _prefix,
    "TIMEOUT": _seconds(0.001),
    "BUCKETS": _whole(1, 2**31),
    "TRUSTED_PROXIES": _proxies,
    "FORWARDED_HEADER": _forwarded_header,
    "IPV6_PREFIX": _whole(1, 128),
    "KEYS": _keys,
    "HEADERS": _headers,
    "RESET": _reset,
    "RULES_POLL": _seconds(0),
    "USAGE": _flag,
    "USAGE_KEEP": _whole(60, 86_400),
    "USAGE_MEMORY": _whole(4 * 2**20, 2**40),
    "USAGE_HASHED": _flag,
    "USAGE_POLL": _seconds(1),
}
