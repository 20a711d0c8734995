"""Counters of many clients at the server, in this window and in the one before it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import redis

from django_slidinglimit import connections
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.rates import Rate

from . import rows
from .comparison import address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from django_slidinglimit.core.decisions import Decision

T = TypeVar("T")

# A window that lasts longer than any benchmark; what is counted is all in one.
WINDOW_MS = 30 * 24 * 60 * 60 * 1000
# With one command, or in one round trip.
BATCH = 500

# A counter without buckets, digests, window numbers or a limit: the previous window's count, this
# one's, one more, and when that lapses.
PLAIN = """
local previous = redis.call('GET', KEYS[1])
local current = redis.call('GET', KEYS[2])
redis.call('INCRBY', KEYS[2], 1)
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return {previous, current}
"""


def rule(name: str) -> Rule:
    """A rule that never refuses."""
    return Rule(name, Rate(1_000_000, WINDOW_MS))


def decide(name: str) -> Decision:
    """A decision on the first client under a rule of its own."""
    return connections.store().take([Hit(rule(name), client(0))])


def on_another(decision: Decision, number: int) -> Decision:
    """The same decision on another client."""
    (answer,) = decision.answers
    hit = Hit(answer.hit.rule, client(number))
    return replace(decision, answers=(answer._replace(hit=hit),))


def enter(rule: Rule, number: int) -> None:
    """Count a request of each of so many clients in both windows.

    In this one as requests are counted; the buckets are then copied to the window before.
    """
    store = connections.store()
    for some in batches(range(number)):
        store.take([Hit(rule, client(n)) for n in some])
    _copy_to_window_before(redis.Redis.from_url(address()), rule)
    reading = store.peek([Hit(rule, client(number - 1))]).answers[0].reading
    if reading is None or not (reading.previous and reading.current):
        raise RuntimeError(f"The clients are not in both windows: {reading}")


def _copy_to_window_before(server: Any, rule: Rule) -> None:
    """Buckets are hashes; `w` is the number of their window, odd or even as their key ends."""
    prefix = connections.store().store.prefix
    made = server.scan_iter(f"{prefix}*:{rule.id}:{WINDOW_MS}:*", count=10_000)
    for keys in batches(list(made)):
        numbers = pipelined(server, [("HGET", key, "w") for key in keys])
        copies = []
        for key, number in zip(keys, map(int, numbers), strict=True):
            before = key[:-1] + str((number - 1) % 2).encode()
            copies += [
                ("COPY", key, before),
                ("HSET", before, "w", number - 1),
                ("PEXPIREAT", before, (number + 1) * WINDOW_MS),
            ]
        pipelined(server, copies)


def enter_plain(number: int) -> None:
    """The same in two plain keys a client."""
    server = redis.Redis.from_url(address())
    for some in batches(range(number)):
        keys = [key for n in some for key in plain_keys(n)]
        pipelined(server, [("SET", key, 1, "PX", WINDOW_MS) for key in keys])


def plain_keys(number: int) -> tuple[str, str]:
    name = f"throttle:{rows.address(number)}"
    return f"{name}:0", f"{name}:1"


def pipelined(server: Any, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
    pipeline = server.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    found: list[Any] = pipeline.execute()
    return found


def client(number: int) -> Client:
    return Client("ip", rows.address(number))


def at_random(number: int) -> Iterator[int]:
    """Clients in an order that no cache foresees, the same in each run."""
    chance = random.Random(number)
    while True:
        yield chance.randrange(number)


def batches(all_: Sequence[T]) -> Iterator[Sequence[T]]:
    return (all_[start : start + BATCH] for start in range(0, len(all_), BATCH))
