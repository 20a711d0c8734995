from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.test import RequestFactory, override_settings
from hypothesis import given
from hypothesis import strategies as st

from django_slidinglimit import clients, connections, limiter, places
from django_slidinglimit.core.decisions import Answer, Client, Decision, Hit, Rule, Verdict
from django_slidinglimit.core.memory import MemoryStore
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.models import Override
from django_slidinglimit.usage import budget, recorder, tally, writer
from django_slidinglimit.usage.budget import FEW_CLIENTS, MOST_CLIENTS
from django_slidinglimit.usage.layout import (
    client_member,
    field_rule,
    linked,
    member_client,
    member_limited,
    rule_field,
)
from django_slidinglimit.usage.recorder import Recorder
from django_slidinglimit.usage.tally import MOST_CLIENTS_IN_ALL, MOST_RULES
from example_project.server import EmbeddedServer

from . import recorded
from .core.examples import thorough
from .recorded import decided

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings
    from redis import Redis

pytestmark = pytest.mark.usefixtures("patience")

KEEP_SECONDS = 3600
MINUTE = 29_000_000
NOW = MINUTE * 60_000 + 59_999
RULE = Rule("d1", Rate(5, 60_000), "burst")
OTHER = Rule("d2", Rate(9, 60_000), "daily")
OBSERVING = Rule("d3", Rate(3, 60_000), "soft", observe=True)


def user(number: int) -> Client:
    return Client("user", str(number))


def seen(client: Client, used: int = 0, *rules: Rule, now: int = NOW, cost: int = 1) -> Decision:
    """What a store decides on a request of a client that has used so much."""
    return decided(client, used, *(rules or (RULE,)), now=now, cost=cost)


@pytest.fixture
def patience(settings: Settings) -> None:
    """A flush may take its time on a busy machine."""
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 10}


@pytest.fixture
def told() -> Iterator[Recorder]:
    with recorded.recorder() as own:
        yield own


def kept(told: Recorder) -> dict[Client, int]:
    """The clients of a recorder's tally, with their values."""
    return {c: s.value for counts in tallied(told) for c, s in counts.clients.items()}


def tallied(told: Recorder) -> list[tally.Counts]:
    """What a recorder counted of each rule and minute since its last flush."""
    return [c for minute in told._tally.minutes.values() for c in minute.counts.values()]


def counts(redis: Redis, minute: int = MINUTE, prefix: str = "sl:") -> dict[str, int]:
    """What stands in Redis, zeros left out."""
    stored: dict[Any, Any] = redis.hgetall(f"{prefix}usage:{{{minute}}}:counts")
    return {field.decode(): int(n) for field, n in stored.items() if int(n)}


def top(redis: Redis, rule: Rule = RULE, minute: int = MINUTE) -> dict[Client, float]:
    return scores(redis, "top", rule, minute)


def scores(redis: Redis, kind: str, rule: Rule = RULE, minute: int = MINUTE) -> dict[Client, float]:
    """A sorted set of clients."""
    key = f"sl:usage:{{{minute}}}:{kind}:{rule_field(rule)}"
    found: Any = redis.zrange(key, 0, -1, withscores=True)
    return {member_client(member): score for member, score in found}


# What is counted


def test_a_decision_counts_for_each_rule(told: Recorder, redis_client: Redis) -> None:
    told.record(seen(user(1), 0, RULE, OTHER))
    told.record(seen(user(1), 1, RULE, OTHER))
    told.record(seen(user(2), 5, RULE, OTHER))
    told.flush()
    assert counts(redis_client) == {
        f"{rule_field(RULE)}:allowed": 2,
        f"{rule_field(RULE)}:refused": 1,
        f"{rule_field(OTHER)}:allowed": 2,
    }
    assert redis_client.hgetall(f"sl:usage:{{{MINUTE}}}:rules") == {
        rule_field(RULE).encode(): b"burst",
        rule_field(OTHER).encode(): b"daily",
    }


