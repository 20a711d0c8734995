"""What usage may take of Redis, and the work once a minute that keeps it within.

The setting USAGE_MEMORY is divided: while a minute runs, its rules' clients share an eighth, and
its counts of distinct clients another. A minute that is over is measured; all of them may take half
of the setting, and the least recently useful rules' clients are dropped until they do. So there is
room for the minute that runs and the one before it, which may not be measured yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_slidinglimit import conf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_slidinglimit.core.stores import Store

# Clients of a rule: in the running minute and the last five, in older ones, and always.
MOST_CLIENTS = 1000
OLDER_CLIENTS = 100
FEW_CLIENTS = 10
RECENT = 5
# Of all rules together, in a minute; fewer where there is little memory.
MOST_RULES = 1000
MOST_LIMITED = 1000
MOST_LINKS = 500
# Bytes of a sorted set's member beside its text, and of a HyperLogLog at its greatest.
MEMBER = 112
HYPERLOGLOG = 12_400


class Budget(NamedTuple):
    """What the settings allow: seconds to keep, and bytes in all."""

    keep: int
    memory: int

    @classmethod
    def current(cls) -> Budget:
        settled = conf.current()
        return cls(settled.USAGE_KEEP, settled.USAGE_MEMORY)

    @property
    def room(self) -> int:
        """Bytes for the clients of a running minute."""
        return self.memory // 8

    @property
    def rules(self) -> int:
        return min(MOST_RULES, self.memory >> 14)

    @property
    def limited(self) -> int:
        return min(MOST_LIMITED, self.memory >> 14)

    @property
    def links(self) -> int:
        return min(MOST_LINKS, self.memory >> 15)

    def bounds(self, members: Sequence[str]) -> tuple[int, ...]:
        """The bounds of a rule's clients in a minute, as usage_rule.lua wants them."""
        size = MEMBER
        if members:
            size += sum(map(len, members)) // len(members)
        return (self.keep, self.rules, MOST_CLIENTS, FEW_CLIENTS, self.room, size)

    def counts_clients(self, rules: int) -> bool:
        """Whether there is room to count the distinct clients of so many rules."""
        return rules * HYPERLOGLOG <= self.room


class Housekeeper:
    """Does the work of a minute, if no other process does."""

    def work(self, store: Store, now_ms: int) -> None:
        """..."""
