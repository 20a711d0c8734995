"""How a tally is written: the commands, cut so that none takes the server long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_slidinglimit.core.wire import Script

from .budget import Budget
from .layout import client_member, limited_member, link_member, minute_base, usage_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from django_slidinglimit.core.decisions import Client

    from .tally import Counts, Minute, Tally

    Command = tuple[Any, ...]

# Clients or links in one command, so that it stays far below a millisecond; members of a
# HyperLogLog take less. Words of all commands of an exchange, so that it stays far from the
# deadline: a thousand clients, or two hundred rules.
CHUNK = 50
DISTINCT = 500
BATCH = 4000
# A client that was refused so lately is still limited since it was refused first.
LIMITED_MS = 60_000
MOST_LIMITED = 10_000

RULE = Script("usage_rule")
LIMITED = Script("usage_limited")
LINKS = Script("usage_links")


class Writer:
    """Makes the commands, and remembers between two flushes what they depend on."""

    def __init__(self) -> None:
        # Clients under rules: when the first refusal was, and the last; those of late at the end.
        self._limited: dict[tuple[str, Client], tuple[int, int]] = {}
        self._rules = 0  # of all processes, in the minute that was written last

    def exchanges(self, tally: Tally, prefix: str) -> Iterator[list[Command]]:
        """The commands that write a tally, in one exchange or a few.

        Args:
            tally: what was counted.
            prefix: what the store's keys begin with.
        """
        batch: list[Command] = []
        words = 0
        for number, minute in tally.minutes.items():
            for command in _Minute(self, minute_base(prefix, number)).commands(minute):
                batch.append(command)
                words += len(command)
                if words >= BATCH:
                    yield batch
                    batch, words = [], 0
        if batch:
            yield batch

    def learn(self, commands: Iterable[Command], replies: Iterable[Any]) -> None:
        """Take the replies: how many rules there are by now."""
        for command, reply in zip(commands, replies, strict=True):
            if command[1] in (RULE.source, RULE.sha):
                self._rules = int(reply[0])

    def may_count_clients(self, budget: Budget) -> bool:
        """Whether there is room to count distinct clients, as far as is known."""
        return budget.may_count_clients(max(self._rules, 1))

    def since(self, field: str, client: Client, first: int, last: int) -> int:
        """Since when a client is limited under a rule.

        Args:
            field: the rule's.
            client: the client.
            first, last: when it was refused since the last flush, in milliseconds since 1970.
        """
        before = self._limited.pop((field, client), None)
        if before is not None and first - before[1] <= LIMITED_MS:
            first = before[0]
        self._limited[field, client] = (first, last)
        if len(self._limited) > MOST_LIMITED:
            del self._limited[next(iter(self._limited))]
        return first


class _Minute:
    """The commands of one minute."""

    def __init__(self, writer: Writer, base: str) -> None:
        self._writer = writer
        self._base = base
        self._budget = Budget.current()
        self._sent: set[Script] = set()

    def commands(self, minute: Minute) -> Iterator[Command]:
        limited: list[str | int] = []
        for rule, counts in minute.counts.items():
            field = usage_field(rule)
            yield from self._rule(field, rule.name, counts)
            for client, seen in counts.clients.items():
                if seen.refused:
                    since = self._writer.since(field, client, seen.first, seen.last)
                    limited += (limited_member(field, client), seen.refused, since)
        keep, base = self._budget.keep, self._base
        for part in _parts(limited, 3 * CHUNK):
            keys = [f"{base}limited", f"{base}since"]
            yield self._script(LIMITED, keys, keep, self._budget.limited, *part)
        links = [link_member(*pair) for a, b in minute.links for pair in ((a, b), (b, a))]
        for part in _parts(links, 2 * CHUNK):
            yield self._script(LINKS, [f"{base}links"], keep, self._budget.links, *part)

    def _rule(self, field: str, name: str, counts: Counts) -> Iterator[Command]:
        budget, base = self._budget, self._base
        members = [client_member(client) for client in counts.clients]
        told: list[str | int] = []
        for member, seen in zip(members, counts.clients.values(), strict=True):
            told += (member, seen.value, seen.asked, seen.over)
        keys = [f"{base}{kind}" for kind in ("rules", "counts", "bytes")]
        keys += [f"{base}{kind}:{field}" for kind in ("top", "asked", "over")]
        bounds = (budget.keep, *budget.clients(members))
        decisions = (counts.allowed, counts.refused, counts.would)
        for part in _parts(told, 4 * CHUNK):
            yield self._script(RULE, keys, *bounds, field, name, *decisions, *part)
            decisions = (0, 0, 0)
        if self._writer.may_count_clients(budget):
            members += map(client_member, counts.others)
            for distinct in _parts(members, DISTINCT):
                yield ("PFADD", f"{base}seen:{field}", *distinct)
            yield ("EXPIRE", f"{base}seen:{field}", budget.keep)

    def _script(self, script: Script, keys: Sequence[str], *args: str | int) -> Command:
        """A call of a script; the first of a minute, which lies on one server, takes it there."""
        if script in self._sent:
            return ("EVALSHA", script.sha, len(keys), *keys, *args)
        self._sent.add(script)
        return ("EVAL", script.source, len(keys), *keys, *args)


def _parts(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [values[start : start + size] for start in range(0, len(values), size)]