def test_an_observing_rule_would_refuse_but_never_refuses(
    told: Recorder, redis_client: Redis
) -> None:
    told.record(seen(user(1), 2, OBSERVING, RULE))
    told.record(seen(user(1), 3, OBSERVING, RULE))
    # Refused by another: then there is no would-be refusal to tell of.
    told.record(seen(user(1), 5, OBSERVING, RULE))
    told.flush()
    assert counts(redis_client) == {
        f"{rule_field(OBSERVING)}:allowed": 1,
        f"{rule_field(OBSERVING)}:would": 1,
        f"{rule_field(RULE)}:allowed": 2,
        f"{rule_field(RULE)}:refused": 1,
    }


def test_what_no_store_decided_is_not_counted(told: Recorder, redis_client: Redis) -> None:
    told.record(limiter.by_policy([Hit(RULE, user(1))], 0))
    told.record(Decision())
    without_reading = seen(user(1)).answers[0]._replace(reading=None)
    told.record(Decision((without_reading,), NOW))
    told.flush()
    assert not redis_client.keys()


def test_minutes_are_those_of_redis(told: Recorder, redis_client: Redis) -> None:
    limiter.take([Hit(RULE, user(1))])
    recorder.flush()
    seconds, _ = redis_client.time()
    key: Any
    (key,) = redis_client.keys("*:counts")
    assert seconds // 60 - int(key.split(b":")[2].strip(b"{}")) in (0, 1)

    for now in (NOW, NOW + 1, NOW + 60_001):
        told.record(seen(user(1), now=now))
    told.flush()
    assert [sum(counts(redis_client, MINUTE + n).values()) for n in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("seconds", [KEEP_SECONDS, 600])
def test_everything_expires(
    told: Recorder, redis_client: Redis, settings: Settings, seconds: int
) -> None:
    settings.SLIDINGLIMIT = {**settings.SLIDINGLIMIT, "USAGE_KEEP": seconds}
    told.record(seen(user(1), 0, RULE, OTHER))
    told.flush()
    told.record(seen(user(1), 5))
    both(told, user(1), user(2))
    told.flush()
    keys = redis_client.keys()
    assert len(keys) == 13
    assert all(seconds - 60 < redis_client.ttl(key) <= seconds for key in keys)


def test_a_flush_begins_anew(told: Recorder, redis_client: Redis) -> None:
    for expected in (1, 2, 3):
        told.record(seen(user(1)))
        told.flush()
        told.flush()
        assert counts(redis_client) == {f"{rule_field(RULE)}:allowed": expected}


def test_the_keys_stand_under_the_aliass_prefix(redis_client: Redis, settings: Settings) -> None:
    settings.CACHES = {"default": {**settings.CACHES["default"], "KEY_PREFIX": "shop-"}}
    settings.SLIDINGLIMIT = {"PREFIX": "limits/"}
    recorder.recorder.record(seen(user(1)))
    recorder.flush()
    assert counts(redis_client, prefix="shop-limits/")
    assert all(key.startswith(b"shop-limits/usage:") for key in redis_client.scan_iter())


# The busiest clients


def test_a_client_ranks_by_the_counters_own_value(told: Recorder, redis_client: Redis) -> None:
    """Not by one process's share, nor by the sum of what the processes saw."""
    told.record(seen(user(1), 2))
    recorder.recorder.record(seen(user(1), 3))
    told.record(seen(user(2), 0))
    recorder.flush()
    told.flush()
    assert top(redis_client) == {user(1): 4, user(2): 1}


def test_a_refused_client_ranks_by_what_it_has_used(redis_client: Redis) -> None:
    for _ in range(50):
        limiter.take([Hit(Rule("d1", Rate(5, 86_400_000)), user(1))])
    limiter.take([Hit(Rule("d1", Rate(5, 86_400_000)), user(2))])
    recorder.flush()
    (key,) = redis_client.keys("*top*")
    assert redis_client.zrange(key, 0, -1, withscores=True) == [
        (b'["user","2"]', 1),
        (b'["user","1"]', 5),
    ]


def test_the_greatest_value_of_a_minute_stays(told: Recorder) -> None:
    for used in (1, 4, 2, 0):
        told.record(seen(user(1), used))
    assert kept(told) == {user(1): 5}


def test_a_flood_of_clients_is_bounded_and_counted(told: Recorder, redis_client: Redis) -> None:
    for number in range(100_000):
        told.record(seen(user(number)))
    assert len(kept(told)) == MOST_CLIENTS
    told.flush()
    assert counts(redis_client) == {f"{rule_field(RULE)}:allowed": 100_000}
    assert len(top(redis_client)) == MOST_CLIENTS
    for number in range(2000):
        told.record(seen(user(-number), 1))
    told.flush()
    assert Counter(top(redis_client).values()) == {2: MOST_CLIENTS}


def test_a_flood_over_many_rules_is_bounded(told: Recorder) -> None:
    rules = [Rule(f"d{number}", Rate(9, 60_000)) for number in range(MOST_RULES + 100)]
    for rule in rules[:20]:
        for number in range(MOST_CLIENTS + 100):
            told.record(seen(user(number), 0, rule))
    for rule in rules:
        for number in range(FEW_CLIENTS + 5):
            told.record(seen(user(number), 0, rule))
    sizes = [len(counts.clients) for counts in tallied(told)]
    assert len(sizes) == MOST_RULES
    assert max(sizes) == MOST_CLIENTS
    assert min(sizes) == FEW_CLIENTS
    assert sum(sizes) <= MOST_CLIENTS_IN_ALL + MOST_RULES * FEW_CLIENTS


def test_a_full_tally_is_written_whole(told: Recorder, redis_client: Redis) -> None:
    rules = [Rule(f"d{number}", Rate(9, 60_000)) for number in range(12)]
    for rule in rules:
        for number in range(MOST_CLIENTS):
            told.record(seen(user(number), 0, rule))
    told.flush()
    assert sum(counts(redis_client).values()) == len(rules) * MOST_CLIENTS
    sizes = [len(top(redis_client, rule)) for rule in rules]
    assert sum(sizes) == MOST_CLIENTS_IN_ALL + 8 * FEW_CLIENTS


def test_a_busy_client_is_listed_however_late_it_comes(told: Recorder, redis_client: Redis) -> None:
    for number in range(MOST_CLIENTS + 500):
        told.record(seen(user(number)))
    for used in (1, 2, 3):
        told.record(seen(Client("user", "busy"), used))
    told.record(seen(Client("user", "refused"), 5))
    told.flush()
    listed = top(redis_client)
    assert len(listed) == MOST_CLIENTS
    assert listed[Client("user", "busy")] == 4
    assert listed[Client("user", "refused")] == 5


@thorough
@given(st.lists(st.integers(0, 30), max_size=200), st.integers(1, 8))
def test_the_greatest_are_kept(arrivals: list[int], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tally, "MOST_CLIENTS", most)
        told, used = Recorder(), Counter[int]()
        for number in arrivals:
            told.record(seen(user(number), used[number], OTHER))
            used[number] += 1
        told.stop()
    found = kept(told)
    assert len(found) == min(most, len(used))
    assert all(value == used[int(client.identity)] for client, value in found.items())
    left_out = [count for number, count in used.items() if user(number) not in found]
    assert max(left_out, default=0) <= min(found.values(), default=0)


# What clients asked, and what of that was over the limit


def test_what_a_client_asked_is_counted_admitted_or_refused_by_all_processes(
    told: Recorder, redis_client: Redis
) -> None:
    for used in (3, 4, 5, 5):
        told.record(seen(user(1), used))
    recorder.recorder.record(seen(user(1), 5, cost=2))
    told.record(seen(user(2), 0, cost=3))
    for each in (told, recorder):
        each.flush()
    assert scores(redis_client, "asked") == {user(1): 6, user(2): 3}
    assert scores(redis_client, "over") == {user(1): 4}


def test_what_another_rule_refused_was_asked_all_the_same(
    told: Recorder, redis_client: Redis
) -> None:
    told.record(seen(user(1), 5, RULE, OTHER, OBSERVING))
    told.flush()
    for rule in (RULE, OTHER, OBSERVING):
        assert scores(redis_client, "asked", rule) == {user(1): 1}
    assert scores(redis_client, "over", RULE) == {user(1): 1}
    assert scores(redis_client, "over", OTHER) == {}
    assert scores(redis_client, "over", OBSERVING) == {}  # refused already: nothing would have been


def test_an_observing_rule_tells_whom_it_would_have_refused(
    told: Recorder, redis_client: Redis
) -> None:
    for used in (2, 3, 3):
        told.record(seen(user(1), used, OBSERVING))
    told.record(seen(user(2), 0, OBSERVING))
    told.flush()
    assert scores(redis_client, "over", OBSERVING) == {user(1): 2}


def test_what_clients_asked_is_bounded_too(told: Recorder, redis_client: Redis) -> None:
    for start in (0, MOST_CLIENTS):
        for number in range(start, start + MOST_CLIENTS):
            told.record(seen(user(number), 5, cost=2 if start else 1))
        told.flush()
    for kind in ("asked", "over"):
        kept = scores(redis_client, kind)
        assert kept == {user(MOST_CLIENTS + number): 2 for number in range(MOST_CLIENTS)}


# Who is limited, and since when


def limited(redis: Redis, minute: int = MINUTE) -> dict[tuple[str, Client], tuple[int, int]]:
    """Clients under rules: how often they were refused, and since when, in ms of NOW."""
    base = f"sl:usage:{{{minute}}}:"
    found: list[Any] = [
        redis.zrange(f"{base}{kind}", 0, -1, withscores=True) for kind in ("since", "limited")
    ]
    since, refused = map(dict, found)
    assert since.keys() == refused.keys()
    return {member_limited(m): (int(n), int(since[m]) - NOW) for m, n in refused.items()}


def test_who_is_refused_is_told_with_how_often_and_since_when(
    told: Recorder, redis_client: Redis
) -> None:
    for late in (-900, -500, 0):
        told.record(seen(user(1), 5, RULE, OTHER, OBSERVING, now=NOW + late))
    told.record(seen(user(2), 0))
    told.flush()
    assert limited(redis_client) == {(rule_field(RULE), user(1)): (3, -900)}


def test_the_first_refusal_holds_as_long_as_a_client_is_refused_every_minute(
    told: Recorder, redis_client: Redis
) -> None:
    field = rule_field(RULE)
    for seconds in (0, 1, 31, 90, 149):
        told.record(seen(user(1), 5, now=NOW + seconds * 1000))
        told.flush()
    assert limited(redis_client) == {(field, user(1)): (1, 0)}
    assert limited(redis_client, MINUTE + 1) == {(field, user(1)): (2, 0)}
    assert limited(redis_client, MINUTE + 2) == {(field, user(1)): (1, 0)}
    assert limited(redis_client, MINUTE + 3) == {(field, user(1)): (1, 0)}
    told.record(seen(user(1), 5, now=NOW + 210_000))  # 61 s later
    told.flush()
    assert limited(redis_client, MINUTE + 4) == {(field, user(1)): (1, 210_000)}


def test_of_all_processes_the_first_refusal_holds(told: Recorder, redis_client: Redis) -> None:
    for recording, late in ((told, -100), (recorder.recorder, -700), (told, 0)):
        recording.record(seen(user(1), 5, now=NOW + late))
        recording.flush()
    assert limited(redis_client) == {(rule_field(RULE), user(1)): (3, -700)}


def test_of_very_many_limited_clients_the_most_refused_are_kept(
    told: Recorder, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MOST_LIMITED", 50)
    monkeypatch.setattr(budget, "MOST_LIMITED", 100)
    for times in (2, 1):
        for number in range(300):
            for _ in range(times):
                told.record(seen(user(number * times), 5))
        told.flush()
    found = limited(redis_client)
    assert len(found) == 100
    assert all(times >= 2 for times, _ in found.values())
    assert len(told._writer._limited) == 50


def test_a_refusal_without_a_counter_is_in_the_minute_of_redis(
    told: Recorder, redis_client: Redis
) -> None:
    verdict = Verdict(False, 5, 0, None, 0)
    blocked = Decision((Answer(Hit(RULE, user(1)), verdict, None),))
    told.record(seen(user(2)))
    assert abs(told.now_ms - NOW) < 60_000  # as the store said, whatever the clock here says
    told.record(blocked)
    told.flush()
    found = limited(redis_client) | limited(redis_client, MINUTE + 1)
    assert [times for times, _ in found.values()] == [1]
    seconds, _ = redis_client.time()
    assert abs(told.now_ms - int(seconds) * 1000) < 60_000  # as Redis said


def test_before_anything_is_known_of_redis_the_clock_here_is_taken(
    told: Recorder, redis_client: Redis
) -> None:
    verdict = Verdict(False, 5, 0, None, 0)
    before = int(time.time() // 60)
    told.record(Decision((Answer(Hit(RULE, user(1)), verdict, None),)))
    told.flush()
    minutes = range(before, int(time.time() // 60) + 1)
    assert sum(sum(counts(redis_client, minute).values()) for minute in minutes) == 1


@pytest.mark.django_db
def test_a_request_of_a_blocked_client_is_recorded(redis_client: Redis) -> None:
    Override.objects.create(kind="user", identity="1", effect="block")
    request = RequestFactory().get("/")
    request.user = User(pk=1)
    for _ in range(3):
        decision = limiter.check(request, "blocked", key="user", rate="5/min")
        assert decision.time_ms is None
    recorder.flush()
    [key] = [str(key, "ascii") for key in redis_client.scan_iter("*:limited")]
    found: Any = redis_client.zrange(key, 0, -1, withscores=True)
    [(member, times)] = found
    assert (member_limited(member)[1], times) == (user(1), 3)
    assert counted(redis_client) == 3


# Who belongs together


def links(redis: Redis, client: Client) -> set[Client]:
    """The clients that are linked to one."""
    member = client_member(client)
    found: Any = redis.zrangebylex(f"sl:usage:{{{MINUTE}}}:links", f"[{member} ", f"[{member} \xff")
    return {other for each in found if (other := linked(client, each)) is not None}


def both(told: Recorder, *clients: Client) -> None:
    answers = tuple(seen(client).answers[0] for client in clients)
    told.record(Decision(answers, NOW))


def test_clients_of_one_request_are_found_from_either_side(
    told: Recorder, redis_client: Redis
) -> None:
    address, other = Client("ip", "192.0.2.7"), Client("ip", "192.0.2.8")
    for _ in range(2):
        both(told, user(1), address)
        both(told, user(1), other)
        told.flush()
    both(told, user(12), address)
    told.flush()
    assert links(redis_client, user(1)) == {address, other}
    assert links(redis_client, user(12)) == {address}
    assert links(redis_client, address) == {user(1), user(12)}
    assert links(redis_client, other) == {user(1)}


def test_links_are_bounded_and_none_is_one_sided(told: Recorder, redis_client: Redis) -> None:
    for start in range(0, 600, 60):
        for number in range(start, start + 60):
            both(told, user(number), Client("ip", f"192.0.2.{number}"))
        told.flush()
    members: Any = redis_client.zrange(f"sl:usage:{{{MINUTE}}}:links", 0, -1)
    assert len(members) == budget.MOST_LINKS
    assert {member.split(b" ")[0] for member in members} == {
        member.split(b" ")[1] for member in members
    }


# Identities


def everything(redis: Redis) -> bytes:
    """All that stands in a server, as one text."""
    found = b""
    for key in redis.scan_iter():
        kind = redis.type(key)
        value: Any = b""
        if kind == b"hash":
            value = redis.hgetall(key)
        elif kind == b"zset":
            value = redis.zrange(key, 0, -1)
        found += key + repr(value).encode()
    return found


@pytest.fixture
def hashed(settings: Settings) -> None:
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 10, "USAGE_HASHED": True}


def test_where_identities_are_hashed_none_is_stored(hashed: None, redis_client: Redis) -> None:
    rule, maria = Rule("d1", Rate(1, 60_000)), Client("user", "maria@example.com")
    for _ in range(2):
        limiter.take([Hit(rule, maria), Hit(rule, Client("ip", "192.0.2.77"))])
    recorder.flush()
    stored = everything(redis_client)
    assert b"limited" in stored
    assert b"links" in stored
    for secret in (b"maria", b"example", b"192.0.2.77"):
        assert secret not in stored


def test_a_hashed_client_has_the_counter_of_the_real_one(
    hashed: None, told: Recorder, redis_client: Redis
) -> None:
    maria = Client("user", "maria@example.com")
    limiter.take([Hit(RULE, maria)])
    told.record(seen(maria))
    told.flush()
    [(client, value)] = top(redis_client).items()
    assert (client.kind, value) == ("hashed:user", 1)
    assert len(client.identity) == 16
    decision = limiter.look([Hit(RULE, client)])
    assert decision.answers[0].reading
    assert decision.answers[0].reading.current == 1
    limiter.take([Hit(RULE, client)])
    assert limiter.look([Hit(RULE, maria)]).answers[0].verdict.remaining == 3


def test_who_writes_an_identity_finds_its_hashed_client(
    hashed: None, told: Recorder, redis_client: Redis
) -> None:
    told.record(seen(Client("user", "maria@example.com")))
    told.flush()
    [client] = top(redis_client)
    assert client_member(clients.settled("user", "maria@example.com")) == client_member(client)
    assert clients.settled(*client) == client


def test_nobody_is_not_hashed(hashed: None, told: Recorder, redis_client: Redis) -> None:
    for nobody in (Client("global", ""), Client("header:x-api-key", "")):
        told.record(seen(nobody))
    told.flush()
    assert set(top(redis_client)) == {Client("global", ""), Client("header:x-api-key", "")}


# Threads, forks, exits


def test_totals_are_exact_under_threads(told: Recorder, redis_client: Redis) -> None:
    ready = threading.Barrier(21)

    def work(number: int) -> None:
        ready.wait()
        for round_ in range(300):
            told.record(seen(user(number), round_ % 8, RULE, OTHER))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    ready.wait()
    while any(thread.is_alive() for thread in threads):
        told.flush()
        time.sleep(0.01)
    told.flush()
    found = counts(redis_client)
    asked = [round_ % 8 for round_ in range(300)]
    allowed = 20 * sum(used < 5 for used in asked)
    assert found == {
        f"{rule_field(RULE)}:allowed": allowed,
        f"{rule_field(RULE)}:refused": 20 * len(asked) - allowed,
        f"{rule_field(OTHER)}:allowed": allowed,
    }
    assert top(redis_client) == {user(number): 7 for number in range(20)}


def test_what_is_recorded_is_written_within_seconds(redis_client: Redis) -> None:
    limiter.take([Hit(RULE, user(1))])
    eventually(lambda: redis_client.keys("*usage*"))


PROCESS = """
import atexit, os, sys, django
from django.conf import settings
settings.SLIDINGLIMIT = {"TIMEOUT": 10}  # other tests may keep the machine busy
django.setup()
from django_slidinglimit import limiter
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.usage import recorder

def take(count, rule="d1"):
    for _ in range(count):
        limiter.take([Hit(Rule(rule, Rate(100, 86_400_000)), Client("user", "1"))])

"""


def started(script: str, *args: str) -> subprocess.Popen[str]:
    """A process that does what a script says."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROCESS + script, *args],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str], status: int = 0) -> None:
    try:
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert errors == ""
    assert process.returncode == status


def run(script: str, status: int = 0) -> None:
    finished(started(script), status)


def counted(redis: Redis) -> int:
    """All decisions that were recorded, in whatever minute."""
    stored: list[dict[Any, Any]] = [redis.hgetall(key) for key in redis.keys("*usage*:counts")]
    return sum(
        int(count)
        for counts in stored
        for field, count in counts.items()
        if not field.endswith(b":clients")
    )


@pytest.mark.parametrize(("end", "status"), [("pass", 0), ("sys.exit(3)", 3)])
def test_a_process_that_ends_writes_what_it_has(redis_client: Redis, end: str, status: int) -> None:
    run(f"take(7)\n{end}", status)
    assert counted(redis_client) == 7


def test_where_no_thread_is_to_be_had_decisions_go_on(redis_client: Redis) -> None:
    script = """
import resource, threading
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
threading.stack_size(2**32)
take(3)
assert "slidinglimit-usage" not in [thread.name for thread in threading.enumerate()]
"""
    run(script)
    assert counted(redis_client) == 3


def test_a_forked_child_counts_its_own_and_nothing_twice(redis_client: Redis) -> None:
    script = """
take(5)
child = os.fork()
take(2, "d2" if child == 0 else "d1")
recorder.flush()
if child == 0:
    take(4, "d2")
    import time
    while recorder.recorder._tally.minutes:  # until a thread of its own has taken it
        time.sleep(0.01)
    with recorder.recorder._flushing:  # and written it
        pass
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    run(script)
    totals: Counter[str] = Counter()
    for key in redis_client.keys("*usage*:counts"):
        stored: dict[Any, Any] = redis_client.hgetall(key)
        for field, count in stored.items():
            totals[field.decode().split(":")[0]] += int(count)
    assert totals == {"d1": 7, "d2": 6}


def test_of_sixteen_processes_in_a_flood_the_one_that_asks_each_now_and_then_stands_first(
    redis_client: Redis,
) -> None:
    """No process sees more of it than of any other client; only the counter knows."""
    script = """
number = int(sys.argv[1])
rule = Rule("d1", Rate(100, 86_400_000), "day")
for second in range(2):
    limiter.take([Hit(rule, Client("ip", "192.0.2.1"))])
    for other in range(1050):
        limiter.take([Hit(rule, Client("ip", f"2001:db8:{number}:{second}::{other:x}"))])
    recorder.flush()
"""
    processes = [started(script, str(number)) for number in range(16)]
    for process in processes:
        finished(process)
    keys: list[Any] = redis_client.keys("*:top:*")
    minutes: list[Any] = [redis_client.zrevrange(key, 0, -1, withscores=True) for key in keys]
    assert max(map(len, minutes)) == MOST_CLIENTS
    member, value = max((clients[0] for clients in minutes), key=lambda first: first[1])
    assert (member_client(member), value) == (Client("ip", "192.0.2.1"), 32)
    # Where a minute ended just then, it may be one of many that asked once in it.
    assert all(c[0][1] == dict(c)[member] for c in minutes if member in dict(c))
    assert counted(redis_client) == 16 * 2 * 1051


def test_where_the_thread_does_not_get_to_run_the_end_of_a_request_flushes(
    redis_client: Redis,
) -> None:
    script = """
import time
from django.core.signals import request_finished
recorder.FLUSH_SECONDS = 60  # as long as that it does not run
take(3)
time.sleep(2)
request_finished.send(None)
os._exit(0)
"""
    run(script)
    assert counted(redis_client) == 3


def test_where_no_thread_is_to_be_had_the_end_of_a_request_flushes(redis_client: Redis) -> None:
    script = """
import time
from django.core.signals import request_finished
recorder.recorder._start = lambda: None
take(3)
time.sleep(2)
request_finished.send(None)
os._exit(0)
"""
    run(script)
    assert counted(redis_client) == 3


def test_recording_waits_for_no_flush_that_waits_for_redis(
    redis_server: EmbeddedServer, settings: Settings, told: Recorder
) -> None:
    with EmbeddedServer(redis_server.binary) as server:
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": server.url}}
        settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 60}
        pid = connections.store().run([("INFO", "server")])[0].split(b"process_id:")[1].split()[0]
        told.record(seen(user(1)))
        os.kill(int(pid), signal.SIGSTOP)
        try:
            flush = threading.Thread(target=told.flush)
            flush.start()
            eventually(lambda: not told._tally.minutes)
            told.record(seen(user(2)))
            assert flush.is_alive()
        finally:
            os.kill(int(pid), signal.SIGCONT)
        flush.join(60)
    assert kept(told) == {user(2): 1}


def test_where_the_thread_flushes_the_end_of_a_request_does_nothing(
    told: Recorder, redis_client: Redis
) -> None:
    told.record(seen(user(1)))
    told.flush_if_late()
    assert not redis_client.keys()


def test_a_killed_process_loses_its_last_second_at_most(redis_client: Redis) -> None:
    script = """
import time
take(5)
while recorder.recorder._tally.minutes:  # until the thread has taken it
    time.sleep(0.01)
with recorder.recorder._flushing:  # and written it
    pass
take(3)
os.kill(os.getpid(), 9)
"""
    run(script, -signal.SIGKILL)
    assert counted(redis_client) in (5, 8)


# Settings and stores


def test_without_usage_nothing_is_recorded(redis_client: Redis) -> None:
    with override_settings(SLIDINGLIMIT={"USAGE": False}):
        for _ in range(3):
            limiter.take([Hit(RULE, user(1))])
        recorder.flush()
        assert kept(recorder.recorder) == {}
    assert not redis_client.keys("*usage*")


def test_a_store_that_keeps_no_usage_does_no_harm(
    redis_client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    connections.use(MemoryStore())
    try:
        assert limiter.take([Hit(RULE, user(1))]).time_ms
        assert kept(recorder.recorder) == {}
        recorder.recorder.record(seen(user(1)))
        with pytest.raises(StoreError):
            recorder.flush()
        recorder.recorder.record(seen(user(1)))
        recorder.recorder._work()
        assert kept(recorder.recorder) == {}
        assert connections.store().failure is None
    finally:
        connections.use(None)
    assert not caplog.records
    assert not list(redis_client.scan_iter())


def test_what_was_recorded_under_other_settings_is_dropped(redis_client: Redis) -> None:
    before = recorder.recorder
    limiter.take([Hit(RULE, user(1))])
    with override_settings(SLIDINGLIMIT={"PREFIX": "other:"}):
        limiter.take([Hit(RULE, user(1))])
        redis_client.flushall()
        before.record(seen(user(1)))  # by a request that was under way
    recorder.flush()
    time.sleep(1.2)
    assert not redis_client.keys()
    assert "slidinglimit-usage" not in [thread.name for thread in threading.enumerate()]


def test_a_flush_that_fails_does_not_open_the_breaker(
    redis_server: EmbeddedServer, settings: Settings
) -> None:
    with EmbeddedServer(redis_server.binary) as server:
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": server.url}}
        settings.SLIDINGLIMIT = {"TIMEOUT": 0.5}
        limiter.take([Hit(RULE, user(1))])
        pid = connections.store().run([("INFO", "server")])[0].split(b"process_id:")[1].split()[0]
        os.kill(int(pid), signal.SIGSTOP)
        with pytest.raises(StoreError):
            recorder.flush()
        assert connections.store().failure is None
        os.kill(int(pid), signal.SIGCONT)
        assert limiter.take([Hit(RULE, user(1))]).time_ms


# Names in keys


@thorough
@given(st.text(), st.text())
def test_a_member_reads_as_the_client_that_it_stands_for(kind: str, identity: str) -> None:
    client = Client(kind, identity)
    member = client_member(client)
    assert member.isascii()
    assert member_client(member) == member_client(member.encode()) == client


@pytest.mark.parametrize("member", ["", "x", "[]", '["a"]', '["a","b","c"]', "{}", "7", b"\xff"])
def test_another_text_is_no_member(member: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        member_client(member)


@pytest.mark.parametrize(
    "rule", [RULE, OTHER, OBSERVING, places.code_rule("a:b", "ip", frozenset(), Rate(1, 1))]
)
def test_a_field_reads_as_the_rule_that_it_stands_for(rule: Rule) -> None:
    assert field_rule(rule_field(rule), rule.name) == rule


@pytest.mark.parametrize(
    "field",
    [
        "",
        "d1",
        "d1:5:60000",
        "d1:5:0:enforce",
        "d1:x:1:enforce",
        "d 1:5:1:enforce",
        ":5:1:enforce",
        "d1:5:1:off",
        "d1:5:1:observe:x",
    ],
)
def test_another_text_is_no_field(field: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        field_rule(field)


def eventually(true: Any, within: float = 10) -> None:
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
