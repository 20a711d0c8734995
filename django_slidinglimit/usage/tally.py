"""What a process counted since its last flush, in memory and bounded."""

from __future__ import annotations

from heapq import heapify, heapreplace
from itertools import combinations
from typing import TYPE_CHECKING

from django_slidinglimit.core.window import used

from .budget import FEW_CLIENTS, MOST_CLIENTS

if TYPE_CHECKING:
    from django_slidinglimit.core.decisions import Answer, Client, Decision, Rule

# Rules (a rate of the project's own making may differ with every client), and clients of all rules
# together, save for the few that each may always have.
MOST_RULES = 500
MOST_CLIENTS_IN_ALL = 4000
# Clients beyond those, which are only counted.
MOST_OTHERS = 20_000
MOST_LINKS = 100


class Seen:
    """One client under one rule: the counter's greatest value, what it asked, what was over.

    `refused` is how often, `first` and `last` when, in milliseconds since 1970.
    """

    __slots__ = ("asked", "first", "last", "over", "refused", "value")

    def __init__(self) -> None:
        self.value = 0
        self.asked = 0
        self.over = 0
        self.refused = 0
        self.first = 0
        self.last = 0

    @property
    def rank(self) -> int:
        """Of two, the greater is kept; who is blocked has only what was over."""
        return max(self.over, self.value)


class Counts:
    """One rule in one minute: its decisions, its busiest clients, and the others."""

    __slots__ = ("_order", "allowed", "clients", "others", "refused", "rules", "would")

    def __init__(self) -> None:
        self.allowed = 0
        self.refused = 0
        self.would = 0
        self.clients: dict[Client, Seen] = {}
        self.others: set[Client] = set()
        # Those that are counted here, kept alive: they are known by where they are in memory.
        self.rules: list[Rule] = []
        # The clients as a heap, by ranks that may have grown since; made when room is out.
        self._order: list[tuple[int, Client]] = []

    def take_in(self, client: Client, rank: int, tally: Tally) -> Seen | None:
        """Make room for one more client, in place of the least one if need be."""
        clients, order = self.clients, self._order
        room = MOST_CLIENTS if tally.clients < MOST_CLIENTS_IN_ALL else FEW_CLIENTS
        if len(clients) < room:
            tally.clients += 1
        elif rank > self._least():
            self._leave_out(order[0][1], tally)
            del clients[order[0][1]]
            heapreplace(order, (rank, client))
            self.others.discard(client)
        else:
            self._leave_out(client, tally)
            return None
        seen = clients[client] = Seen()
        return seen

    def _leave_out(self, client: Client, tally: Tally) -> None:
        if tally.others < MOST_OTHERS and client not in self.others:
            self.others.add(client)
            tally.others += 1

    def _least(self) -> int:
        order, clients = self._order, self.clients
        if not order:
            order += [(seen.rank, client) for client, seen in clients.items()]
            heapify(order)
        while True:
            rank, client = order[0]
            grown = clients[client].rank
            if rank == grown:
                return rank
            heapreplace(order, (grown, client))


class Minute:
    """What was counted in one minute."""

    __slots__ = ("_known", "counts", "links")

    def __init__(self) -> None:
        self.counts: dict[Rule, Counts] = {}
        self.links: set[tuple[Client, Client]] = set()
        # The same by the rules' ids in memory: to look at all of a rule is slow.
        self._known: dict[int, Counts] = {}

    def of(self, rule: Rule) -> Counts | None:
        """A rule's counts; None if there are too many rules."""
        found = self._known.get(id(rule))
        return self._find(rule) if found is None else found

    def _find(self, rule: Rule) -> Counts | None:
        found = self.counts.get(rule)
        if found is None:
            if len(self.counts) >= MOST_RULES:
                return None
            found = self.counts[rule] = Counts()
        if len(self._known) < 2 * MOST_RULES:
            self._known[id(rule)] = found
            found.rules.append(rule)
        return found

    def link(self, answers: tuple[Answer, ...]) -> None:
        """Note which clients one request had; those without identity are nobody."""
        clients = {answer.hit.client for answer in answers}
        if len(clients) > 1:
            for pair in combinations(sorted(c for c in clients if c.identity), 2):
                if len(self.links) < MOST_LINKS:
                    self.links.add(pair)


class Tally:
    """All of it. It does no locking of its own."""

    __slots__ = ("clients", "minutes", "others")

    def __init__(self) -> None:
        self.minutes: dict[int, Minute] = {}
        self.clients = 0  # of all rules together
        self.others = 0

    def add(self, decision: Decision, time_ms: int) -> None:
        """Count a decision.

        Args:
            decision: what was decided. An admission without a reading is no store's, and is not
                counted; a refusal without one needed no counter.
            time_ms: when, in milliseconds since 1970 by the store's clock.
        """
        minute = self.minutes.get(time_ms // 60_000)
        if minute is None:
            minute = self.minutes[time_ms // 60_000] = Minute()
        known, answers, allowed = minute._known, decision.answers, decision.allowed
        if len(answers) > 1:
            minute.link(answers)
        for answer in answers:
            hit, reading = answer.hit, answer.reading
            fits, limit, remaining, _, _ = answer.verdict
            if fits and reading is None:
                continue
            rule, cost = hit.rule, hit.cost
            counts = known.get(id(rule)) or minute.of(rule)
            if counts is None:
                continue
            over = refused = 0
            if fits:
                if allowed:
                    counts.allowed += 1
            elif not rule.observe:
                counts.refused += 1
                over, refused = cost, 1
            elif allowed:
                counts.would += 1
                over = cost
            if remaining:
                value = limit - remaining  # what `used` says, for less
            elif reading is not None:
                value = used(rule.rate, reading) + answer.charged
            else:
                value = 0
            seen = counts.clients.get(hit.client)
            if seen is None:
                seen = counts.take_in(hit.client, max(over, value), self)
                if seen is None:
                    continue
            if value > seen.value:
                seen.value = value
            seen.asked += cost
            if over:
                seen.over += over
            if refused:
                seen.refused += 1
                seen.first = seen.first or time_ms
                seen.last = time_ms
