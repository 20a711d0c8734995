"""What usage may take of Redis.

The setting USAGE_MEMORY is divided. While a minute runs, the clients of its rules share a twelfth,
and the counts of distinct clients may take as much; usage_rule.lua and the recorder see to that.
The minutes that are over may take 45 percent together; housekeeping.py sees to that. The rest is
for the few clients that each rule may always have, and for the minute that is over but not yet
measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django_slidinglimit import conf

if TYPE_CHECKING:
    from collections.abc import Sequence

# Clients of a rule: in the running minute and the last five, in older ones, and always.
MOST_CLIENTS = 1000
OLDER_CLIENTS = 100
FEW_CLIENTS = 10
RECENT = 5
# In a minute, of all rules together; fewer where there is little memory.
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
        """As the settings are now."""
        settled = conf.current()
        return cls(settled.USAGE_KEEP, settled.USAGE_MEMORY)

    @property
    def minutes(self) -> int:
        """How many minutes are kept."""
        return -(-self.keep // 60)

    @property
    def over(self) -> int:
        """Bytes for the minutes that are over."""
        return self.memory * 45 // 100

    @property
    def rules(self) -> int:
        """How many rules a minute may have."""
        return min(MOST_RULES, self.memory >> 16)

    @property
    def limited(self) -> int:
        """How many limited clients a minute may have."""
        return min(MOST_LIMITED, self.memory >> 14)

    @property
    def links(self) -> int:
        """How many members the links of a minute may have."""
        return min(MOST_LINKS, self.memory >> 14)

    def clients(self, members: Sequence[str]) -> tuple[int, ...]:
        """The bounds of a rule's clients in a running minute, as usage_rule.lua wants them."""
        size = MEMBER + sum(map(len, members)) // len(members)
        return (self.rules, MOST_CLIENTS, FEW_CLIENTS, self.memory // 12, size)

    def may_count_clients(self, rules: int) -> bool:
        """Whether there is room to count the distinct clients of so many rules."""
        return rules * HYPERLOGLOG <= self.memory // 12
