"""Addresses: whose one a request comes from, past the proxies that are trusted, and networks."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING

from . import conf

if TYPE_CHECKING:
    from django.http import HttpRequest

Address = IPv4Address | IPv6Address
# More than an IPv6 address with brackets, zone and port takes; what is longer is none.
LONGEST_ADDRESS = 100


def address_of(request: HttpRequest) -> Address | None:
    """The address a request comes from, or None where there is no usable one.

    REMOTE_ADDR; if that is a trusted proxy, the rightmost address of the forwarded header that is
    none. What stands further left was written by the client and proves nothing.
    """
    settled = conf.current()
    peer = request.META.get("REMOTE_ADDR") or ""
    if peer and not peer.startswith("unix:"):
        address = parse_address(peer)
        if address is None or not _trusted(address, settled.TRUSTED_PROXIES):
            return address
    elif settled.TRUST_UNIX_SOCKET:
        address = None
    else:
        return None
    header = "HTTP_" + settled.FORWARDED_HEADER.upper().replace("-", "_")
    forwarded = request.META.get(header)
    for entry in reversed(forwarded.split(",")) if forwarded else ():
        if not entry.strip():
            continue  # a list's empty elements do not count (RFC 9110, section 5.6.1)
        address = parse_address(entry)
        if address is None or not _trusted(address, settled.TRUSTED_PROXIES):
            return address
    return address  # every hop is a proxy of ours: the first of them asks


def parse_address(text: str) -> Address | None:
    """Read an address, with or without a port or a zone; IPv4-mapped IPv6 is IPv4.

    Returns:
        The address, or None if the text is none.
    """
    text = text.strip()
    return _parse(text) if len(text) <= LONGEST_ADDRESS else None


@lru_cache(maxsize=4096)
def _parse(text: str) -> Address | None:
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def parse_network(text: str) -> conf.Network:
    """Read a network or an address; bits beyond the prefix are dropped.

    Raises:
        ValueError: the text is neither; the message says what is accepted.
    """
    try:
        network = ip_network(text.strip(), strict=False)
    except ValueError as exc:
        raise ValueError(f"{exc}. Write an address or a network such as 192.0.2.0/24.") from exc
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < 96:
        return network
    return ip_network((mapped, network.prefixlen - 96), strict=False)


def settled_network(text: str) -> str:
    """A network, as it is kept, from what an operator writes.

    Raises:
        ValueError: it is none, or narrower than what is counted as one client, so that no client
            would ever be in it; the message says what to write.
    """
    network, widest = parse_network(text), conf.current().IPV6_PREFIX
    if network.version == 6 and network.prefixlen > widest:
        client = ip_network((network.network_address, widest), strict=False)
        raise ValueError(
            f"IPv6 addresses are counted by their /{widest}, so nobody is ever found in "
            f"{network}. Write {client} or a wider network."
        )
    return str(network)


def _trusted(address: Address, proxies: tuple[conf.Network, ...]) -> bool:
    return any(address in network for network in proxies)
