"""What the store keeps in Redis, and how it asks."""

from __future__ import annotations

import time
from binascii import crc_hqx
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidinglimit.core.decisions import Client, Decision, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.core.wire import Wire

from .examples import brief

if TYPE_CHECKING:
    from redis import Redis

    from example_project.server import EmbeddedServer

    from .clock import Clock

ANN, BOB = Client("user", "ann"), Client("user", "bob")
FIVE = Rule("five", Rate(5, 1000))
HOUR = 3_600_000


def slot(key: bytes) -> int:
    """The cluster's hash slot of a key, as the cluster specification has it."""
    begin = key.find(b"{")
    end = key.find(b"}", begin + 1)
    if begin != -1 and end > begin + 1:
        key = key[begin + 1 : end]
    return crc_hqx(key, 0) % 16384


def contents(client: Any) -> dict[bytes, tuple[Any, Any]]:
    """All that the server holds, with the times of expiry."""
    keys: Any = client.keys()
    return {key: (client.dump(key), client.execute_command("PEXPIRETIME", key)) for key in keys}


def writes(client: Redis) -> int:
    """How many changes the server has made to its data set since it started."""
    info: Any = client.info("persistence")
    count: int = info["rdb_changes_since_last_save"]
    return count


# --- Layout ---


def test_a_counter_lives_in_two_keys_for_even_and_odd_windows(
    clocked_redis_store: RedisStore, clock: Clock, redis_client: Redis
) -> None:
    names = []
    for _ in range(4):
        clocked_redis_store.take([Hit(FIVE, ANN)])
        clock.now += 1000
        names.append(sorted(contents(redis_client)))
    even, odd = b"sl:{0}:five:1000:0", b"sl:{0}:five:1000:1"
    assert names == [[even], [even, odd], [even, odd], [even, odd]]


