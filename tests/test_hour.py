"""What is read of the last hour."""

import pytest
from pytest_django import Settings
from redis import Redis

from django_slidinglimit import connections
from django_slidinglimit.core.decisions import Client, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.usage import hour, minutes
from django_slidinglimit.usage.hour import Seen
from django_slidinglimit.usage.housekeeping import Housekeeper
from tests.recorded import decided, minute_now, record, recorder

LIST = Rule("c1", Rate(10, 60_000), "list")
TRIAL = Rule("d7", Rate(3, 60_000), "trial", observe=True)
MARIA, PAUL = Client("user", "1"), Client("user", "2")


def everything() -> list[hour.Source]:
    return hour.sources(lambda rule: True)


def test_a_rules_traffic_is_told_by_client_and_minute() -> None:
    now = minute_now()
    record(LIST, MARIA, 12)
    record(LIST, MARIA, 4, ago=30)
    record(LIST, PAUL, 2, ago=30, cost=3)
    [source] = everything()
    assert source.rule == LIST
    assert not source.bounded
    assert {client: sorted(asked.values()) for client, asked in source.asked.items()} == {
        MARIA: [4, 12],
        PAUL: [6],
    }
    # The test may have run from one minute into the next.
    assert set(source.asked[PAUL]) <= {now - 30, now - 29}


def test_only_the_rules_that_are_wanted_are_read() -> None:
    record(LIST, MARIA)
    record(TRIAL, PAUL)
    [source] = hour.sources(lambda rule: rule.id == "d7")
    assert set(source.asked) == {PAUL}
    assert hour.sources(lambda rule: rule.name == "another") == []


def test_what_is_older_than_an_hour_is_left_out(redis_client: Redis) -> None:
    record(LIST, MARIA, ago=minutes.MOST + 2)
    assert redis_client.keys("*asked*")
    assert everything() == []


def test_reading_writes_nothing(redis_client: Redis) -> None:
    record(TRIAL, MARIA, 5)
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter()}
    everything()
    hour.seen([TRIAL])
    hour.clients_over(TRIAL)
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter()} == before


def test_a_minute_with_more_clients_than_are_kept_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hour, "MOST_CLIENTS", 2)
    record(LIST, MARIA)
    assert not everything()[0].bounded
    record(LIST, PAUL)
    assert everything()[0].bounded


def test_a_minute_whose_clients_had_less_room_is_told_of(settings: Settings) -> None:
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 10, "USAGE_MEMORY": 4 * 2**20}
    minute = minute_now() - 1
    with recorder() as own:
        for rule in (TRIAL, LIST):
            for number in range(600):
                client = Client("user", f"{'long ' * 20}{number}")
                own.record(decided(client, 0, rule, now=minute * 60_000))
            own.flush()
    before = next(source for source in everything() if source.rule == LIST)
    assert len(before.asked) < 600
    Housekeeper().keep(connections.store().store, minute + 1)
    after = next(source for source in everything() if source.rule == LIST)
    assert after.bounded


def test_of_older_minutes_a_hundred_are_kept_and_that_is_told() -> None:
    minute = minute_now() - 7
    with recorder() as own:
        for number in range(120):
            own.record(decided(Client("user", str(number)), 0, LIST, now=minute * 60_000))
        own.flush()
    Housekeeper().keep(connections.store().store, minute + 1)
    Housekeeper().keep(connections.store().store, minute + 7)
    [source] = everything()
    assert len(source.asked) == 100
    assert source.bounded


def test_no_more_is_read_than_is_kept(settings: Settings) -> None:
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 10, "USAGE_KEEP": 600}
    record(LIST, MARIA, ago=12)
    record(LIST, PAUL, ago=5)
    [source] = everything()
    assert set(source.asked) == {PAUL}


def test_what_others_wrote_under_the_keys_is_passed_over(redis_client: Redis) -> None:
    record(LIST, MARIA)
    [key] = redis_client.keys("*:rules")
    redis_client.hset(key, "rubbish", "x")
    assert [source.rule for source in everything()] == [LIST]


def test_an_observing_rule_tells_what_it_let_through_and_of_how_many_clients() -> None:
    record(TRIAL, MARIA, 5)
    record(TRIAL, MARIA, 4, ago=54)
    record(TRIAL, PAUL, 4, ago=20)
    record(TRIAL, Client("user", "3"), 3, ago=20)
    other = Rule("d8", Rate(3, 60_000), "other", observe=True)
    assert hour.seen([TRIAL, other]) == {TRIAL: Seen(12, 4), other: Seen(0, 0)}
    assert hour.seen([TRIAL])[TRIAL].all == 16
    assert hour.clients_over(TRIAL) == 2
    assert hour.clients_over(other) == 0
    assert hour.seen([]) == {}


def test_what_a_rule_saw_at_another_rate_is_not_counted() -> None:
    record(Rule("d7", Rate(99, 60_000), "trial", observe=True), MARIA, 5)
    record(Rule("d7", Rate(3, 60_000), "trial"), MARIA, 5)
    assert hour.seen([TRIAL]) == {TRIAL: Seen(0, 0)}


def test_a_rows_traffic_at_several_rates_adds_up() -> None:
    record(TRIAL, MARIA, 5, ago=3)
    record(Rule("d7", Rate(9, 60_000), "trial"), MARIA, 2, ago=3)
    [asked] = hour.merged(everything()).values()
    assert sum(asked.values()) == 7


def test_a_request_that_asked_several_rules_of_a_place_counts_once() -> None:
    sources = [
        hour.Source(rule, {MARIA: {7: 5, 8: 1}})
        for rule in (LIST, Rule("c1", Rate(99, 3_600_000), "list"), TRIAL)
    ]
    sources.append(hour.Source(Rule("c2", LIST.rate, "list"), {MARIA: {8: 3}, PAUL: {7: 2}}))
    assert hour.merged(sources) == {MARIA: {7: 5, 8: 3}, PAUL: {7: 2}}
