"""Exceptions to the rules: compiled, immutable, looked up in memory.

The most specific override wins: one client over a group over a network (the longest prefix first)
over everyone; then one rule over all rules; then block over exempt over another rate.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from socket import AF_INET, AF_INET6, inet_pton
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import indexes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .core.decisions import Client
    from .core.rates import Rate

Network = IPv4Network | IPv6Network
Effect = Literal["block", "exempt", "rate"]

# Users whose groups are kept in memory.
MOST_USERS = 100_000

STRENGTH = {"block": 0, "exempt": 1, "rate": 2}


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
        return (self.rule is None, STRENGTH[self.effect], -self.pk)

    def expires_in_ms(self) -> int | None:
        """Milliseconds until it ends; None: never."""
        return None if self.expires is None else max(0, round((self.expires - time.time()) * 1000))


class Target(NamedTuple):
    """Whom an override is for: exactly one of these, or, with none, everyone."""

    client: Client | None = None
    group: int | None = None
    network: Network | None = None

    @property
    def place(self) -> tuple[str | tuple[int, int], Client | int | None]:
        """The level that it is of, and which of that level."""
        if self.client is not None:
            return "client", self.client
        if self.group is not None:
            return "group", self.group
        if self.network is not None:
            of = self.network
            return (of.version, of.prefixlen), int(of.network_address)
        return "everyone", None


# Overrides of one level by whom they are for, or, if that is everyone, by their rule (None: all);
# the strongest first.
Level = Mapping[Any, tuple[Override, ...]]


class Overrides:
    """All overrides, for look-up by rule and client; never changed.

    Args:
        levels: by "client", "group", "everyone", or a network's version and length of prefix.
        groups_of: a user's identity -> the primary keys of the groups that the user is in, None if
            that cannot be known now; asked once a user, and only if there are overrides of groups.
    """

    def __init__(
        self,
        levels: Mapping[str | tuple[int, int], Level] = MappingProxyType({}),
        groups_of: Callable[[str], frozenset[int] | None] = lambda _identity: frozenset(),
    ) -> None:
        self._levels = levels
        self._clients = levels.get("client")
        self._groups = levels.get("group")
        self._everyone = levels.get("everyone")
        lengths = sorted((key for key in levels if not isinstance(key, str)), key=lambda k: -k[1])
        self._networks = [(*key, _mask(*key), levels[key]) for key in lengths]
        self._groups_of = groups_of
        self._memberships: dict[str, frozenset[int]] = {}

    def changed(
        self,
        gone: Iterable[tuple[Target, Override]],
        new: Iterable[tuple[Target, Override]],
        groups_of: Callable[[str], frozenset[int] | None],
        pause: Callable[[], None] = lambda: None,
    ) -> Overrides:
        """These overrides without some and with others; who is in which group is asked anew.

        Args:
            gone: of these overrides, those very objects.
            new: others.
            groups_of: as above.
            pause: called between small pieces of work.
        """
        changes: dict[str | tuple[int, int], tuple[list[Any], list[Any]]] = {}
        for which, entries in enumerate((gone, new)):
            for target, override in entries:
                pause()
                level, whom = target.place
                key = override.rule if level == "everyone" else whom
                changes.setdefault(level, ([], []))[which].append((key, override))
        levels = dict(self._levels)
        for level, (out, into) in changes.items():
            levels[level] = indexes.changed(levels.get(level, {}), out, into, _rank, pause)
        return Overrides({key: level for key, level in levels.items() if level}, groups_of)

    def winner(self, rule: str, client: Client) -> Override | None:
        """The override that holds for a client under a rule, if there is one.

        Args:
            rule: the rule's id.
            client: who is counted.
        """
        if self._levels:
            for found in self._around(rule, client):
                for override in found:
                    if override.rule is not None and override.rule != rule:
                        continue
                    if override.expires is None or override.expires > time.time():
                        return override
        return None

    def own(self, rule: str, effect: Effect) -> list[Client]:
        """The clients that a rule has an override of this effect for, or every rule has."""
        return [
            client
            for client, overrides in (self._clients or {}).items()
            if any(o.effect == effect and o.rule in (None, rule) for o in overrides)
        ]

    def is_own(self, override: Override, client: Client) -> bool:
        """Whether an override is for this very client."""
        return override in (self._clients or {}).get(client, ())

    def _around(self, rule: str, client: Client) -> Iterator[Sequence[Override]]:
        """The overrides that are for a client, the strongest first; those of other rules, too."""
        if self._clients and client in self._clients:
            yield self._clients[client]
        if self._groups and client.kind == "user" and client.identity:
            mine = self._groups_for(client.identity)
            yield sorted((o for g in mine for o in self._groups.get(g, ())), key=_rank)
        if self._networks and client.kind == "ip":
            yield from self._networks_around(client.identity)
        if self._everyone:
            yield self._everyone.get(rule, ())
            yield self._everyone.get(None, ())

    def _groups_for(self, identity: str) -> frozenset[int]:
        known = self._memberships.get(identity)
        if known is None:
            known = self._groups_of(identity)
            if known is None:
                return frozenset()
            if len(self._memberships) >= MOST_USERS:
                self._memberships.clear()
            self._memberships[identity] = known
        return known

    def _networks_around(self, identity: str) -> Iterator[Sequence[Override]]:
        version, number, longest = _address(identity)
        for of, prefix, mask, level in self._networks:
            if of == version and prefix <= longest and number & mask in level:
                yield level[number & mask]


def _mask(version: int, prefix: int) -> int:
    bits = 128 if version == 6 else 32
    return (1 << prefix) - 1 << bits - prefix


@lru_cache(maxsize=4096)
def _address(identity: str) -> tuple[int, int, int]:
    """The version, number and length of prefix of a client that is counted by address."""
    text, slash, length = identity.partition("/")
    version, family, bits = (6, AF_INET6, 128) if ":" in text else (4, AF_INET, 32)
    try:
        return version, int.from_bytes(inet_pton(family, text)), int(length) if slash else bits
    except (OSError, ValueError):  # a get_ident of the project's own, or nobody
        return 0, 0, 0


def _rank(override: Override) -> tuple[bool, int, int]:
    return override.rank
