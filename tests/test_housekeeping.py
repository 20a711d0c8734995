"""The work of the minute, and that usage stays within its budget in a real server's memory."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from django_slidinglimit import connections
from django_slidinglimit.core.decisions import Client, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.usage import housekeeping
from django_slidinglimit.usage.budget import MOST_CLIENTS, OLDER_CLIENTS, RECENT
from django_slidinglimit.usage.housekeeping import Housekeeper
from django_slidinglimit.usage.layout import rule_field
from example_project.server import EmbeddedServer
from tests.recorded import decided, recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

    from django_slidinglimit.usage.recorder import Recorder

MINUTE = 29_000_000
MB = 2**20
LIST = Rule("d1", Rate(5, 60_000), "list")
SEARCH = Rule("d2", Rate(5, 60_000), "search")


@pytest.fixture(autouse=True)
def patience(settings: Settings) -> None:
    """A trip may take its time on a busy machine."""
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 10}


@pytest.fixture
def told() -> Iterator[Recorder]:
    with recorder() as own:
        yield own


def user(number: int) -> Client:
    return Client("user", str(number))


def ask(
    told: Recorder, rule: Rule, clients: range, minute: int = MINUTE, *, limited: bool = True
) -> None:
    """Have clients ask a rule; every sixth is over the limit, unless none is."""
    for number in clients:
        told.record(decided(user(number), number % (5 + limited), rule, now=minute * 60_000))
    told.flush()


def keep(minute: int) -> None:
    """Do the work of a minute."""
    Housekeeper().keep(connections.store().store, minute)


def key(kind: str, rule: Rule | None = None, minute: int = MINUTE) -> str:
    base = f"sl:usage:{{{minute}}}:{kind}"
    return f"{base}:{rule_field(rule)}" if rule else base


def test_distinct_clients_are_counted_when_their_minute_is_over(
    told: Recorder, redis_client: Redis
) -> None:
    ask(told, LIST, range(3000))
    ask(told, LIST, range(2000, 5000))
    ask(told, SEARCH, range(7))
    keep(MINUTE)
    assert redis_client.exists(key("seen", LIST))
    keep(MINUTE + 1)
    counts: Any = redis_client.hgetall(key("counts"))
    assert int(counts[f"{rule_field(LIST)}:clients".encode()]) == pytest.approx(5000, rel=0.05)
    assert counts[f"{rule_field(SEARCH)}:clients".encode()] == b"7"
    assert not redis_client.exists(key("seen", LIST), key("seen", SEARCH))


def test_a_minute_that_leaves_the_last_five_keeps_a_hundred(
    told: Recorder, redis_client: Redis
) -> None:
    ask(told, LIST, range(2000))
    for minute in range(MINUTE + 1, MINUTE + RECENT + 1):
        keep(minute)
        assert redis_client.zcard(key("asked", LIST)) == MOST_CLIENTS
        assert redis_client.zcard(key("limited")) > OLDER_CLIENTS
    keep(MINUTE + RECENT + 1)
    for kind in ("top", "asked", "over"):
        assert redis_client.zcard(key(kind, LIST)) == OLDER_CLIENTS
    limited = redis_client.zrange(key("limited"), 0, -1)
    assert len(limited) == OLDER_CLIENTS
    assert set(limited) == set(redis_client.zrange(key("since"), 0, -1))


def test_the_busiest_are_those_that_are_left(told: Recorder, redis_client: Redis) -> None:
    for _ in range(3):
        ask(told, LIST, range(150, 250))
    ask(told, LIST, range(400))
    keep(MINUTE + RECENT + 1)
    left = redis_client.zrange(key("asked", LIST), 0, -1)
    assert set(left) == {f'["user","{number}"]'.encode() for number in range(150, 250)}


def test_minutes_in_which_nobody_did_the_work_are_made_up_for(
    told: Recorder, redis_client: Redis
) -> None:
    keep(MINUTE - 1)
    ask(told, LIST, range(2000))
    ask(told, LIST, range(2000), MINUTE + 2)
    keep(MINUTE + 9)
    for minute in (MINUTE, MINUTE + 2):
        assert redis_client.zcard(key("asked", LIST, minute)) == OLDER_CLIENTS
        assert redis_client.hexists(key("counts", None, minute), f"{rule_field(LIST)}:clients")


def test_one_process_does_the_work_of_a_minute(redis_client: Redis) -> None:
    store = connections.store().store
    seconds, _ = redis_client.time()
    minute: Any = seconds // 60
    for _ in range(3):
        Housekeeper().work(store, minute * 60_000)  # too early: recorders write late
    assert not redis_client.exists("sl:usage:kept")
    first, second = Housekeeper(), Housekeeper()
    first.work(store, minute * 60_000 + 5_000)
    if redis_client.get("sl:usage:kept") is None:  # the next minute began in between
        minute += 1
        first.work(store, minute * 60_000 + 5_000)
    assert redis_client.get("sl:usage:kept") == str(minute).encode()
    redis_client.delete("sl:usage:kept")
    for keeper in (first, second):
        keeper.work(store, minute * 60_000 + 59_000)
    assert not redis_client.exists("sl:usage:kept")


def test_a_clock_that_is_wrong_does_no_work(redis_client: Redis) -> None:
    seconds, _ = redis_client.time()
    wrong: Any = (seconds // 60 + 100) * 60_000 + 30_000
    Housekeeper().work(connections.store().store, wrong)
    assert not redis_client.exists("sl:usage:kept")


def test_what_is_written_late_is_no_error_and_expires(told: Recorder, redis_client: Redis) -> None:
    ask(told, LIST, range(10))
    keep(MINUTE + 1)
    ask(told, LIST, range(20))
    assert redis_client.hget(key("counts"), f"{rule_field(LIST)}:refused") == b"4"
    keep(MINUTE + 2)
    assert all(redis_client.ttl(each) > 0 for each in redis_client.scan_iter())


# The budget


@pytest.fixture
def small(settings: Settings) -> None:
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 10, "USAGE_MEMORY": 4 * MB}


@pytest.fixture
def apart(redis_server: EmbeddedServer, settings: Settings) -> Iterator[Redis]:
    """A server of the test's own, whose memory is nobody else's."""
    with EmbeddedServer(redis_server.binary) as server, Redis.from_url(server.url) as client:
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": server.url}}
        yield client


def test_a_flood_over_many_rules_stays_within_the_budget(
    small: None, apart: Redis, told: Recorder
) -> None:
    """Rule after rule is flooded, minute after minute, by ever new clients of long names."""
    numbers = count()
    rules = [Rule(f"d{number}", Rate(5, 60_000), f"rule {number}") for number in range(100)]
    ask(told, LIST, range(10))  # a server has some memory for each command that it once ran
    keep(MINUTE)
    apart.flushall()
    started = used(apart)
    most = 0
    for minute in range(MINUTE, MINUTE + 9):
        for rule in rules[minute % 2 :: 2]:
            for _ in range(400):
                client = Client("user", f"{'longer ' * 8}{next(numbers)}")
                told.record(decided(client, 5, rule, now=minute * 60_000))
            told.flush()
            most = max(most, used(apart) - started)
        keep(minute)
        most = max(most, used(apart) - started)
    assert most < 4 * MB
    # It is made use of, too.
    assert most > 1.5 * MB
    assert apart.zcard(key("top", rules[0], MINUTE + 8)) >= 10


def test_a_minute_has_room_for_so_many_rules(
    small: None, told: Recorder, redis_client: Redis
) -> None:
    rules = [Rule(f"d{number}", Rate(5, 60_000)) for number in range(80)]
    for rule in rules:
        ask(told, rule, range(3), limited=False)
    known: Any = redis_client.hgetall(key("rules"))
    assert set(known) == {rule_field(rule).encode() for rule in rules[:64]}
    counts: Any = redis_client.hkeys(key("counts"))
    assert {field.rpartition(b":")[0] for field in counts} == set(known)
    assert len(redis_client.keys(key("top") + ":*")) == 64
    ask(told, rules[0], range(3), limited=False)  # those that are known are counted on
    assert redis_client.hget(key("counts"), f"{rule_field(rules[0])}:allowed") == b"6"


def test_distinct_clients_are_not_counted_where_there_is_no_room_for_so_many_rules(
    small: None, told: Recorder, redis_client: Redis
) -> None:
    rules = [Rule(f"d{number}", Rate(5, 60_000)) for number in range(40)]
    for rule in rules:
        ask(told, rule, range(3), limited=False)
    found = len(redis_client.keys(key("seen") + ":*"))
    assert 0 < found * 12_400 <= 4 * MB / 12 + 12_400
    keep(MINUTE + 1)
    counts: Any = redis_client.hkeys(key("counts"))
    assert sum(field.endswith(b":clients") for field in counts) == found


def used(redis: Redis) -> int:
    """The bytes that a server takes, once it has freed what was unlinked."""
    while redis.info("memory")["lazyfree_pending_objects"]:
        pass
    return int(redis.info("memory")["used_memory_dataset"])


def test_the_least_recently_useful_rules_go_first_and_it_is_told(
    told: Recorder, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(told, SEARCH, range(1000), MINUTE, limited=False)
    for minute in range(MINUTE, MINUTE + 3):
        ask(told, LIST, range(1000), minute, limited=False)
    room = sum(
        redis_client.memory_usage(key(kind, LIST, MINUTE + n)) or 0
        for kind in ("top", "asked", "over")
        for n in (1, 2)
    )
    monkeypatch.setattr("django_slidinglimit.usage.budget.Budget.over", room + 100_000)
    keep(MINUTE + 3)
    # Last asked longest ago; then the oldest minute of the one that is still asked.
    kept = [redis_client.exists(key("top", LIST, MINUTE + n)) for n in range(3)]
    assert not redis_client.exists(key("top", SEARCH))
    assert kept == [0, 1, 1]
    assert redis_client.hgetall("sl:usage:dropped") == {
        rule_field(SEARCH).encode(): b"1",
        rule_field(LIST).encode(): b"1",
    }
    assert 0 < redis_client.ttl("sl:usage:dropped") <= housekeeping.TOLD_SECONDS
    # What was decided is still known, and it is still told a minute later.
    assert redis_client.hexists(key("counts"), f"{rule_field(SEARCH)}:allowed")
    redis_client.delete("sl:usage:dropped")
    keep(MINUTE + 4)
    assert redis_client.hlen("sl:usage:dropped") == 2


def test_what_others_wrote_keeps_nobody_from_the_work(told: Recorder, redis_client: Redis) -> None:
    ask(told, LIST, range(200))
    field = rule_field(LIST)
    redis_client.set("sl:usage:kept", "junk")
    redis_client.hset(key("counts"), f"{field}:allowed", "junk")
    redis_client.hset(key("bytes"), mapping={"own": "junk", "other": "a b", field: "x"})
    keep(MINUTE)
    assert redis_client.get("sl:usage:kept") == str(MINUTE).encode()
    keep(MINUTE + RECENT + 1)
    assert redis_client.zcard(key("top", LIST)) == OLDER_CLIENTS


def test_what_fits_is_kept_and_nothing_told(told: Recorder, redis_client: Redis) -> None:
    ask(told, LIST, range(1000))
    keep(MINUTE + 1)
    assert redis_client.zcard(key("top", LIST)) == MOST_CLIENTS
    assert not redis_client.exists("sl:usage:dropped")


def test_where_even_counts_do_not_fit_the_oldest_minutes_go(
    told: Recorder, redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute in range(MINUTE, MINUTE + 10):
        ask(told, LIST, range(5), minute)
    monkeypatch.setattr("django_slidinglimit.usage.budget.Budget.over", 0)
    keep(MINUTE + 10)
    assert [n for n in range(10) if redis_client.exists(key("counts", None, MINUTE + n))] == [
        *range(10 - RECENT, 10)
    ]


def test_a_server_that_lets_nobody_measure_is_estimated(apart: Redis, told: Recorder) -> None:
    apart.acl_setuser("default", enabled=True, commands=["-memory"])
    ask(told, LIST, range(1000))
    keep(MINUTE + 1)
    size, decisions = map(int, (apart.hget(key("bytes"), rule_field(LIST)) or b"").split())
    apart.acl_setuser("default", enabled=True, commands=["+memory"])
    exact = sum(apart.memory_usage(key(kind, LIST)) or 0 for kind in ("top", "asked", "over"))
    assert decisions == 1000
    assert exact / 2 < size < exact * 3  # Valkey 9 needs less than Redis 7


@pytest.mark.parametrize("rules", [1, 60])
def test_what_the_running_minute_takes_is_known_to_the_flushes(
    small: None, told: Recorder, redis_client: Redis, rules: int
) -> None:
    for number in range(rules):
        ask(told, Rule(f"d{number}", Rate(5, 60_000)), range(500))
    total = int(redis_client.hget(key("bytes"), "sum") or 0)
    keys = [k for kind in ("top", "asked", "over") for k in redis_client.keys(key(kind) + ":*")]
    exact = sum(redis_client.memory_usage(k, samples=0) or 0 for k in keys)
    assert 0.9 * exact < total < 4 * MB / 6
