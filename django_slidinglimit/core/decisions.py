"""The values that a walk is made of. All are frozen; none knows a store or a framework."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from .rates import Rate
    from .window import Reading

WhenDown = Literal["allow", "deny"]


class Client(NamedTuple):
    """Who is counted: a kind ("ip", "user", "global", "header:x-api-key", ...) and an identity."""

    kind: str
    identity: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A rate applied to clients of one kind in one place.

    Args:
        id: what its counters are kept under; rules with one id and window share their counters.
        rate: so many per window.
        name: what people and headers call it.
        observe: count and report, never refuse.
        when_down: what happens to a request when the store does not answer.
        silent: an observing rule whose would-be refusals the view does not hear of, either.
        own_rate: the rate that the rule has for others, where this one is a client's exception.
    """

    id: str
    rate: Rate
    name: str = ""
    observe: bool = False
    when_down: WhenDown = "allow"
    silent: bool = False
    own_rate: Rate | None = None


class Counter(NamedTuple):
    """What is counted as one: hits on the same counter are charged once."""

    rule: str
    window_ms: int
    client: Client


class Held(NamedTuple):
    """What a counter held in one window, of the number `floor(time / window)`."""

    counter: Counter
    number: int
    amount: int


def check_cost(given: object) -> None:
    """Refuse what is no cost.

    Raises:
        ValueError: it is no whole number of 0 or more.
    """
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise ValueError(f"cost must be a whole number of 0 or more, not {given!r}.")


@dataclass(frozen=True, slots=True)
class Hit:
    """One request's demand on one rule.

    Args:
        rule: the rule asked.
        client: who asks.
        cost: a whole number, 0 or more; 0 reads and writes nothing.

    Raises:
        ValueError: the cost is no whole number of 0 or more.
    """

    rule: Rule
    client: Client
    cost: int = 1
    counter: Counter = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_cost(self.cost)
        counter = Counter(self.rule.id, self.rule.rate.window_ms, self.client)
        object.__setattr__(self, "counter", counter)


class Verdict(NamedTuple):
    """One rule's answer to one hit. Times are in milliseconds.

    `retry_after` is 0 when allowed, and None when the hit can never be admitted.
    """

    allowed: bool
    limit: int
    remaining: int
    retry_after: int | None
    reset_after: int


class Answer(NamedTuple):
    """A verdict with the hit it answers and what the counter held.

    `reading` is None, and the verdict only the rule's policy, where the store did not answer.
    `blocked`: the client is refused whatever the counters hold, for the time of `retry_after`.
    """

    hit: Hit
    verdict: Verdict
    reading: Reading | None
    charged: int = 0
    blocked: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """All verdicts of one walk.

    Args:
        answers: one for each hit.
        time_ms: the store's clock when it decided, in milliseconds since 1970 UTC; None where no
            store was asked or none answered.
        in_parts: whether parts of it were decided one after the other, so that it may refuse for
            what another decision gives back in a moment.
    """

    answers: tuple[Answer, ...] = ()
    time_ms: int | None = None
    in_parts: bool = False

    @property
    def allowed(self) -> bool:
        """Whether every enforcing rule allows."""
        for answer in self.answers:  # as a loop it takes a third of the time, several times a walk
            if not answer.verdict.allowed and not answer.hit.rule.observe:
                return False
        return True

    @property
    def limited(self) -> bool:
        """Whether any rule, enforcing or observing, refuses; silent ones do not show."""
        for answer in self.answers:
            if not answer.verdict.allowed and not answer.hit.rule.silent:
                return True
        return False

    @property
    def enforced(self) -> tuple[Answer, ...]:
        """The answers of the rules that enforce."""
        return tuple(a for a in self.answers if not a.hit.rule.observe)

    @property
    def charges(self) -> dict[Counter, int]:
        """What was counted, by counter."""
        return {a.hit.counter: a.charged for a in self.answers if a.charged}

    @property
    def retry_after(self) -> int | None:
        """Milliseconds until the same request is admitted if nothing else arrives.

        0 when allowed, None when it never can be.
        """
        waits = [a.verdict.retry_after for a in self.enforced if not a.verdict.allowed]
        return None if None in waits else max((w for w in waits if w is not None), default=0)
