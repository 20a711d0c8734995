"""What the usage pages read."""

import pytest
from redis import Redis

from django_slidinglimit import connections, limiter, rules
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.memory import MemoryStore
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.usage import client as client_usage
from django_slidinglimit.usage import overview as overview_usage
from django_slidinglimit.usage import recorder
from django_slidinglimit.usage.layout import client_member, minute_base, rule_field
from django_slidinglimit.usage.overview import MOST_CLIENTS, MOST_RULES
from django_slidinglimit.usage.rules import RuleUsage, rule_of
from django_slidinglimit.usage.standings import Standing, State
from tests.recorded import minute_now

pytestmark = pytest.mark.django_db

LIST = Rule("c1", Rate(10, 3_600_000), "list")
MARIA = Client("user", "1")
ODD = [
    Client("ip", "2001:db8::/64"),
    Client("key", "a/b?c#d"),
    Client("key", "<script>alert(1)</script>"),
    Client("key", "x" * 400),
    Client("key", "🦊"),
    Client("key", ".."),
    Client("key", "new\nline\0"),
    Client("key", "\ud800"),
    Client("header:x-api-key", ""),
    Client("global", ""),
]


def ask(rule: Rule, client: Client, times: int = 1) -> None:
    for _ in range(times):
        limiter.take([Hit(rule, client)])


def overview() -> list[RuleUsage]:
    recorder.flush()
    return overview_usage.overview()


def of_client(client: Client) -> list[tuple[RuleUsage, Standing]]:
    recorder.flush()
    return client_usage.of_client(client)


def stored(client: Redis) -> dict[bytes, bytes | None]:
    return {key: client.dump(key) for key in client.scan_iter()}


def test_a_rules_clients_stand_in_order_of_use_with_the_counters_own_numbers() -> None:
    ask(LIST, MARIA, 3)
    ask(LIST, Client("user", "2"), 12)
    [usage] = overview()
    assert (usage.rule, usage.stored) == (LIST, None)
    assert (usage.allowed, usage.refused, usage.over) == (13, 2, 2)
    assert [(s.client.identity, s.used, s.verdict.remaining) for s in usage.clients] == [
        ("2", 10, 0),
        ("1", 3, 7),
    ]
    assert [s.state for s in usage.clients] == [State.LIMITED, State.OK]
    assert usage.clients[0].verdict.retry_after


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
    [usage] = overview()
    assert [s.state for s in usage.clients] == [state]


def test_reading_counts_nothing_and_writes_nothing(redis_client: Redis) -> None:
    ask(LIST, MARIA, 3)
    recorder.flush()
    before = stored(redis_client)
    overview_usage.overview()
    client_usage.of_client(MARIA)
    assert stored(redis_client) == before


def test_every_identity_can_be_listed_and_looked_up() -> None:
    for client in ODD:
        ask(LIST, client)
    [usage] = overview()
    assert {s.client for s in usage.clients} == set(ODD)
    for client in ODD:
        [(_, standing)] = of_client(client)
        assert (standing.client, standing.used) == (client, 1)


def test_an_edited_row_shows_its_new_limit_before_anybody_asks_again() -> None:
    row = Row.objects.create(name="Search", scope="search", rate="10/h")
    ask(rules.compile_rule(row).rule, MARIA, 5)
    recorder.flush()
    Row.objects.update(rate="5/h", mode="observe")
    [usage] = overview()
    assert usage.stored
    assert usage.rule.rate.limit == 5
    assert usage.rule.observe
    assert [s.state for s in usage.clients] == [State.OBSERVED]


def test_a_row_that_was_switched_off_is_said_to_be_gone() -> None:
    row = Row.objects.create(name="Search", scope="search", rate="10/h")
    ask(rules.compile_rule(row).rule, MARIA)
    assert not overview()[0].gone
    Row.objects.update(mode="off")
    assert overview()[0].gone


def test_two_rates_of_one_place_stand_apart_and_a_client_has_the_one_that_applied() -> None:
    plain, paying = Rule("c1", Rate(10, 3_600_000), "list"), Rule("c1", Rate(99, 3_600_000), "list")
    ask(plain, MARIA, 2)
    ask(paying, Client("user", "2"), 4)
    assert {u.rule.rate.limit: len(u.clients) for u in overview()} == {10: 1, 99: 1}
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
    [(usage, standing)] = of_client(MARIA)
    assert (usage.rule.name, standing.used) == ("Daily", 4)


def test_only_the_busiest_clients_are_listed_and_the_number_of_the_others_told() -> None:
    for n in range(60):
        ask(Rule("c1", Rate(10, 86_400_000), "list"), Client("user", str(n)), 2 if n < 20 else 1)
    [usage] = overview()
    assert len(usage.clients) == MOST_CLIENTS
    assert usage.active >= 60
    assert sum(s.used == 2 for s in usage.clients) == 20


def test_who_asks_now_goes_before_those_whose_counts_have_lapsed(redis_client: Redis) -> None:
    rule = Rule("c1", Rate(10, 60_000), "list")
    ask(rule, MARIA)
    recorder.flush()
    base = minute_base(connections.store().prefix, minute_now() - 2)
    lapsed = [Client("user", f"before {n}") for n in range(MOST_CLIENTS)]
    redis_client.zadd(
        f"{base}top:{rule_field(rule)}",
        {client_member(client): 10 for client in lapsed},
    )
    [usage] = overview()
    assert MARIA in [standing.client for standing in usage.clients]


def test_of_very_many_rules_those_that_were_asked_most_are_shown() -> None:
    for n in range(MOST_RULES + 1):
        ask(Rule(f"c{n}", Rate(10, 3_600_000), f"rule {n}"), MARIA, 1 if n == 7 else 2)
    found = {usage.rule.name for usage in overview()}
    assert len(found) == MOST_RULES
    assert "rule 7" not in found


def test_what_others_wrote_under_the_keys_is_passed_over(redis_client: Redis) -> None:
    ask(LIST, MARIA)
    recorder.flush()
    [key] = redis_client.keys("*:rules")
    redis_client.hset(key, "rubbish", "x")
    redis_client.hset(key, "c1:ten:60000:enforce", "x")
    assert [usage.rule for usage in overview()] == [LIST]


def test_the_rule_of_a_field_has_the_name_it_was_recorded_with() -> None:
    ask(LIST, MARIA)
    recorder.flush()
    assert rule_of(rule_field(LIST)) == LIST
    assert rule_of("cfe:5:1000:enforce").name == "cfe"


@pytest.mark.parametrize("text", ["", "c1", "c1:5:0:enforce", "c{1}:5:1000:enforce", "c1:5:9:off"])
def test_a_text_that_is_no_rules_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        rule_of(text)


def test_a_store_that_keeps_no_usage_says_so_and_leaves_the_breaker_closed() -> None:
    connections.use(MemoryStore())
    try:
        with pytest.raises(StoreError, match="nothing else"):
            overview_usage.overview()
        assert connections.store().failure is None
    finally:
        connections.use(None)
