"""The clients of one rule, as pages read them."""

from typing import Any

import pytest
from redis import Redis

from django_slidinglimit import connections, limiter
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.models import Override
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.places import at_rate
from django_slidinglimit.rules import compile_rule
from django_slidinglimit.usage import busiest, minutes, recorder, sets
from django_slidinglimit.usage.budget import MOST_CLIENTS, OLDER_CLIENTS
from django_slidinglimit.usage.busiest import PAGE, Page, Wanted
from django_slidinglimit.usage.layout import client_member, minute_base, rule_field
from django_slidinglimit.usage.standings import TRIP, State
from tests.odd import ODD
from tests.recorded import minute_now, record, stored

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("patient")]

LIST = Rule("c1", Rate(10, 3_600_000), "list")
TRIAL = Rule("c2", Rate(10, 3_600_000), "trial", observe=True)
MARIA, BEN = Client("user", "1"), Client("user", "2")


def key_of(rule: Rule) -> str:
    return rule.id if rule.id.startswith("d") else rule_field(rule)


def ask(rule: Rule, client: Client, times: int = 1) -> None:
    for _ in range(times):
        limiter.take([Hit(rule, client)])


def look(rule: Rule = LIST, **wanted: Any) -> Page:
    recorder.flush()
    return busiest.of_rule(key_of(rule), Wanted(**wanted))


def identities(page: Page) -> list[str]:
    return [line.standing.client.identity for line in page.lines]


def test_clients_stand_by_the_share_that_they_use_now() -> None:
    ask(LIST, MARIA, 3)
    ask(LIST, BEN, 12)
    ask(LIST, Client("ip", "192.0.2.1"), 8)
    page = look()
    assert [(s.standing.client.identity, s.standing.used) for s in page.lines] == [
        ("2", 10),
        ("192.0.2.1", 8),
        ("1", 3),
    ]
    assert [line.standing.state for line in page.lines] == [State.LIMITED, State.NEAR, State.OK]
    assert (page.first, page.last, page.matching, page.pages) == (1, 3, 3, 1)
    assert page.kinds == ["ip", "user"]
    assert (page.usage.allowed, page.usage.refused) == (21, 2)


def test_or_by_what_was_over_the_limit() -> None:
    ask(LIST, MARIA, 11)
    ask(LIST, BEN, 14)
    ask(LIST, Client("user", "3"), 10)
    assert identities(look(order="over")) == ["2", "1", "3"]


def test_an_observing_rule_tells_what_it_would_have_refused() -> None:
    ask(TRIAL, MARIA, 14)
    [line] = look(TRIAL).lines
    assert (sum(line.within), sum(line.over)) == (10, 4)
    assert line.standing.state is State.OBSERVED


def test_a_clients_hour_is_told_by_the_minute() -> None:
    record(LIST, MARIA, 12, ago=30)
    record(LIST, MARIA, 2, ago=59, cost=3)
    record(LIST, MARIA, 1)
    [line] = look().lines
    assert len(line.within) == len(line.over) == minutes.MOST
    assert (sum(line.within), sum(line.over)) == (17, 2)
    spread = [number for number in line.within if number]
    assert spread in ([6, 10, 1], [10, 1])  # the hour may have passed on by a minute


def test_pages_follow_each_other_without_a_gap() -> None:
    for n in range(2 * PAGE + 7):
        ask(LIST, Client("user", str(n)), 1 + n % 3)
    pages = [look(page=number) for number in (1, 2, 3)]
    assert [(p.first, p.last, p.matching, p.pages) for p in pages] == [
        (1, 50, 107, 3),
        (51, 100, 107, 3),
        (101, 107, 107, 3),
    ]
    found = [identity for page in pages for identity in identities(page)]
    assert sorted(found, key=int) == [str(n) for n in range(107)]
    assert [line.standing.used for page in pages for line in page.lines] == sorted(
        (1 + n % 3 for n in range(107)), reverse=True
    )


@pytest.mark.parametrize(("asked", "given"), [(99, 2), (0, 1), (-5, 1), (10**30, 2)])
def test_a_page_that_there_is_not_is_the_nearest_one(asked: int, given: int) -> None:
    for n in range(PAGE + 1):
        ask(LIST, Client("user", str(n)))
    assert look(page=asked).number == given


