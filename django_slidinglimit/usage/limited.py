"""Who was refused in the last minute, under which rule, since when, and until when."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from django_slidinglimit import keeper

from .layout import field_rule, member_limited, whole
from .rules import RuleUsage
from .standings import ask, standings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from django_slidinglimit.core.decisions import Hit
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

    A client counts once for each rule that refused it.
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
    chosen: list[tuple[RuleUsage, int, int]] = []
    asked: list[tuple[Hit, Override | None]] = []
    in_all = blocked = 0
    for member, count in sorted(times.items(), key=lambda item: (-item[1], item[0])):
        found = _asked(member, by_field, overrides) if round(count) else None
        if found is None:
            continue
        usage, hit, override = found
        in_all += 1
        blocked += override is not None and override.effect == "block"
        if len(chosen) < MOST:
            chosen.append((usage, round(count), since.get(member, time_ms)))
            asked.append((hit, override))
    clients = [
        Refused(usage, standing, count, begun)
        for (usage, count, begun), standing in zip(chosen, standings(asked), strict=True)
    ]
    return Limited(clients, in_all, blocked)


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
