"""What the overview reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.test import RequestFactory

from django_slidinglimit import connections, keeper, limiter, rules
from django_slidinglimit.core.decisions import Client, Rule
from django_slidinglimit.core.memory import MemoryStore
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.models import Override
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.usage import limited, minutes, overview, processes, recorder
from django_slidinglimit.usage.layout import limited_member, minute_base, rule_field
from django_slidinglimit.usage.overview import MOST_RULES, Overview
from django_slidinglimit.usage.standings import State
from tests.odd import ODD
from tests.recorded import minute_now, record

if TYPE_CHECKING:
    from redis import Redis

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("within_a_minute")]

LIST = Rule("c1", Rate(10, 3_600_000), "list")
TRIAL = Rule("c2", Rate(10, 3_600_000), "trial", observe=True)
MARIA, BEN = Client("user", "1"), Client("user", "2")


def look() -> Overview:
    return overview.overview()


def refuse(client: Client, rule: Rule = LIST, times: int = 1, ago: int = 0) -> None:
    """Have a client refused, within one minute."""
    record(rule, client, times, ago=ago, used=rule.rate.limit)


def refused(found: Overview) -> list[tuple[str, int]]:
    return [(each.standing.client.identity, each.times) for each in found.limited.clients]


def test_who_was_refused_most_stands_first() -> None:
    refuse(MARIA, times=2)
    refuse(BEN, times=5)
    refuse(BEN, Rule("c3", Rate(1, 1000), "burst"), times=3)
    record(LIST, Client("user", "3"), 4)
    found = look().limited
    assert [(c.standing.client, c.usage.rule.name, c.times) for c in found.clients] == [
        (BEN, "list", 5),
        (BEN, "burst", 3),
        (MARIA, "list", 2),
    ]
    assert (found.in_all, found.blocked) == (3, 0)


def test_since_when_it_is_refused_is_told_and_when_it_is_free_again() -> None:
    refuse(MARIA)
    [each] = look().limited.clients
    assert each.since_ms == minute_now() * 60_000
    assert each.standing.free_at is not None


def test_a_minute_that_is_half_over_counts_half_of_the_one_before(redis_client: Redis) -> None:
    refuse(MARIA, times=1000, ago=1)
    refuse(BEN, times=1000, ago=2)
    found = look()
    left = 1 - found.trip.time_ms % 60_000 / 60_000
    assert refused(found) == ([("1", round(1000 * left))] if round(1000 * left) else [])


def test_a_block_is_told_from_a_limit() -> None:
    row = Row.objects.create(name="Search", scope="search", rate="10/h")
    Override.objects.create(kind="user", identity="1", effect="block")
    rule = rules.compile_rule(row).rule
    refuse(MARIA, rule)
    refuse(BEN, rule, times=2)
    found = look().limited
    assert (found.in_all, found.blocked) == (2, 1)
    assert [c.standing.state for c in found.clients] == [State.OK, State.BLOCKED]


def test_of_very_many_only_the_most_refused_are_shown_and_all_are_counted() -> None:
    for n in range(limited.MOST + 7):
        refuse(Client("user", str(n)), times=1 if n < 7 else 2)
    found = look().limited
    assert found.in_all == limited.MOST + 7
    assert {c.times for c in found.clients} == {2}
    assert len(found.clients) == limited.MOST


def test_every_identity_is_listed() -> None:
    for client in ODD:
        refuse(client)
    assert {c.standing.client for c in look().limited.clients} == set(ODD)


def test_the_hour_of_a_rule_is_told_a_second_by_the_minute() -> None:
    record(LIST, MARIA, 6, ago=5)
    refuse(MARIA, times=12, ago=59)
    record(TRIAL, MARIA, 3, ago=5, used=10)
    found = look()
    by_name = {hour.usage.rule.name: hour for hour in found.rules}
    series = by_name["list"].series
    assert (len(series.allowed), series.allowed[-6], sum(series.allowed)) == (60, 0.1, 0.1)
    assert (series.refused[0], sum(series.refused)) == (0.2, 0.2)
    assert by_name["trial"].series.would[-6] == 0.05
    assert by_name["list"].usage.allowed == 6
    assert (found.total.allowed[-6], found.total.refused[0]) == (0.1, 0.2)
    assert found.total.would[-6] == 0.05


def test_now_is_the_last_sixty_seconds() -> None:
    record(LIST, MARIA, 60, ago=1)
    record(LIST, MARIA, 60)
    found = look()
    left = 1 - found.trip.time_ms % 60_000 / 60_000
    [hour] = found.rules
    assert hour.series.now.allowed + hour.series.now.refused == pytest.approx(1 + left)


def test_rules_stand_by_how_much_they_were_asked_and_the_rest_are_counted() -> None:
    for n in range(MOST_RULES + 3):
        record(Rule(f"c{n}", Rate(10, 3_600_000), f"rule {n}"), MARIA, 1 if n > 5 else 3)
    found = look()
    assert [hour.usage.rule.name for hour in found.rules[:6]] == [f"rule {n}" for n in range(6)]
    assert (len(found.rules), found.rules_in_all) == (MOST_RULES, MOST_RULES + 3)


def test_an_edited_row_shows_its_new_rate_before_anybody_asks_again() -> None:
    row = Row.objects.create(name="Search", scope="search", rate="10/h")
    record(rules.compile_rule(row).rule, MARIA, 5)
    Row.objects.update(rate="5/h", mode="observe")
    [hour] = look().rules
    assert (hour.key, hour.usage.rule.rate.limit, hour.usage.rule.observe) == (
        f"d{row.pk}",
        5,
        True,
    )
    Row.objects.update(mode="off")
    assert look().rules[0].usage.gone


def test_clients_that_came_near_a_limit_are_counted() -> None:
    row = Row.objects.create(name="Search", scope="search", rate="10/h")
    rule = rules.compile_rule(row).rule
    for n, used in enumerate((7, 8, 10)):
        record(rule, Client("user", str(n)), used)
    assert look().near == 2
    record(LIST, MARIA, 9)
    assert look().near is None  # of a rule in code this process knows once it has looked
    assert look().near == 3
    record(Rule("c0", Rate(0, 1000), "closed"), MARIA)
    assert look().near == 3  # nobody comes near a limit of 0


def test_a_process_that_obeys_other_rules_is_behind(redis_client: Redis) -> None:
    for process, token in ((processes._Self(), b"old"), (processes._Self(), b"new")):
        before, processes._self = processes._self, process
        try:
            connections.store().run([processes.beat(token)])
        finally:
            processes._self = before
    redis_client.set(keeper.token_key(), "new")
    found = look()
    assert (found.version, len(found.processes)) == ("new", 2)
    assert [process.token for process in found.behind] == ["old"]
    assert found.since_ms is not None
    assert 0 <= found.trip.time_ms - found.since_ms < 60_000
    assert look().since_ms == found.since_ms  # else no two looks would be alike
    redis_client.set(keeper.token_key(), "newest")
    assert (look().since_ms, len(look().behind)) == (None, 2)


def test_rules_whose_clients_are_not_kept_are_told(redis_client: Redis) -> None:
    record(LIST, MARIA)
    record(TRIAL, MARIA)
    redis_client.hset(f"{connections.store().prefix}usage:dropped", rule_field(LIST), 3)
    found = look()
    assert found.dropped == 1
    assert {hour.usage.rule.name: hour.dropped for hour in found.rules} == {
        "list": True,
        "trial": False,
    }


def test_a_look_takes_two_trips_however_much_there_is(trips: list[object]) -> None:
    for n in range(limited.MOST + 20):
        refuse(Client("user", str(n)), Rule(f"c{n}", Rate(10, 3_600_000), f"rule {n}"))
    minutes.forget()
    connections.pages().run([("PING",)])  # connected
    for _ in range(2):
        trips.clear()
        found = look()
        assert len(trips) == 2
        assert len(found.limited.clients) == limited.MOST
    assert len(found.rules) == limited.MOST + 20


def test_what_others_drop_while_minutes_are_read_is_no_loss() -> None:
    record(LIST, MARIA, 3, ago=9)
    minutes.read(minutes.MOST)

    def forget(_running: int) -> list[Any]:
        minutes.forget()
        return []

    found = minutes.read(minutes.MOST, forget).minutes
    assert sum(counts.all for minute in found for counts in minute.counts.values()) == 3


def test_without_anybody_limited_a_look_takes_one(trips: list[object]) -> None:
    record(LIST, MARIA)
    connections.pages().run([("PING",)])
    trips.clear()
    look()
    assert len(trips) == 1


def test_reading_writes_nothing_and_never_walks_the_keys(redis_client: Redis) -> None:
    def calls() -> dict[str, Any]:
        return {
            str(name): stats["calls"] for name, stats in redis_client.info("commandstats").items()
        }

    refuse(MARIA, times=3)
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter()}
    redis_client.config_resetstat()
    look()
    found = calls()
    assert not {"cmdstat_keys", "cmdstat_scan", "cmdstat_sort"} & found.keys()
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter()} == before


def test_what_others_wrote_under_the_keys_is_passed_over(redis_client: Redis) -> None:
    refuse(MARIA)
    base = minute_base(connections.store().prefix, minute_now())
    for rubbish in ("rubbish", "[1]", '["c1","user","1"]', limited_member("c1:x:9:off", MARIA)):
        redis_client.zadd(f"{base}limited", {rubbish: 5})
        redis_client.hset(f"{base}rules", rubbish, "x")
        redis_client.hset(f"{base}counts", f"{rubbish}:allowed", 5)
    found = look()
    assert refused(found) == [("1", 1)]
    assert [hour.usage.rule for hour in found.rules] == [LIST]


def test_a_store_that_keeps_no_usage_says_so_and_leaves_the_breaker_closed() -> None:
    connections.use(MemoryStore())
    try:
        with pytest.raises(StoreError, match="nothing else"):
            look()
        assert connections.store().failure is None
    finally:
        connections.use(None)


def test_a_client_with_a_rate_of_its_own_is_counted_under_the_rule_that_it_is_an_exception_to() -> (
    None
):
    Override.objects.create(kind="user", identity="2", effect="rate", rate="100/h")
    request = RequestFactory().get("/")
    for pk, times in ((1, 3), (2, 12)):
        request.user = User(pk=pk)
        for _ in range(times):
            assert limiter.check(request, "list", key="user", rate="10/h").allowed
    recorder.flush()
    [row] = look().rules
    assert (str(row.usage.rule.rate), row.usage.allowed) == ("10/h", 15)
