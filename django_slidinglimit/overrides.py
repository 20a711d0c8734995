"""Exceptions to the rules: compiled, immutable, looked up in memory.

The most specific override wins: one client over a group over a network (the longest prefix first)
over everyone; then one rule over all rules; then block over exempt over another rate.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .core.decisions import Client
    from .core.rates import Rate

T = TypeVar("T")
Network = IPv4Network | IPv6Network
Effect = Literal["block", "exempt", "rate"]

# Users whose groups are kept in memory.
MOST_USERS = 100_000

_STRENGTH = {"block": 0, "exempt": 1, "rate": 2}


@dataclass(frozen=True, slots=True)
class Override:
    """An override, compiled.

    Args:
        pk: the row's primary key.
        rule: the id of the one rule it is for; None: for all rules.
        effect: what it does.
        rate: the other rate, if that is the effect.
        expires: seconds since 1970 UTC by this machine's clock; None: never.
    """

    pk: int
    rule: str | None
    effect: Effect
    rate: Rate | None = None
    expires: float | None = None

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Sorts the stronger of one level first; of equals the newer."""
        return (self.rule is None, _STRENGTH[self.effect], -self.pk)

    def expires_in_ms(self) -> int | None:
        """Milliseconds until it ends; None: never."""
        return None if self.expires is None else max(0, round((self.expires - time.time()) * 1000))


class Target(NamedTuple):
    """Whom an override is for: exactly one of these, or, with none, everyone."""

    client: Client | None = None
    group: int | None = None
    network: Network | None = None


class Overrides:
    """All overrides, for look-up by rule and client.

    Args:
        entries: overrides and whom they are for.
        groups_of: a user's identity -> the primary keys of the groups that the user is in; asked
            once a user, and only if there are overrides of groups.
    """

    def __init__(
        self,
        entries: Iterable[tuple[Target, Override]] = (),
        groups_of: Callable[[str], frozenset[int]] = lambda _identity: frozenset(),
    ) -> None:
        clients: dict[Client, list[Override]] = {}
        groups: dict[int, list[Override]] = {}
        networks: dict[tuple[int, int], dict[int, list[Override]]] = {}
        everyone: list[Override] = []
        for target, override in entries:
            if target.client is not None:
                clients.setdefault(target.client, []).append(override)
            elif target.group is not None:
                groups.setdefault(target.group, []).append(override)
            elif (network := target.network) is not None:
                of_length = networks.setdefault((network.version, network.prefixlen), {})
                of_length.setdefault(int(network.network_address), []).append(override)
            else:
                everyone.append(override)
        self._clients = _sorted(clients)
        self._groups = _sorted(groups)
        self._networks = {
            key: _sorted(networks[key]) for key in sorted(networks, key=lambda k: -k[1])
        }
        self._everyone = tuple(sorted(everyone, key=lambda o: o.rank))
        self._groups_of = groups_of
        self._memberships: dict[str, frozenset[int]] = {}

    def winner(self, rule: str, client: Client) -> Override | None:
        """The override that holds for a client under a rule, if there is one.

        Args:
            rule: the rule's id.
            client: who is counted.
        """
        for level in self._levels(client):
            for override in level:
                if override.rule is not None and override.rule != rule:
                    continue
                if override.expires is None or override.expires > time.time():
                    return override
        return None

    def _levels(self, client: Client) -> Iterator[Iterable[Override]]:
        """The overrides that are for a client, most specific level first."""
        if self._clients:
            yield self._clients.get(client, ())
        if self._groups and client.kind == "user" and client.identity:
            mine = self._groups_for(client.identity)
            yield sorted((o for g in mine for o in self._groups.get(g, ())), key=lambda o: o.rank)
        if self._networks and client.kind == "ip" and client.identity:
            yield from self._networks_around(client.identity)
        yield self._everyone

    def _groups_for(self, identity: str) -> frozenset[int]:
        known = self._memberships.get(identity)
        if known is None:
            if len(self._memberships) >= MOST_USERS:
                self._memberships.clear()
            known = self._memberships[identity] = self._groups_of(identity)
        return known

    def _networks_around(self, identity: str) -> Iterator[Iterable[Override]]:
        try:
            address = ip_network(identity)
        except ValueError:  # a get_ident of the project's own
            return
        number = int(address.network_address)
        for (version, length), of_length in self._networks.items():
            if version == address.version and length <= address.prefixlen:
                spare = address.max_prefixlen - length
                yield of_length.get(number >> spare << spare, ())


def _sorted(lists: Mapping[T, list[Override]]) -> dict[T, tuple[Override, ...]]:
    return {key: tuple(sorted(found, key=lambda o: o.rank)) for key, found in lists.items()}