def test_a_text_finds_who_is_it_or_begins_with_it() -> None:
    for client in [
        Client("ip", "192.0.2.1"),
        Client("ip", "192.0.2.10"),
        Client("ip", "198.51.100.1"),
        Client("ip", "2001:db8::/64"),
        Client("user", "192"),
        Client("header:x-api-key", "00112233aabbccdd~9f31"),
    ]:
        ask(LIST, client)
    assert set(identities(look(text="192.0.2.1"))) == {"192.0.2.1", "192.0.2.10"}
    assert set(identities(look(text="192"))) == {"192.0.2.1", "192.0.2.10", "192"}
    assert identities(look(text="192", kind="user")) == ["192"]
    assert identities(look(text="2001:DB8::77")) == ["2001:db8::/64"]
    assert identities(look(text="2001:DB8")) == ["2001:db8::/64"]
    assert identities(look(text="9f31")) == ["00112233aabbccdd~9f31"]
    assert identities(look(text="0.2.1")) == []
    assert identities(look(kind="header:x-api-key")) == ["00112233aabbccdd~9f31"]
    assert identities(look(kind="nothing")) == []


@pytest.mark.parametrize("client", [c for c in ODD if c.identity], ids=ascii)
def test_every_identity_is_listed_and_found(client: Client) -> None:
    ask(LIST, client, 3)
    ask(LIST, MARIA)
    assert [line.standing.client for line in look(kind=client.kind).lines] == [client]
    [line] = look(text=client.identity).lines
    assert (line.standing.client, line.standing.used, sum(line.within)) == (client, 3, 3)


def test_a_client_that_is_not_listed_is_found_by_its_whole_identity(redis_client: Redis) -> None:
    rule = stored(key="user_or_ip")
    for client in (MARIA, Client("ip", "192.0.2.7")):
        ask(rule, client, 4)
    recorder.flush()
    redis_client.delete(*redis_client.keys("*usage:*"))
    assert look(rule).lines == []
    for text, client in (("1", MARIA), ("192.0.2.7", Client("ip", "192.0.2.7"))):
        page = look(rule, text=text)
        assert [(s.standing.client, s.standing.used) for s in page.lines] == [(client, 4)]
        assert page.matching == 1
    assert look(rule, text="192.0.2.").lines == []
    assert look(rule, text="maria", named=[MARIA]).lines[0].standing.client == MARIA
    assert look(rule, text="5").lines == []


def test_only_those_in_a_state_are_shown() -> None:
    for n, times in enumerate([1, 2, 8, 9, 10, 12]):
        ask(LIST, Client("user", str(n)), times)
    for state, found in {
        State.OK: ["1", "0"],
        State.NEAR: ["3", "2"],
        State.LIMITED: ["4", "5"],
        State.OBSERVED: [],
    }.items():
        page = look(state=state)
        assert sorted(identities(page)) == sorted(found)
        assert (page.matching, page.looked, page.candidates) == (len(found), 6, 6)


def test_a_state_is_found_among_very_many_in_another_one() -> None:
    for n in range(TRIP + 20):
        ask(LIST, Client("user", str(n)), 10)
    for n in range(3):
        ask(LIST, Client("ip", f"192.0.2.{n}"), 8)
        ask(LIST, Client("ip", f"192.0.2.{n + 10}"))
    for state in (State.NEAR, State.OK):
        page = look(state=state)
        assert len(page.lines) == 3
        assert (page.looked, page.candidates) == (TRIP, TRIP + 26)


def test_who_is_blocked_is_found_whether_or_not_it_asked() -> None:
    rule = stored(key="user")
    other = stored(name="Other", scope="other")
    ask(rule, MARIA)
    ask(rule, BEN)
    for fields in (
        {"identity": "1", "effect": "block"},
        {"identity": "77", "effect": "block", "rule_id": int(rule.id[1:])},
        {"identity": "78", "effect": "block", "rule_id": int(other.id[1:])},
        {"identity": "79", "effect": "exempt"},
    ):
        Override.objects.create(kind="user", **fields)
    assert sorted(identities(look(rule, state=State.BLOCKED))) == ["1", "77"]
    assert identities(look(rule, state=State.BLOCKED, text="77")) == ["77"]
    assert identities(look(rule, state=State.BLOCKED, kind="ip")) == []
    assert identities(look(rule, state=State.EXEMPT)) == ["79"]


def test_clients_at_another_rate_stand_with_the_others_by_their_own_limit() -> None:
    rule = stored(key="user")
    Override.objects.create(kind="user", identity="2", effect="rate", rate="100/h")
    ask(rule, MARIA, 6)
    limiter.take([Hit(Rule(rule.id, Rate(100, 3_600_000), "Search"), BEN, 50)])
    page = look(rule)
    assert [(line.standing.share, line.standing.rule.rate.limit) for line in page.lines] == [
        (60, 10),
        (50, 100),
    ]


