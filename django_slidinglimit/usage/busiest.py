"""The clients of one rule: those that use most of it, or were over it most, a page at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Literal

from django_slidinglimit import clients, keeper
from django_slidinglimit.core.redis import HASHED

from . import listed
from .layout import client_member, known_client
from .standings import NEAR, TRIP, State, ask, standings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from django_slidinglimit.core.decisions import Client
    from django_slidinglimit.overrides import Effect

    from .listed import Listed
    from .rules import RuleUsage
    from .standings import Standing

    Order = Callable[[bytes], tuple[float, float, bytes]]

PAGE = 50
# A client stands first in a member, and its kind first of all.
BETWEEN = b'","'

# What an override does; the others are how the counter stands.
EXCEPTED: dict[State, Effect] = {State.BLOCKED: "block", State.EXEMPT: "exempt"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which clients of a rule are wanted, and in which order.

    Args:
        order: by share of the limit that is used, or by what was over the limit.
        kind: of this kind alone; "" is any.
        state: in this state alone.
        text: an identity, or what one begins with, or the end of a secret; "" is any.
        named: clients that the text means, too.
        page: the first is 1.
    """

    order: Literal["used", "over"] = "used"
    kind: str = ""
    state: State | None = None
    text: str = ""
    named: Collection[Client] = ()
    page: int = 1

    @property
    def narrowed(self) -> bool:
        return bool(self.kind or self.state or self.text)


@dataclass(frozen=True, slots=True)
class Line:
    """One client of the rule.

    Args:
        standing: how it stands now.
        within, over: what it asked within the limit and over it, by the minute, oldest first.
    """

    standing: Standing
    within: list[int]
    over: list[int]


@dataclass(frozen=True, slots=True)
class Page:
    """Some clients of a rule.

    Args:
        listed: the rule and what was recorded of it.
        lines: the clients of this page.
        number: which page it is, from 1.
        pages: how many there are.
        matching: how many clients are wanted; with a state, of those that were looked at.
        looked: where a state is wanted, so many were looked at; else 0.
        candidates: of so many.
        kinds: of clients that are known.
    """

    listed: Listed
    lines: list[Line]
    number: int
    pages: int
    matching: int
    looked: int
    candidates: int
    kinds: list[str]

    @property
    def usage(self) -> RuleUsage:
        return self.listed.usage

    @property
    def others(self) -> int:
        """At least so many requests are of clients that are not listed: the total less the listed.

        What the listed asked counts a request of cost 3 as three, and those that another rule
        refused, which the total has not.
        """
        return max(0, self.usage.all - sum(self.listed.sums.asked.values()))

    @property
    def first(self) -> int:
        return PAGE * (self.number - 1) + 1

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


