"""What counters cost at the server: its time for a decision, and its memory for a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import redis

from django_slidinglimit import connections, limiter
from django_slidinglimit.core.decisions import Hit

from . import population
from .comparison import GET, Comparison, address
from .figures import Figure
from .population import at_random
from .scripts import at_server
from .site import usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from django_slidinglimit.core.decisions import Decision, Rule

    from .figures import Sizes


def run(sizes: Sizes) -> Iterator[Figure]:
    many, few = sizes.clients, max(1, sizes.clients // 1000)
    of_many, of_few = population.rule("many"), population.rule("few")
    ours = memory(lambda: population.enter(of_many, many)) / many
    plain = memory(lambda: population.enter_plain(many)) / many
    yield Figure(f"Memory a client, {many:,} clients, both windows", "bytes", ours, limit=40)
    yield Figure("The same in two plain keys a client", "bytes", plain)
    population.enter(of_few, few)
    with usage(False):  # it is written by scripts, too
        yield from times(sizes, of_many, of_few)
        yield from four_rules(sizes, list(map(population.rule, "abcd")))


def memory(fill: Callable[[], None]) -> int:
    """Bytes that the server uses more, once something is written."""
    server = redis.Redis.from_url(address())
    before = server.info("memory")["used_memory"]
    fill()
    return int(server.info("memory")["used_memory"] - before)


def times(sizes: Sizes, of_many: Rule, of_few: Rule) -> Iterator[Figure]:
    """A decision with many clients and with few: at the server, and all of it."""
    many, few = sizes.clients, max(1, sizes.clients // 1000)
    plain_name = f"Server time of a plain script, {many:,} clients"
    take = connections.store().take
    names = {n: f"Server time of a decision, {n:,} clients" for n in (many, few)}
    found = at_server(
        sizes,
        {
            names[many]: asking(take, [of_many], many),
            names[few]: asking(take, [of_few], few),
            plain_name: plain(many),
        },
    )
    yield from found.values()
    ratio = found[names[many]].median / found[plain_name].median
    yield Figure("Server time, a decision / a plain script", "x", ratio, limit=1.5)
    whole = {
        f"Decision, {many:,} clients": asking(limiter.take, [of_many], many),
        f"Decision, {few:,} clients": asking(limiter.take, [of_few], few),
    }
    compared = Comparison(sizes, whole)
    yield from map(compared.figure, (GET, *whole))


def four_rules(sizes: Sizes, rules: list[Rule]) -> Iterator[Figure]:
    """One rule and four in one decision, all with as many clients."""
    many = sizes.clients // len(rules)
    for rule in rules:
        population.enter(rule, many)
    take = connections.store().take
    found = at_server(
        sizes,
        {
            f"Server time of {n} rule{'s' * (n > 1)}, {many:,} clients each": asking(
                take, rules[:n], many
            )
            for n in (1, 4)
        },
    )
    yield from found.values()
    one, four = found.values()
    yield Figure("Server time, 4 rules / 1", "x", four.median / one.median, limit=3)


def asking(
    take: Callable[[Sequence[Hit]], Decision], rules: list[Rule], clients: int
) -> Callable[[], object]:
    """Decides on some client's request under some rules."""
    numbers = at_random(clients)

    def once() -> object:
        client = population.client(next(numbers))
        return take([Hit(rule, client) for rule in rules])

    return once


def plain(clients: int) -> Callable[[], object]:
    """Runs the plain script for some client."""
    server = redis.Redis.from_url(address())
    sha = server.script_load(population.PLAIN)
    numbers = at_random(clients)

    def once() -> object:
        keys = population.plain_keys(next(numbers))
        return server.evalsha(sha, 2, *keys, population.WINDOW_MS)

    return once
