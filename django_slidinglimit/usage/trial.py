"""A proposed rule, tried on the recorded traffic of the last hour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from django_slidinglimit import keeper
from django_slidinglimit.core.redis import HASHED

from . import hour, minutes
from .rules import stored_rules
from .simulation import MINUTE_MS, Range, refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from django_slidinglimit.core.decisions import Client, Rule
    from django_slidinglimit.core.rates import Rate
    from django_slidinglimit.rules import StoredRule

    from .hour import Source


class Line(NamedTuple):
    """One client: what it asked in the hour and in its busiest stretch, what would be refused."""

    client: Client
    asked: int
    busiest: int
    refused: Range


@dataclass
class Trial:
    """What came of it.

    Args:
        rule: the rule as proposed.
        sources: the rules that the traffic was recorded for; empty: there was none.
        own: whether they are the rule itself, as it was before.
        bounded: whether some minutes had more clients than are kept.
        excepted: how many clients that would be refused an override takes out of the rule.
        lines: the clients, the busiest first.
    """

    rule: StoredRule
    sources: list[Rule] = field(default_factory=list)
    own: bool = False
    bounded: bool = False
    excepted: int = 0
    lines: list[Line] = field(default_factory=list)

    @property
    def rate(self) -> Rate:
        return self.rule.rule.rate

    @property
    def stretch(self) -> int:
        """The minutes of a stretch: a window's, at least one and at most an hour's."""
        return min(minutes.MOST, -(-self.rate.window_ms // MINUTE_MS))

    @property
    def room(self) -> int:
        """What the rate admits in a stretch when it comes evenly."""
        length = self.stretch * MINUTE_MS
        return self.rate.limit * max(length, self.rate.window_ms) // self.rate.window_ms

    @property
    def asked(self) -> int:
        return sum(line.asked for line in self.lines)

    @property
    def refused(self) -> Range:
        return Range(
            sum(line.refused.low for line in self.lines),
            sum(line.refused.high for line in self.lines),
        )

    @property
    def clients(self) -> Range:
        """How many clients would meet a refusal."""
        return Range(
            sum(line.refused.low > 0 for line in self.lines),
            sum(line.refused.high > 0 for line in self.lines),
        )

    @property
    def affected(self) -> list[Line]:
        """Those who would meet one, the most refused first."""
        found = [line for line in self.lines if line.refused.high]
        return sorted(found, key=lambda line: (-line.refused.low, -line.refused.high))


def run(rule: StoredRule, before: StoredRule | None) -> Trial:
    """Try a rule.

    Its own traffic is taken, if it had some in the same place; else that of the other rules there:
    of those in the database with the same key, and of the code's.

    Args:
        rule: the rule as proposed.
        before: the rule as it is; None for a new one.

    Raises:
        StoreError: the server does not answer.
    """
    own: list[Source] = []
    if before is not None and _place(before) == _place(rule):
        own = hour.sources(lambda recorded: recorded.id == before.rule.id)
    found = own or _of_the_place(rule)
    trial = Trial(
        rule,
        sources=list({source.rule.id: source.rule for source in found}.values()),
        own=bool(own),
        bounded=any(source.bounded for source in found),
    )
    overrides, lines = keeper.current().overrides, []
    for client, asked in hour.merged(found).items():
        if not rule.enforced_for(client):
            continue
        line = Line(
            client, sum(asked.values()), _busiest(asked, trial.stretch), refused(trial.rate, asked)
        )
        # Overrides are looked up only where they matter: groups may have to be read.
        if line.refused.high and overrides.winner(rule.rule.id, client):
            trial.excepted += 1
        else:
            lines.append(line)
    trial.lines = sorted(lines, key=lambda line: (-line.busiest, -line.asked, line.client))
    return trial


def _of_the_place(rule: StoredRule) -> list[Source]:
    """The traffic of other rules of a rule's place that count the same clients."""
    same = {other.rule.id for other in stored_rules().values() if _place(other) == _place(rule)}

    def wanted(recorded: Rule) -> bool:
        in_code = not recorded.id.startswith("d")
        return recorded.id in same or (in_code and recorded.name == rule.scope != "")

    return [source for source in hour.sources(wanted) if _counts_alike(rule, source)]


def _counts_alike(rule: StoredRule, source: Source) -> bool:
    """Whether all of a source's clients are of the kinds that a rule's key counts."""
    if rule.key is None:
        return True
    kinds = {rule.key.name, *_KINDS.get(rule.key.name, ())}
    return all(client.kind.removeprefix(HASHED) in kinds for client in source.asked)


# What a key's clients are, where it is not of its own name.
_KINDS = {"user_or_ip": ("user", "ip")}


def _place(rule: StoredRule) -> tuple[str, str, str]:
    """Where a rule bites, and whom it counts."""
    path = rule.path.text.removeprefix("/") if rule.path else ""
    return rule.scope, path, rule.key.name if rule.key else ""


def _busiest(asked: Mapping[int, int], minutes: int) -> int:
    """The most that was asked in so many minutes on end."""
    first, end = min(asked), max(asked) + 1
    starts: Iterable[int] = range(first, max(first + 1, end - minutes + 1))
    return max(sum(asked.get(start + n, 0) for n in range(minutes)) for start in starts)
