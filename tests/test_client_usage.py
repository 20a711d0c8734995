"""What the page of one client reads."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections as databases
from redis import Redis

from django_slidinglimit import limiter, rules
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.models import Override
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.usage import client as client_usage
from django_slidinglimit.usage import recorder, trace
from django_slidinglimit.usage.client import UnderRule
from django_slidinglimit.usage.layout import rule_field
from django_slidinglimit.usage.rules import RuleUsage, rule_of
from django_slidinglimit.usage.standings import Standing, State
from tests.odd import ODD
from tests.recorded import minute_now, record

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("patient")]

LIST = Rule("c1", Rate(10, 3_600_000), "list")
MARIA = Client("user", "1")


def ask(rule: Rule, client: Client, times: int = 1) -> None:
    for _ in range(times):
        limiter.take([Hit(rule, client)])


def of_client(client: Client) -> list[tuple[RuleUsage, Standing]]:
    recorder.flush()
    return [(under.usage, under.standing) for under in client_usage.of_client(client).rules]


@pytest.mark.parametrize(
    ("rule", "times", "state"),
    [
        (LIST, 7, State.OK),
        (LIST, 8, State.NEAR),
        (LIST, 9, State.NEAR),
        (LIST, 10, State.LIMITED),
        (Rule("c2", Rate(10, 3_600_000), "trial", observe=True), 9, State.NEAR),
        (Rule("c2", Rate(10, 3_600_000), "trial", observe=True), 12, State.OBSERVED),
        (Rule("c3", Rate(0, 3_600_000), "closed"), 1, State.LIMITED),
    ],
)
def test_the_state_of_a_client(rule: Rule, times: int, state: State) -> None:
    ask(rule, MARIA, times)
    [(_, standing)] = of_client(MARIA)
    assert standing.state is state


def test_who_is_blocked_has_nothing_left() -> None:
    ask(LIST, MARIA, 4)
    Override.objects.create(kind="user", identity="1", effect="block")
    [(_, standing)] = of_client(MARIA)
    assert (standing.state, standing.used, standing.left) == (State.BLOCKED, 4, 0)


def test_every_identity_can_be_looked_up() -> None:
    for client in ODD:
        ask(LIST, client)
    for client in ODD:
        [(_, standing)] = of_client(client)
        assert (standing.client, standing.used) == (client, 1)


def test_reading_writes_nothing(redis_client: Redis) -> None:
    ask(LIST, MARIA, 3)
    recorder.flush()
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter()}
    client_usage.of_client(MARIA)
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter()} == before


def test_two_rates_of_one_place_stand_apart_and_a_client_has_the_one_that_applied() -> None:
    plain, paying = Rule("c1", Rate(10, 3_600_000), "list"), Rule("c1", Rate(99, 3_600_000), "list")
    ask(plain, MARIA, 2)
    ask(paying, Client("user", "2"), 4)
    [(usage, standing)] = of_client(Client("user", "2"))
    assert (usage.rule.rate.limit, standing.used) == (99, 4)


def test_a_client_is_under_the_rules_that_counted_it_alone() -> None:
    ask(LIST, MARIA)
    ask(Rule("c9", Rate(5, 60_000), "other"), Client("ip", "192.0.2.1"))
    assert [usage.rule.name for usage, _ in of_client(MARIA)] == ["list"]
    assert of_client(Client("user", "nobody")) == []


def test_a_client_is_still_found_where_a_row_holds_a_count_and_nobody_asked_lately(
    redis_client: Redis,
) -> None:
    row = Row.objects.create(name="Daily", scope="daily", rate="10/day")
    ask(rules.compile_rule(row).rule, MARIA, 4)
    recorder.flush()
    redis_client.delete(*redis_client.keys("*usage:*"))
    trace.forget()
    [(usage, standing)] = of_client(MARIA)
    assert (usage.rule.name, standing.used) == ("Daily", 4)


def under(client: Client) -> UnderRule:
    [found] = client_usage.of_client(client).rules
    return found


def test_a_rule_in_code_is_known_for_the_whole_hour() -> None:
    record(LIST, MARIA, ago=50)
    assert under(MARIA).usage.rule == LIST
    record(LIST, Client("user", "2"), ago=61)
    assert client_usage.of_client(Client("user", "2")).rules == []


def test_the_hour_is_told_by_the_minute_with_what_was_over() -> None:
    record(LIST, MARIA, 12, ago=50)
    record(LIST, MARIA, 4, ago=3, cost=2)
    for _ in range(2):  # as read, and as kept
        found = under(MARIA)
        assert {59 - i: n for i, n in enumerate(found.within) if n} == {50: 10, 3: 8}
        assert {59 - i: n for i, n in enumerate(found.over) if n} == {50: 2}
    record(LIST, MARIA, 1)
    assert under(MARIA).within[-1] == 1


def test_the_rates_of_one_counter_have_their_hour_together() -> None:
    record(LIST, MARIA, 2, ago=10)
    record(Rule("c1", Rate(99, 3_600_000), "list"), MARIA, 3, ago=5)
    found = under(MARIA)
    assert found.usage.rule.rate.limit == 99
    assert (found.within[-11], found.within[-6]) == (2, 3)


def test_since_when_it_is_refused_is_where_the_last_unbroken_row_of_minutes_began() -> None:
    now = minute_now()
    for ago in (20, 3, 2, 1):
        record(LIST, MARIA, ago=ago, used=10)
    assert under(MARIA).since_ms == (now - 3) * 60_000
    other = Client("user", "2")
    record(LIST, other, ago=3, used=10)
    assert under(other).since_ms is None


def test_clients_of_one_request_know_of_each_other_whoever_is_asked() -> None:
    home, office = Client("ip", "192.0.2.1"), Client("ip", "192.0.2.2")
    by_ip = Rule("c2", Rate(10, 3_600_000), "by address")
    for address in (home, office):
        limiter.take([Hit(LIST, MARIA), Hit(by_ip, address)])
    recorder.flush()
    assert set(client_usage.of_client(MARIA).others) == {home, office}
    assert client_usage.of_client(home).others == [MARIA]
    assert client_usage.of_client(Client("user", "")).others == []


def test_a_refresh_takes_two_round_trips_whatever_the_number_of_rules(trips: list[object]) -> None:
    for number in range(90):
        record(Rule(f"c{number}", Rate(10, 3_600_000), "list"), MARIA, ago=number % 50)
    assert len(client_usage.of_client(MARIA).rules) == 90
    trips.clear()
    assert len(client_usage.of_client(MARIA).rules) == 90
    assert len(trips) == 2
    trace.forget()  # a process that knows nothing yet needs one more
    trips.clear()
    assert len(client_usage.of_client(MARIA).rules) == 90
    assert len(trips) == 3


def test_many_clients_are_looked_up_at_once_and_few_are_kept() -> None:
    everyone = [Client("user", str(number)) for number in range(trace.MOST_KEPT + 20)]
    for client in everyone:
        ask(LIST, client)
    recorder.flush()

    def read(client: Client) -> trace.Trace:
        try:
            return trace.read(client)
        finally:
            databases.close_all()  # this thread's own

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read, everyone))
    assert all(each.history([rule_field(LIST)])[0][-2:] != [0, 0] for each in found)
    assert len(trace._kept) <= trace.MOST_KEPT


def test_what_is_over_is_not_read_again(redis_client: Redis) -> None:
    for ago in range(50):
        record(LIST, MARIA, ago=ago)
    client_usage.of_client(MARIA)
    redis_client.config_resetstat()
    client_usage.of_client(MARIA)
    stats: dict[str, dict[str, int]] = redis_client.info("commandstats")
    # The running minute and the one before: by one rule, two sets each.
    assert stats["cmdstat_zscore"]["calls"] <= 6


@pytest.mark.parametrize("ago", [0, 30])
def test_the_rule_of_a_field_has_the_name_it_was_recorded_with(ago: int) -> None:
    record(LIST, MARIA, ago=ago)
    assert rule_of(rule_field(LIST)) == LIST
    assert rule_of("cfe:5:1000:enforce").name == "cfe"


@pytest.mark.parametrize("text", ["", "c1", "c1:5:0:enforce", "c{1}:5:1000:enforce", "c1:5:9:off"])
def test_a_text_that_is_no_rules_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        rule_of(text)