def test_a_bucket_holds_its_window_and_a_field_of_8_bytes_for_each_client(
    clocked_redis_store: RedisStore, clock: Clock, redis_client: Redis
) -> None:
    long = Client("header:x-api-key", "k" * 10_000)
    clocked_redis_store.take([Hit(FIVE, ANN, 3), Hit(FIVE, BOB), Hit(FIVE, long)])
    [key] = contents(redis_client)
    bucket: Any = redis_client.hgetall(key)
    assert bucket.pop(b"w") == str(clock.now // 1000).encode()
    assert sorted(bucket.values()) == [b"1", b"1", b"3"]
    assert {len(field) for field in bucket} == {8}


def test_no_identity_is_readable_in_redis(redis_store: RedisStore, redis_client: Redis) -> None:
    redis_store.take([Hit(FIVE, Client("header:x-api-key", "secret-of-ann"))])
    stored = repr(contents(redis_client))
    assert "five" in stored
    assert "secret-of-ann" not in stored
    assert "header" not in stored


@brief
@given(st.lists(st.text(max_size=8), min_size=2, max_size=6), st.text("ab:12.é", max_size=4))
def test_all_rules_of_a_client_share_one_slot(
    redis_server: EmbeddedServer, rule_ids: list[str], prefix: str
) -> None:
    ids = {rule_id.encode(errors="replace").decode() + "{}" for rule_id in rule_ids}
    hits = [Hit(Rule(name, Rate(1, 60_000 + len(name))), ANN) for name in ids]
    seen: list[bytes] = []

    class Listening(Wire):
        def script(self, script: Any, keys: Any, args: Any, **asked: Any) -> Any:
            seen.extend(keys)
            return super().script(script, keys, args, **asked)

    store = RedisStore(Listening.from_url(redis_server.url, timeout=5), prefix=prefix)
    assert store.take(hits).allowed or seen
    assert len(set(seen)) == 2 * len(ids)
    assert len({slot(key) for key in seen}) == 1


def test_clients_spread_over_the_buckets(wire: Wire, redis_client: Redis) -> None:
    store = RedisStore(wire, buckets=8)
    rule = Rule("r", Rate(1, 10 * HOUR))
    store.take([Hit(rule, Client("ip", str(n))) for n in range(200)])
    keys: Any = redis_client.keys()
    assert {key.split(b":")[1] for key in keys} == {b"{%d}" % n for n in range(8)}
    sizes = [redis_client.hlen(key) for key in keys]
    assert sum(sizes) == 200 + len(sizes)


@pytest.mark.parametrize("prefix", ["{", "}", "a{b}:", "sl:}"])
def test_a_prefix_with_braces_is_refused(wire: Wire, prefix: str) -> None:
    with pytest.raises(ValueError, match="braces"):
        RedisStore(wire, prefix=prefix)


def test_prefixes_secrets_and_numbers_of_buckets_count_apart(wire: Wire) -> None:
    once = [Hit(Rule("once", Rate(1, HOUR)), ANN)]
    for settings in ({}, {"prefix": "other:"}, {"secret": b"s" * 64}, {"buckets": 7}):
        store = RedisStore(wire, **settings)
        assert store.take(once).allowed
        assert not store.take(once).allowed


def test_any_text_is_a_rule_and_a_client(redis_store: RedisStore) -> None:
    for text in ("", "{", "}{", "a b\r\n", "\0", "*", "é\U0001f600", "w", "0", "'; DROP", "%s%d"):
        hits = [Hit(Rule(text, Rate(1, HOUR)), Client(text, text))]
        assert redis_store.take(hits).allowed
        assert not redis_store.take(hits).allowed


# --- Expiry ---


def expiry_times(client: Redis) -> set[int]:
    return {times for _, times in contents(client).values()}


@pytest.mark.parametrize("identity", ["77", "", "7", "0077", "xyz", "77" * 9])
def test_what_is_no_clients_digest_names_nothing_else_in_a_bucket(
    wire: Wire, identity: str
) -> None:
    store = RedisStore(wire, buckets=1)
    store.take([Hit(FIVE, ANN)])
    odd = Hit(FIVE, Client("hashed:user", identity))
    reading = store.peek([odd]).answers[0].reading
    assert reading is not None
    assert reading[:2] == (0, 0)
    assert store.reset([odd]) == []


def test_a_bucket_expires_at_the_end_of_the_next_window(
    redis_store: RedisStore, redis_client: Redis
) -> None:
    decision = redis_store.take([Hit(Rule("r", Rate(5, HOUR)), ANN)])
    assert decision.time_ms is not None
    end = (decision.time_ms // HOUR + 2) * HOUR
    assert expiry_times(redis_client) == {end}
    redis_store.take([Hit(Rule("r", Rate(5, HOUR)), BOB)])
    redis_store.refund(decision)
    assert expiry_times(redis_client) == {end}


def test_a_replaced_bucket_expires_later(
    clocked_redis_store: RedisStore, clock: Clock, redis_client: Redis
) -> None:
    for windows in (0, 2, 6):
        begin = clock.now + windows * 1000
        clock.now = begin + 123
        clocked_redis_store.take([Hit(FIVE, ANN)])
        assert expiry_times(redis_client) == {begin + 2000}
        clock.now = begin


def test_a_bucket_of_a_short_window_is_gone_after_the_next(
    redis_store: RedisStore, redis_client: Redis
) -> None:
    redis_store.take([Hit(Rule("r", Rate(5, 20)), ANN)])
    deadline = time.monotonic() + 10
    while contents(redis_client):
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- Reading never writes ---


def test_reading_and_refusing_write_nothing(
    clocked_redis_store: RedisStore, clock: Clock, redis_client: Redis
) -> None:
    store = clocked_redis_store
    full = [Hit(Rule("full", Rate(2, 1000)), ANN, 2)]
    store.take([*full, Hit(FIVE, BOB)])
    watcher = Rule("full", Rate(2, 1000), observe=True)
    for windows in (0, 1, 2, 3, 50):  # fresh, previous, stale in either key
        clock.now += windows * 1000
        before, changes = contents(redis_client), writes(redis_client)
        assert len(before) == 2
        store.peek([*full, Hit(FIVE, ANN), Hit(Rule("new", Rate(1, 1)), BOB)])
        store.take([Hit(FIVE, ANN, 0), Hit(FIVE, BOB, 0), Hit(Rule("new", Rate(1, 1)), ANN, 0)])
        store.take([Hit(watcher, ANN, 3)])
        assert not store.take([Hit(FIVE, ANN), Hit(FIVE, BOB, 6)]).allowed
        store.refund(Decision())
        assert contents(redis_client) == before
        assert writes(redis_client) == changes
        clock.now -= windows * 1000


def test_a_refund_that_comes_too_late_writes_nothing(
    clocked_redis_store: RedisStore, clock: Clock, redis_client: Redis
) -> None:
    decision = clocked_redis_store.take([Hit(FIVE, ANN)])
    clock.now += 2000
    clocked_redis_store.take([Hit(FIVE, BOB)])
    changes = writes(redis_client)
    clocked_redis_store.refund(decision)
    assert writes(redis_client) == changes


def test_a_stale_bucket_is_replaced_whole_when_something_is_counted(
    clocked_redis_store: RedisStore, clock: Clock, redis_client: Redis
) -> None:
    clocked_redis_store.take([Hit(FIVE, ANN), Hit(FIVE, BOB)])
    clock.now += 2000
    clocked_redis_store.take([Hit(FIVE, ANN)])
    [key] = contents(redis_client)
    assert redis_client.hlen(key) == 2
    assert redis_client.hget(key, "w") == str(clock.now // 1000).encode()


# --- The server's clock and the script ---


def test_time_is_the_servers(redis_store: RedisStore, redis_client: Redis) -> None:
    def server_ms() -> int:
        seconds, microseconds = redis_client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    before = server_ms()
    decision = redis_store.take([Hit(FIVE, ANN)])
    assert decision.time_ms is not None
    assert before <= decision.time_ms <= server_ms()
    [answer] = decision.answers
    assert answer.reading is not None
    assert answer.reading.elapsed_ms == decision.time_ms % 1000


def commands_of(store: RedisStore, hits: list[Hit], client: Any) -> list[list[str]]:
    """The commands of one decision of a store on database 5, lines of scripts aside."""
    commands: list[list[str]] = []
    with client.monitor() as monitor:
        store.take(hits)
        client.echo("the end")
        for line in monitor.listen():
            if line["command"].startswith("ECHO"):
                break
            if line["db"] == 5 and line["client_type"] != "lua":
                commands.append(line["command"].split(" "))
    return commands


def test_a_decision_under_4_rules_is_one_command(
    redis_client: Redis, redis_server: EmbeddedServer
) -> None:
    store = RedisStore(Wire.from_url(redis_server.url.replace("db=0", "db=5"), timeout=5))
    hits = [Hit(Rule(f"rule{n}", Rate(3, HOUR), observe=n == 2), ANN) for n in range(4)]
    store.take(hits)
    for _ in range(5):  # admitted, then refused
        [command] = commands_of(store, hits, redis_client)
        assert command[0] == "EVALSHA"
        assert command[2] == "8"


def test_a_restored_bucket_expires_with_its_window(
    redis_store: RedisStore, redis_client: Redis
) -> None:
    hit = Hit(Rule("hour", Rate(2, HOUR)), ANN)
    redis_store.take([hit])
    [key] = redis_client.keys()
    left = redis_client.pttl(key)
    held = redis_store.reset([hit])
    redis_client.delete(key)
    redis_store.restore(held)
    assert redis_client.keys() == [key]
    assert left - 60_000 < redis_client.pttl(key) <= left


def test_nothing_asked_is_no_trip(start_server: Any) -> None:
    server = start_server()
    store = RedisStore(Wire.from_url(server.url, timeout=5))
    server.stop()
    assert store.take([]).allowed
    assert store.peek([]).allowed
    store.reset([])
    store.restore([])
    store.refund(Decision())
    assert store.run([]) == []


def test_the_scripts_are_loaded_again_when_the_server_forgot_them(
    redis_store: RedisStore, redis_client: Redis
) -> None:
    hits = [Hit(Rule("hour", Rate(2, 24 * HOUR)), ANN)]
    first = redis_store.take(hits)
    redis_client.script_flush()
    assert redis_store.take(hits).allowed
    redis_client.script_flush()
    redis_store.refund(first)
    redis_client.script_flush()
    assert redis_store.peek(hits).answers[0].verdict.remaining == 1
    assert redis_store.take(hits).allowed
    assert not redis_store.take(hits).allowed


def test_plain_commands_go_in_one_trip_and_answer_in_order(redis_store: RedisStore) -> None:
    replies = redis_store.run([("SET", "k", 1), ("INCRBY", b"k", 4), ("GET", "k"), ("GET", "none")])
    assert replies == [b"OK", 5, b"5", None]


def test_all_plain_commands_run_although_one_fails(redis_store: RedisStore) -> None:
    with pytest.raises(StoreError, match="WRONGTYPE"):
        redis_store.run([("SET", "k", 1), ("LPUSH", "k", 1), *[("INCR", "k")] * 20_000])
    assert redis_store.run([("GET", "k")]) == [b"20001"]


def test_a_key_of_another_type_is_an_error_and_nothing_is_counted(
    wire: Wire, redis_client: Redis
) -> None:
    store = RedisStore(wire, buckets=1)
    for parity in (0, 1):
        redis_client.set(f"sl:{{0}}:spoilt:{HOUR}:{parity}", "not a hash")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        store.take([Hit(Rule("fine", Rate(1, HOUR)), ANN), Hit(Rule("spoilt", Rate(1, HOUR)), ANN)])
    assert redis_client.dbsize() == 2
