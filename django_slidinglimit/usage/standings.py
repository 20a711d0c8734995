"""How clients stand with rules now: the deciding counters themselves, read and never written."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from django_slidinglimit import connections
from django_slidinglimit.core.decisions import Hit
from django_slidinglimit.core.window import used
from django_slidinglimit.places import at_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_slidinglimit.core.decisions import Answer, Client, Rule, Verdict
    from django_slidinglimit.core.window import Reading
    from django_slidinglimit.overrides import Override, Overrides

# Near the limit: so many percent of it.
NEAR = 80
# Counters of one script, so that it stays far below a millisecond.
TRIP = 100


class State(StrEnum):
    """How a client stands with a rule."""

    OK = "ok"
    NEAR = "near"
    LIMITED = "limited"
    OBSERVED = "observed"  # over the limit of a rule that only observes
    BLOCKED = "blocked"  # by an override
    EXEMPT = "exempt"  # by an override


@dataclass(frozen=True, slots=True)
class Standing:
    """One client under one rule, now.

    Args:
        rule: the rule as it holds for the client: at the override's rate, if it has another one.
        client: who is counted.
        verdict: what a request would be told; a block or an exemption goes before it.
        reading: the counter.
        override: the one that holds for the client, if there is one.
        time_ms: when it was read, by the server's clock, in milliseconds since 1970.
    """

    rule: Rule
    client: Client
    verdict: Verdict
    reading: Reading
    override: Override | None = None
    time_ms: int = 0

    @property
    def used(self) -> int:
        """The estimate, rounded up."""
        return used(self.rule.rate, self.reading)

    @property
    def counted(self) -> int:
        """What of the previous window still counts, rounded up."""
        return self.used - self.reading.current

    @property
    def left(self) -> int:
        """How many more are admitted now; of who is blocked none."""
        return 0 if self.state is State.BLOCKED else self.verdict.remaining

    @property
    def share(self) -> int:
        """Percent of the limit that is used; a limit of 0 is always used up."""
        return 100 * self.used // self.rule.rate.limit if self.rule.rate.limit else 100

    @property
    def free_at(self) -> int | None:
        """When the next request is admitted if nothing else arrives, in milliseconds since 1970.

        0: now; None: never. The same at each look until something changes.
        """
        wait = self.verdict.retry_after
        if self.state is State.EXEMPT:
            wait = 0
        elif self.state is State.BLOCKED and self.override:
            expires = self.override.expires
            return None if expires is None else round(expires * 1000)
        return wait and self.time_ms + wait

    @property
    def state(self) -> State:
        if self.override is not None and self.override.effect == "exempt":
            return State.EXEMPT
        if self.override is not None and self.override.effect == "block":
            return State.OBSERVED if self.rule.observe else State.BLOCKED
        if not self.verdict.allowed:
            return State.OBSERVED if self.rule.observe else State.LIMITED
        return State.NEAR if self.share >= NEAR else State.OK


def ask(rule: Rule, client: Client, overrides: Overrides) -> tuple[Hit, Override | None]:
    """What to read of a client's counter under a rule, and the override that holds there."""
    override = overrides.winner(rule.id, client)
    rate = override.rate if override is not None else None
    return Hit(rule if rate is None else at_rate(rule, rate), client), override


def standings(asked: Sequence[tuple[Hit, Override | None]]) -> list[Standing]:
    """How clients stand, as `ask` gives them; a trip for each hundred.

    Raises:
        StoreError: the server does not answer.
    """
    store = connections.pages()
    hits = [hit for hit, _ in asked]
    answers: list[tuple[Answer, int]] = []
    for start in range(0, len(hits), TRIP):
        found = store.peek(hits[start : start + TRIP])
        answers += ((answer, found.time_ms or 0) for answer in found.answers)
    return [
        Standing(a.hit.rule, a.hit.client, a.verdict, a.reading, override, time_ms)
        for (a, time_ms), (_, override) in zip(answers, asked, strict=True)
        if a.reading
    ]
