"""The usage pages of a busy site: at the server, from request to response, and in Redis."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import redis
from django.contrib.auth import get_user_model
from django.test import Client as Browser
from django.urls import reverse

from django_slidinglimit import connections, keeper
from django_slidinglimit.admin import people
from django_slidinglimit.core.decisions import Client, Hit
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.rules import compile_rule
from django_slidinglimit.usage import listed, minutes, sets
from django_slidinglimit.usage.budget import MOST_CLIENTS, MOST_LIMITED, OLDER_CLIENTS, RECENT
from django_slidinglimit.usage.layout import (
    client_member,
    limited_member,
    minute_base,
    rule_field,
)

from . import rows
from .comparison import address
from .figures import MS, Figure, figure, in_turns
from .population import BATCH, batches, pipelined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django_slidinglimit.core.decisions import Rule

    from .figures import Sizes

    Command = tuple[Any, ...]

# Rules that are asked, and a window in which all of their clients stay.
RULES = 200
RATE = "10/day"
# Clients of each rule in each of the last minutes: as many of so many rules as recorders have
# room for. The rule whose page is measured has as many as it may have at all.
CLIENTS = 90
# Looks at each page.
LOOKS = 20
LIMIT_MS = 200


def run(sizes: Sizes) -> Iterator[Figure]:
    rules = _rules(min(RULES, sizes.rules))
    _count(rules, sizes.clients)
    _record(rules)
    overview, rule, bare = _pages(rules)
    sizes = replace(sizes, rounds=min(LOOKS, sizes.rounds), calls=1)
    about = f"{len(rules)} rules and {sizes.clients:,} clients"
    looks: dict[str, Callable[[], object]] = {
        "Bare admin list": bare,
        "Overview, new to the process": _new(overview),
        "Overview, refreshed": lambda: overview("&fragment=1"),
        "Rule page, new to the process": _new(rule),
        "Rule page, refreshed": lambda: rule("&fragment=1"),
    }
    samples = dict(zip(looks, in_turns(sizes, *looks.values()), strict=True))
    found = {
        name: figure(
            name if name == "Bare admin list" else f"{name}, {about}",
            "ms",
            [s * MS for s in mine],
            None if name == "Bare admin list" else LIMIT_MS,
        )
        for name, mine in samples.items()
    }
    yield from found.values()
    for name in ("Overview, refreshed", "Rule page, refreshed"):
        ratio = found[name].median / found["Bare admin list"].median
        yield Figure(f"{name} / bare admin list", "x", ratio)
    for name, look in looks.items():
        if name != "Bare admin list":
            slowest = _slowest(look, sizes.rounds)
            yield Figure(f"{name}, slowest command", "us", slowest, limit=1000)


def _rules(number: int) -> list[Rule]:
    Row.objects.bulk_create(
        Row(name=f"rule {n}", scope=f"scope-{n}", rate=RATE, key="ip") for n in range(number)
    )
    keeper.current()
    return [compile_rule(row).rule for row in Row.objects.order_by("pk")]


def _count(rules: list[Rule], clients: int) -> None:
    """Have every client ask one of the rules."""
    store = connections.store()
    for some in batches(range(clients)):
        store.take([Hit(rules[n % len(rules)], _client(n)) for n in some])


def _record(rules: list[Rule]) -> None:
    """Write an hour as recorders do, with as much as they may write of it."""
    server = redis.Redis.from_url(address())
    (seconds, _), prefix = server.time(), connections.store().prefix
    running = int(seconds) // 60
    commands: list[Command] = []
    # One minute more: it may end while one looks.
    for number in range(running - minutes.MOST, running + 2):
        base = minute_base(prefix, number)
        commands += _counts(base, rules)
        for n, rule in enumerate(rules):
            commands += _clients(base, rule, _many(n, running - number))
        if number >= running - 1:
            commands += _limited(base, rules)
    for some in batches(commands):
        pipelined(server, some)


def _many(place: int, age: int) -> int:
    """How many clients are kept of a rule."""
    if place == 0:
        return MOST_CLIENTS if age < RECENT else OLDER_CLIENTS
    return CLIENTS if age < 2 else 0


def _counts(base: str, rules: list[Rule]) -> Iterator[Command]:
    fields = [rule_field(rule) for rule in rules]
    names = [part for f, rule in zip(fields, rules, strict=True) for part in (f, rule.name)]
    yield ("HSET", f"{base}rules", *names)
    for what, most in (("allowed", 9973), ("refused", 97), ("clients", 5000)):
        # Other numbers in each minute, so that no two columns of a chart are alike.
        counts = [
            part for n, f in enumerate(fields) for part in (f"{f}:{what}", hash((base, n)) % most)
        ]
        yield ("HSET", f"{base}counts", *counts)


def _clients(base: str, rule: Rule, many: int) -> Iterator[Command]:
    if many:
        for what in ("top", "asked", "over"):
            scores = [part for n in range(many) for part in (n % 10, client_member(_client(n)))]
            yield ("ZADD", f"{base}{what}:{rule_field(rule)}", *scores)


def _limited(base: str, rules: list[Rule]) -> Iterator[Command]:
    members = [
        limited_member(rule_field(rules[n % len(rules)]), _client(n)) for n in range(MOST_LIMITED)
    ]
    for what in ("limited", "since"):
        scores = [part for n, member in enumerate(members) for part in (n + 1, member)]
        yield ("ZADD", f"{base}{what}", *scores)


def _client(number: int) -> Client:
    return Client("ip", rows.address(number))


def _pages(rules: list[Rule]) -> list[Callable[..., object]]:
    """The overview, a rule's page and a list with one row, for one who is signed in."""
    user = get_user_model()._default_manager.create_superuser("operator", password="-")
    browser = Browser()
    browser.force_login(user)
    usage = "admin:django_slidinglimit_usage"

    def at(url: str) -> Callable[..., object]:
        def look(more: str = "") -> object:
            response = browser.get(f"{url}{more}")
            if response.status_code != 200 or b"sl-away" in response.content:
                raise RuntimeError(f"{url} cannot be seen.")
            return response

        return look

    return [
        at(f"{reverse(f'{usage}_changelist')}?"),
        at(f"{reverse(f'{usage}_rule')}?rule={rules[0].id}"),
        at(f"{reverse('admin:auth_user_changelist')}?"),
    ]


def _new(look: Callable[..., object]) -> Callable[[], object]:
    """The same as a process has it that was not asked before."""

    def once() -> object:
        for room in (minutes, listed, sets, people):
            room.forget()
        return look()

    return once


def _slowest(look: Callable[[], object], rounds: int) -> float:
    """The time in Redis of the slowest command of a look, in microseconds.

    Of each command the quickest run counts: in the others the machine was busy with something else.
    """
    server = redis.Redis.from_url(address())
    server.config_set("slowlog-max-len", 20 * BATCH)
    server.config_set("slowlog-log-slower-than", 0)
    quickest: dict[bytes, float] = {}
    try:
        for _ in range(rounds):
            server.slowlog_reset()
            look()
            for entry in server.slowlog_get(20 * BATCH):
                took = float(entry["duration"])
                quickest[entry["command"]] = min(took, quickest.get(entry["command"], took))
    finally:
        server.config_set("slowlog-log-slower-than", 10_000)
    return max(quickest.values())
