"""Who was refused in the last minute, under which rule, since when, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from django_slidinglimit import keeper

from .layout import field_rule, member_limited, whole
from .rules import RuleUsage
from .standings import ask, standings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from django_slidinglimit.core.decisions import Counter, Hit
    from django_slidinglimit.overrides import Override, Overrides

    from .standings import Standing

    Command = tuple[Any, ...]

# Shown; asked for in one trip.
MOST = 50


class Refused(NamedTuple):
    """A client that a rule refused in the last minute.

    Args:
        usage: the rule.
        standing: how the client stands with it now.
        times: how often, in the last 60 seconds.
        since_ms: when that began, in milliseconds since 1970.
    """

    usage: RuleUsage
    standing: Standing
    times: int
    since_ms: int


class Limited(NamedTuple):
    """Those refused most, they first; how many there are in all, and how many of them are blocked.

    In all a client counts once for each rule that refused it; of the blocked, once.
    """

    clients: list[Refused]
    in_all: int
    blocked: int


def question(bases: Iterable[str]) -> list[Command]:
    """What to ask for `read`, of the minutes whose keys begin so; recorders bound the sets."""
    return [
        command
        for base in bases
        for command in (
            ("ZREVRANGE", f"{base}limited", 0, -1, "WITHSCORES"),
            ("ZRANGE", f"{base}since", 0, -1, "WITHSCORES"),
        )
    ]


def read(replies: Sequence[Any], time_ms: int, usages: Mapping[str, RuleUsage]) -> Limited:
    """Who was refused, in one more trip; none if there is nobody.

    Args:
        replies: to `question`, of the running minute and the one before.
        time_ms: the server's time.
        usages: the rules that are known.

    Raises:
        StoreError: the server does not answer.
    """
    times: dict[bytes, float] = {}
    since: dict[bytes, int] = {}
    # The part of the minute before that lies in the last 60 seconds, as the sliding window has it.
    shares = (1.0, 1 - time_ms % 60_000 / 60_000)
    for counts, begun, share in zip(replies[::2], replies[1::2], shares, strict=True):
        for member, refused in _scores(counts):
            times[member] = times.get(member, 0.0) + refused * share
        for member, moment in _scores(begun):
            since[member] = min(since.get(member, time_ms), moment)
    by_field = {field: usage for usage in usages.values() for field in usage.fields}
    overrides = keeper.current().overrides
    # A client under a rule has several fields after an edit, or with an override.
    found: dict[Counter, _Found] = {}
    for member, count in times.items():
        asked = _asked(member, by_field, overrides)
        if asked is not None:
            one = found.setdefault(asked[1].counter, _Found(*asked, since_ms=time_ms))
            one.times += count
            one.since_ms = min(one.since_ms, since.get(member, time_ms))
    all_ = [(counter, one) for counter, one in found.items() if round(one.times)]
    all_.sort(key=lambda item: (-item[1].times, item[0]))
    shown = [one for _, one in all_[:MOST]]
    clients = [
        Refused(one.usage, standing, round(one.times), one.since_ms)
        for one, standing in zip(
            shown, standings([(one.hit, one.override) for one in shown]), strict=True
        )
    ]
    blocked = {
        counter.client for counter, one in all_ if one.override and one.override.effect == "block"
    }
    return Limited(clients, len(all_), len(blocked))


@dataclass(slots=True)
class _Found:
    """A client under a rule, as `_asked` gives it; how often it was refused, and since when."""

    usage: RuleUsage
    hit: Hit
    override: Override | None
    times: float = 0.0
    since_ms: int = 0


def _asked(
    member: bytes, by_field: Mapping[str, RuleUsage], overrides: Overrides
) -> tuple[RuleUsage, Hit, Override | None] | None:
    """The rule and the client of a member; None for what others wrote there."""
    try:
        field, client = _parsed(member)
        usage = by_field.get(field) or RuleUsage(field_rule(field), None, [field])
    except ValueError:
        return None
    return (usage, *ask(usage.rule, client, overrides))


# The same clients stand there from one look to the next.
_parsed = lru_cache(maxsize=4096)(member_limited)


def _scores(reply: Sequence[bytes]) -> Iterable[tuple[bytes, int]]:
    scores = ((m, whole(s)) for m, s in zip(reply[::2], reply[1::2], strict=True))
    return ((member, score) for member, score in scores if score)
