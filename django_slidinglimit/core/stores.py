"""What a store does, and the part of deciding that all stores share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from .decisions import Answer, Counter, Decision, Held, Hit, Verdict
from .window import Reading, admits, judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class StoreError(Exception):
    """The store did not answer: it is away, hung, or answered with an error."""


class StoreBusyError(StoreError):
    """This process could not ask; it tells nothing about the store's health."""


class Store(ABC):
    """Where counters are kept.

    Every method may raise StoreError. Hits on the same counter are merged: every limit is checked,
    the greatest cost charged once.
    """

    # What all keys of a store that has keys begin with.
    prefix = ""

    @abstractmethod
    def take(self, hits: Sequence[Hit]) -> Decision:
        """Decide the hits together: count all of them or, if an enforcing rule refuses, none."""

    @abstractmethod
    def peek(self, hits: Sequence[Hit]) -> Decision:
        """What `take` would answer now, counting nothing; `remaining` is what is left now."""

    @abstractmethod
    def reset(self, hits: Sequence[Hit]) -> list[Held]:
        """Forget what the hits' counters hold, and tell what that was."""

    @abstractmethod
    def restore(self, held: Sequence[Held]) -> None:
        """Count anew what `reset` forgot, beside what was counted since, where it still counts."""

    @abstractmethod
    def refund(self, decision: Decision) -> None:
        """Give back what an earlier `take` charged, where its windows still count."""

    def forget_refusals(self) -> None:  # noqa: B027
        """Drop what this process remembers of refusals, if the store remembers any."""

    def run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:  # noqa: ARG002
        """Plain commands of the server's own language, in one round trip, for rules and usage."""
        raise StoreBusyError(f"{type(self).__name__} keeps counters and nothing else.")


def unasked(hit: Hit) -> Answer:
    """The answer to a hit whose counter was not asked, as another hit of its walk is refused."""
    limit = hit.rule.rate.limit
    return Answer(hit, Verdict(True, limit, limit, 0, 0), None)


def refunded(answer: Answer) -> Answer:
    """The answer as it reads after its charge was given back."""
    if answer.reading is None or not answer.charged:
        return answer
    verdict = judge(answer.hit.rule.rate, answer.reading, answer.hit.cost, 0)
    return answer._replace(verdict=verdict, charged=0)


def charges(hits: Sequence[Hit], readings: Mapping[Counter, Reading]) -> dict[Counter, int]:
    """What a walk charges to each counter; the model of the counting half of take.lua.

    Nothing if an enforcing rule refuses. Observing rules never veto; they count what they admit.
    """
    due: dict[Counter, int] = {}
    for hit in hits:
        if admits(hit.rule.rate, readings[hit.counter], hit.cost):
            due[hit.counter] = max(hit.cost, due.get(hit.counter, 0))
        elif not hit.rule.observe:
            return {}
    return due


def decide(
    hits: Sequence[Hit],
    readings: Mapping[Counter, Reading],
    charged: Mapping[Counter, int],
    time_ms: int,
) -> Decision:
    """Put readings and charges into words: one answer for each hit."""
    answers = []
    for hit in hits:
        reading = readings[hit.counter]
        charge = charged.get(hit.counter, 0)
        answers.append(
            Answer(hit, judge(hit.rule.rate, reading, hit.cost, charge), reading, charge)
        )
    return Decision(tuple(answers), time_ms)