def of_rule(key: str, wanted: Wanted) -> Page:
    """A page of a rule's clients.

    Args:
        key: the rule's, as in `asked_in`.
        wanted: which clients.

    Raises:
        StoreError: the server does not answer.
        ValueError: the key is none.
        LookupError: the rule is not in the database, and nobody asked it.
    """
    found = listed.read(key)
    members = {*found.sums.share, *found.sums.asked, *found.sums.over}
    kinds = _kinds(members)
    matching, unlisted = _matching(members, wanted, found.usage, kinds)
    if wanted.state:
        return _in_state(found, wanted, wanted.state, kinds, matching, unlisted)
    pages = max(1, -(-len(matching) // PAGE))
    number = min(max(1, wanted.page), pages)
    chosen = nsmallest(PAGE * number, matching, key=_order(found, wanted))[PAGE * (number - 1) :]
    kept = _standings(found.usage, chosen, unlisted if number == 1 else ())
    matched = len(matching) + len(kept) - len(chosen)
    return Page(found, _lines(found, wanted, kept), number, pages, matched, 0, 0, kinds)


def _in_state(
    found: Listed,
    wanted: Wanted,
    state: State,
    kinds: list[str],
    matching: set[bytes],
    unlisted: list[Client],
) -> Page:
    """Those in a state, of the clients that are likeliest to be in it: more are not looked at."""
    unlisted = [*unlisted, *_excepted(found.usage, wanted, state, unlisted)][:TRIP]
    likely = _expected_first(found, state, _order(found, wanted))
    chosen = nsmallest(TRIP - len(unlisted), matching, key=likely)
    looked = _standings(found.usage, chosen, unlisted)
    lines = _lines(found, wanted, [s for s in looked if s.state is state])
    candidates = len(looked) + len(matching) - len(chosen)
    return Page(found, lines, 1, 1, len(lines), len(looked), candidates, kinds)


def _lines(found: Listed, wanted: Wanted, kept: list[Standing]) -> list[Line]:
    if wanted.order == "used":
        kept.sort(key=_most_used)
    return [Line(standing, *found.history(_member(standing.client))) for standing in kept]


def _matching(
    members: set[bytes], wanted: Wanted, usage: RuleUsage, kinds: Iterable[str]
) -> tuple[set[bytes], list[Client]]:
    """Of the members those that are wanted, their state aside; and clients that none of them is."""
    if wanted.kind:
        begins = _begins(wanted.kind)
        members = {member for member in members if member.startswith(begins)}
    if not wanted.text:
        return members, []
    exact = _meant(wanted, usage, kinds)
    begin = _escaped(wanted.text), _escaped(wanted.text.lower())  # IPv6 may be written in capitals
    end = b'~%s"]' % begin[0]
    found = {_member(client) for client in exact} & members
    for member in members:
        at = member.find(BETWEEN) + len(BETWEEN)
        if member.startswith(begin, at) or member.endswith(end):
            found.add(member)
    return found, [client for client in exact if _member(client) not in found][: TRIP - PAGE]


def _meant(wanted: Wanted, usage: RuleUsage, kinds: Iterable[str]) -> list[Client]:
    """The clients that a text may be the whole identity of."""
    counted = {wanted.kind} if wanted.kind else {*kinds, *_counted(usage)}
    found = dict.fromkeys(wanted.named)
    for kind in sorted({kind.removeprefix(HASHED) for kind in counted}):
        try:
            found[clients.settled(kind, wanted.text)] = None
        except ValueError:
            continue
    return [client for client in found if _is_of(client, wanted.kind)]


def _is_of(client: Client, kind: str) -> bool:
    """Whether a client is of a kind that is wanted, hashed or not."""
    return not kind or client.kind.removeprefix(HASHED) == kind.removeprefix(HASHED)


def _counted(usage: RuleUsage) -> Iterable[str]:
    """The kinds of clients that a rule counts, as far as it says so itself."""
    if usage.stored is None or usage.stored.key is None:
        return ()
    name = usage.stored.key.name
    return ("user", "ip") if name == "user_or_ip" else (name,)


def _excepted(
    usage: RuleUsage, wanted: Wanted, state: State, known: Collection[Client]
) -> list[Client]:
    """Clients with an override of their own, if one is wanted; nothing may be recorded of them."""
    if state not in EXCEPTED:
        return []
    return sorted(
        client
        for client in keeper.current().overrides.own(usage.rule.id, EXCEPTED[state])
        if _is_of(client, wanted.kind)
        and client not in known
        and (client.identity.startswith(wanted.text) or client in wanted.named)
    )


def _order(found: Listed, wanted: Wanted) -> Order:
    share, over = found.sums.share.get, found.sums.over.get
    if wanted.order == "over":
        return lambda member: (-over(member, 0), -share(member, 0.0), member)
    return lambda member: (-share(member, 0.0), -over(member, 0), member)


def _expected_first(
    found: Listed, state: State, order: Order
) -> Callable[[bytes], tuple[bool, tuple[float, float, bytes]]]:
    """Those first that are in the state by what was recorded of them."""
    share, over = found.sums.share.get, found.sums.over.get
    if state is State.BLOCKED:  # nothing is counted of them but what is refused
        return lambda member: (not over(member), order(member))
    low, high = {State.OK: (0.0, NEAR), State.NEAR: (NEAR, 100)}.get(state, (100, 101))
    return lambda member: (not low <= share(member, 0.0) < high, order(member))


def _standings(
    usage: RuleUsage, chosen: Iterable[bytes], unlisted: Iterable[Client]
) -> list[Standing]:
    """How clients stand; of those that are not listed, who has a count or an override."""
    overrides = keeper.current().overrides
    listed_ones = [client for client in map(known_client, chosen) if client is not None]
    others = [client for client in unlisted if client not in listed_ones]
    asked = [ask(usage.rule, client, overrides) for client in (*listed_ones, *others)][:TRIP]
    found = standings(asked)
    return [
        standing
        for place, standing in enumerate(found)
        if place < len(listed_ones) or standing.used or standing.override
    ]


def _most_used(standing: Standing) -> tuple[int, int, str, str]:
    return (-standing.share, -standing.used, *standing.client)


def _member(client: Client) -> bytes:
    return client_member(client).encode()


def _escaped(text: str) -> bytes:
    """A text as it stands in a member."""
    return json.dumps(text)[1:-1].encode()


def _begins(kind: str) -> bytes:
    """What the members of a kind begin with."""
    return b'[%s,"' % json.dumps(kind).encode()


def _kinds(members: Iterable[bytes]) -> list[str]:
    begun = {member[: member.find(BETWEEN)] for member in members}
    found = (known_client(begin + BETWEEN + b'"]') for begin in begun)
    return sorted(client.kind for client in found if client is not None)
