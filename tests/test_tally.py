"""What a process remembers between two flushes is bounded, and the right clients are in it."""

from __future__ import annotations

import tracemalloc
from itertools import combinations

import pytest

from django_slidinglimit.core.decisions import Answer, Client, Decision, Hit, Rule, Verdict
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.usage.budget import FEW_CLIENTS, MOST_CLIENTS
from django_slidinglimit.usage.tally import (
    MOST_CLIENTS_IN_ALL,
    MOST_LINKS,
    MOST_OTHERS,
    MOST_RULES,
    Counts,
    Tally,
)
from tests.recorded import decided

NOW = 29_000_000 * 60_000
RULE = Rule("d1", Rate(5, 60_000))
OBSERVING = Rule("d3", Rate(5, 60_000), observe=True)


def ip(number: int) -> Client:
    return Client("ip", f"2001:db8:{number >> 16:x}:{number & 65535:x}::/64")


def add(told: Tally, client: Client, used: int = 0, *rules: Rule, now: int = NOW) -> None:
    told.add(decided(client, used, *(rules or (RULE,)), now=now), now)


def refusal(client: Client, rule: Rule = RULE) -> Decision:
    """A refusal that needs no counter, as of a client that is blocked."""
    verdict = Verdict(False, rule.rate.limit, 0, None, 0)
    return Decision((Answer(Hit(rule, client), verdict, None),))


def counts(told: Tally, rule: Rule = RULE) -> Counts:
    [minute] = told.minutes.values()
    return minute.counts[rule]


def test_a_flood_of_addresses_does_not_grow_it() -> None:
    """It has the same size after so many of them as after a fifth. (A million: benchmarks.)"""
    told = Tally()
    sizes = []
    tracemalloc.start()
    try:
        for number in range(200_000):
            add(told, ip(number))
            if number in (40_000, 199_999):
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[1] < sizes[0] * 1.1
    assert sizes[1] < 20e6
    assert counts(told).allowed == 200_000
    assert len(counts(told).clients) == MOST_CLIENTS
    assert len(counts(told).others) == MOST_OTHERS


def test_distinct_clients_are_known_beside_the_busiest() -> None:
    told = Tally()
    for _ in range(2):
        for number in range(3000):
            add(told, ip(number))
    found = counts(told)
    assert {*found.clients, *found.others} == {ip(number) for number in range(3000)}


def test_one_who_gives_way_to_a_busier_one_is_still_known() -> None:
    told = Tally()
    for number in range(MOST_CLIENTS):
        add(told, ip(number))
    add(told, ip(-1), 3)
    found = counts(told)
    assert ip(-1) in found.clients
    assert len(found.others) == 1
    assert len({*found.clients, *found.others}) == MOST_CLIENTS + 1
    # As it becomes busier itself, it is one of the busiest again, and no other.
    [back] = found.others
    add(told, back, 4)
    assert back in found.clients
    assert back not in found.others


def test_others_of_all_rules_are_bounded_together() -> None:
    told = Tally()
    rules = [Rule(f"d{number}", Rate(5, 60_000)) for number in range(40)]
    for rule in rules:
        for number in range(MOST_CLIENTS):
            add(told, ip(number), 0, rule)
    [minute] = told.minutes.values()
    sizes = [len(found.clients) for found in minute.counts.values()]
    assert sum(sizes) <= MOST_CLIENTS_IN_ALL + len(rules) * FEW_CLIENTS
    assert min(sizes) == FEW_CLIENTS
    assert sum(len(found.others) for found in minute.counts.values()) == MOST_OTHERS


def test_rules_made_anew_for_each_request_are_one() -> None:
    told = Tally()
    for _ in range(5000):
        add(told, ip(1), 0, Rule("d1", Rate(5, 60_000)))
    [minute] = told.minutes.values()
    assert counts(told).allowed == 5000
    assert len(minute._known) <= 2 * MOST_RULES


def test_there_may_be_so_many_rules() -> None:
    told = Tally()
    for number in range(MOST_RULES + 100):
        add(told, ip(1), 0, Rule(f"d{number}", Rate(5, 60_000)))
    [minute] = told.minutes.values()
    assert len(minute.counts) == MOST_RULES


# Who is refused


@pytest.mark.parametrize("rule", [RULE, OBSERVING])
def test_a_refusal_that_needed_no_counter_is_counted(rule: Rule) -> None:
    told = Tally()
    for now in (NOW, NOW + 500, NOW + 900):
        told.add(refusal(ip(1), rule), now)
    found = counts(told, rule)
    seen = found.clients[ip(1)]
    assert (found.allowed, found.refused, found.would) == ((0, 0, 3) if rule.observe else (0, 3, 0))
    assert (seen.value, seen.asked, seen.over) == (0, 3, 3)
    assert (seen.refused, seen.first, seen.last) == (
        (0, 0, 0) if rule.observe else (3, NOW, NOW + 900)
    )


def test_an_admission_without_a_reading_is_not_counted() -> None:
    told = Tally()
    [answer] = decided(ip(1), 0, RULE, now=NOW).answers
    told.add(Decision((answer._replace(reading=None),)), NOW)
    [minute] = told.minutes.values()
    assert not minute.counts


def test_a_blocked_client_that_goes_on_is_kept_in_a_flood_of_others() -> None:
    told = Tally()
    for number in range(2 * MOST_CLIENTS):
        add(told, ip(number), number % 3)
        told.add(refusal(ip(-1)), NOW)
    assert counts(told).clients[ip(-1)].over == pytest.approx(2 * MOST_CLIENTS, abs=10)


# Links


def test_clients_of_one_request_are_linked() -> None:
    told = Tally()
    user, address = Client("user", "1"), ip(1)
    key, nobody = Client("header:x-api-key", "abc"), Client("global", "")
    answers = [decided(c, 0, RULE, now=NOW).answers[0] for c in (user, address, key, nobody, user)]
    for _ in range(2):
        told.add(Decision(tuple(answers), NOW), NOW)
    add(told, Client("user", "2"), 0, RULE, OBSERVING)
    [minute] = told.minutes.values()
    assert minute.links == set(combinations(sorted((user, address, key)), 2))


def test_links_are_bounded() -> None:
    told = Tally()
    for number in range(2 * MOST_LINKS):
        clients = (Client("user", "1"), ip(number))
        answers = tuple(decided(client, 0, RULE, now=NOW).answers[0] for client in clients)
        told.add(Decision(answers, NOW), NOW)
    [minute] = told.minutes.values()
    assert len(minute.links) == MOST_LINKS


def test_the_value_is_what_the_counter_says() -> None:
    """Also where the limit is exceeded by then, since it was lowered."""
    told = Tally()
    for used in (0, 3, 4, 9):
        add(told, ip(used), used)
    values = {client: seen.value for client, seen in counts(told).clients.items()}
    assert values == {ip(0): 1, ip(3): 4, ip(4): 5, ip(9): 9}