def test_a_rule_in_code_has_the_clients_that_an_override_counts_at_another_rate() -> None:
    Override.objects.create(kind="user", identity="2", effect="rate", rate="100/h")
    ask(LIST, MARIA, 6)
    hundred = Rate(100, 3_600_000)
    ask(at_rate(LIST, hundred), BEN, 50)
    ask(Rule("c1", hundred, "list"), Client("user", "3"), 7)  # such a rate by the code itself
    assert [(i.standing.client, i.standing.used, sum(i.within)) for i in look().lines] == [
        (MARIA, 6, 6),
        (BEN, 50, 50),
    ]


def test_a_row_has_its_clients_whatever_its_rate_was(redis_client: Redis) -> None:
    rule = stored(key="user")
    ask(rule, MARIA, 5)
    look(rule)
    Row.objects.update(rate="20/h", mode="observe")
    edited = compile_rule(Row.objects.get()).rule
    ask(edited, MARIA, 3)
    page = look(edited)
    assert (page.usage.rule, page.usage.allowed) == (edited, 8)
    [line] = page.lines
    assert (line.standing.used, sum(line.within)) == (8, 8)
    Row.objects.update(mode="off")
    assert look(edited).usage.gone
    assert len(look(edited).lines) == 1


def test_who_used_most_long_ago_goes_behind_who_uses_something_now() -> None:
    rule = Rule("c1", Rate(100, 60_000), "list")
    record(rule, MARIA, 90, ago=10)
    ask(rule, BEN, 2)
    assert identities(look(rule)) == ["2", "1"]


def test_without_traffic_there_is_nobody() -> None:
    page = look(stored())
    assert (page.lines, page.matching, page.pages, page.kinds) == ([], 0, 1, [])
    assert look(LIST).lines == []
    with pytest.raises(LookupError):
        busiest.of_rule("d999", Wanted())


@pytest.mark.parametrize("key", ["c1:5", "c1:x:60000:enforce", ":", "c1:5:60000:off"])
def test_what_is_no_rules_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        busiest.of_rule(key, Wanted())


def test_a_page_takes_two_trips_however_many_clients_there_are(trips: list[object]) -> None:
    rule = stored(key="user")
    for n in range(TRIP + 20):
        ask(rule, Client("user", str(n)), 1 + n % 9)
    look(rule)
    looks: list[dict[str, Any]] = [
        {},
        {"page": 2},
        {"text": "11"},
        {"state": State.OK},
        {"order": "over"},
    ]
    for wanted in looks:
        trips.clear()
        assert look(rule, **wanted).lines
        assert len(trips) == 2


def test_reading_writes_nothing(redis_client: Redis) -> None:
    ask(LIST, MARIA, 12)
    recorder.flush()
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter()}
    look(text="1", state=State.LIMITED)
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter()} == before


def test_no_more_is_kept_of_an_hour_than_the_recorders_keep(redis_client: Redis) -> None:
    now, store = minute_now(), connections.pages()
    field = rule_field(LIST)
    for age in range(2, 12):
        base = minute_base(store.prefix, now - age)
        redis_client.hset(f"{base}rules", field, "list")
        redis_client.hset(f"{base}counts", f"{field}:allowed", 1)
        members = {client_member(Client("ip", f"{age}.{n}")): n for n in range(MOST_CLIENTS)}
        for kind in ("top", "asked", "over"):
            redis_client.zadd(f"{base}{kind}:{field}", members)
    look()
    sizes = [len(sets._kept[field].minutes[now - age].top) for age in range(3, 11)]
    assert set(sizes) == {MOST_CLIENTS, OLDER_CLIENTS}
    assert sizes == sorted(sizes, reverse=True)


def test_what_is_kept_of_all_rules_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "MOST_KEPT", 9)
    rules = [Rule(f"c{n}", Rate(10, 3_600_000), "list") for n in range(5)]
    for rule in rules:
        record(rule, MARIA, ago=9)
        record(rule, BEN, ago=9)
    assert [len(look(rule).lines) for rule in rules * 2] == [2] * 10
    assert len(sets._kept) == 2


def test_it_tells_of_how_many_minutes_the_clients_were_dropped(redis_client: Redis) -> None:
    ask(LIST, MARIA)
    assert look().listed.dropped == 0
    redis_client.hset(f"{connections.pages().prefix}usage:dropped", rule_field(LIST), 7)
    assert look().listed.dropped == 7
