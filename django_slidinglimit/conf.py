"""The SLIDINGLIMIT setting, typed and checked.

`conf` reads `settings.SLIDINGLIMIT` when first asked, and again after the setting has changed, so
that override_settings works.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Literal, cast

from django.conf import settings
from django.core.signals import setting_changed

from .errors import SettingError

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
    TRUST_UNIX_SOCKET: bool = False
    FORWARDED_HEADER: str = "X-Forwarded-For"
    IPV6_PREFIX: int = 64
    KEYS: dict[str, str] = field(default_factory=dict)
    HEADERS: tuple[str, ...] = HEADER_FAMILIES
    RESET: Literal["seconds", "epoch"] = "seconds"
    RULES_POLL: float = 0.5
    USAGE: bool = True


# TRUST_UNIX_SOCKET is written as an entry of TRUSTED_PROXIES.
NAMES = tuple(f.name for f in fields(Conf) if f.name != "TRUST_UNIX_SOCKET")


def read() -> Conf:
    """Read and check `settings.SLIDINGLIMIT`.

    Raises:
        SettingError: a part is unknown or wrong.
    """
    given = getattr(settings, "SLIDINGLIMIT", {})
    if not isinstance(given, dict):
        raise SettingError("", f"SLIDINGLIMIT must be a dict, not {given!r}.")
    for name in given:
        if name not in NAMES:
            raise SettingError(name, f"there is no such setting. Known: {', '.join(NAMES)}.")
    parts: dict[str, Any] = dict(given)
    for name, value in given.items():
        _CHECKS[name](name, value)
    if "TRUSTED_PROXIES" in parts:
        proxies = [str(p) for p in parts["TRUSTED_PROXIES"]]
        parts["TRUST_UNIX_SOCKET"] = UNIX_SOCKET in proxies
        parts["TRUSTED_PROXIES"] = tuple(_network(p) for p in proxies if p != UNIX_SOCKET)
    if "HEADERS" in parts:
        parts["HEADERS"] = tuple(parts["HEADERS"])
    return Conf(**parts)


def current() -> Conf:
    """The setting as it is now; read once and kept until it changes."""
    global _conf
    if _conf is None:
        _conf = read()
    return _conf


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


def _text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise SettingError(name, f"must be a text, not {value!r}.")


def _prefix(name: str, value: object) -> None:
    if not isinstance(value, str) or "{" in value or "}" in value:
        raise SettingError(name, f"must be a text without braces, not {value!r}.")


def _whole(low: int, high: int) -> Any:
    def check(name: str, value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            problem = f"must be a whole number from {low} to {high}, not {value!r}."
            raise SettingError(name, problem)

    return check


def _seconds(zero: bool) -> Any:
    def check(name: str, value: object) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        least = 0 if zero else 0.001
        if not number or not least <= cast("float", value) <= 60:
            raise SettingError(name, f"must be seconds from {least} to 60, not {value!r}.")

    return check


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise SettingError(name, f"must be True or False, not {value!r}.")


def _proxies(name: str, value: object) -> None:
    if not isinstance(value, list | tuple):
        raise SettingError(name, f"must be a list of networks such as 10.0.0.0/8, not {value!r}.")
    for network in value:
        try:
            if network != UNIX_SOCKET:
                ip_network(network)
        except ValueError as exc:
            problem = f"{exc}. Write networks such as 10.0.0.0/8, or {UNIX_SOCKET!r}."
            raise SettingError(name, problem) from exc


def _forwarded_header(name: str, value: object) -> None:
    _text(name, value)
    if str(value).lower() == "forwarded":
        problem = (
            "the Forwarded field (RFC 7239) has a syntax of its own that is not read here; name "
            "one that holds addresses alone, such as X-Forwarded-For or X-Real-IP."
        )
        raise SettingError(name, problem)


def _keys(name: str, value: object) -> None:
    if not isinstance(value, dict) or not all(
        isinstance(k, str) and k and ":" not in k and isinstance(v, str) for k, v in value.items()
    ):
        problem = "must be a dict of names (without colons) to dotted paths of callables."
        raise SettingError(name, problem)


def _headers(name: str, value: object) -> None:
    if not isinstance(value, list | tuple) or not set(value) <= set(HEADER_FAMILIES):
        problem = f"must be a list of some of {', '.join(HEADER_FAMILIES)}; not {value!r}."
        raise SettingError(name, problem)


def _reset(name: str, value: object) -> None:
    if value not in ("seconds", "epoch"):
        raise SettingError(name, f'must be "seconds" or "epoch", not {value!r}.')


_CHECKS: dict[str, Any] = {
    "CACHE": _text,
    "PREFIX": _prefix,
    "TIMEOUT": _seconds(zero=False),
    "BUCKETS": _whole(1, 2**31),
    "TRUSTED_PROXIES": _proxies,
    "FORWARDED_HEADER": _forwarded_header,
    "IPV6_PREFIX": _whole(1, 128),
    "KEYS": _keys,
    "HEADERS": _headers,
    "RESET": _reset,
    "RULES_POLL": _seconds(zero=True),
    "USAGE": _flag,
}
