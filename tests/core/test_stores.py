"""What every store does. `store` is each of them in turn, living by a clock that the test moves."""

from __future__ import annotations

from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidinglimit.core.decisions import Client, Counter, Decision, Hit, Rule, Verdict
from django_slidinglimit.core.memory import MemoryStore
from django_slidinglimit.core.rates import MAX_PRODUCT, Rate
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.stores import Store, StoreError, refunded
from django_slidinglimit.core.window import Reading, verdict

from .clock import START, Clock, ClockedWire
from .examples import VECTORS, brief

if TYPE_CHECKING:
    from collections.abc import Sequence

    from example_project.server import EmbeddedServer

ANN, BOB = Client("user", "ann"), Client("user", "bob")
FIVE = Rule("five", Rate(5, 1000))
TWO = Rule("two", Rate(2, 60_000))


def state(store: Store, *hits: Hit) -> list[tuple[int, int]]:
    """The previous and the current count of each hit's counter."""
    readings = [answer.reading for answer in store.peek(hits).answers]
    return [(reading.previous, reading.current) for reading in readings if reading]


def fill(store: Store, clock: Clock, rule: Rule, client: Client, reading: Reading) -> None:
    """Make a counter hold these counts, as if a limit had been lowered since, and set the clock."""
    window = rule.rate.window_ms
    generous = Rule(rule.id, Rate((MAX_PRODUCT - 1) // window, window))
    begin = (clock.now // window + 3) * window
    for clock.now, cost in (begin - window, reading.previous), (begin, reading.current):
        assert store.take([Hit(generous, client, cost)]).allowed
    clock.now = begin + reading.elapsed_ms


def test_every_vector(store: Store, clock: Clock) -> None:
    for vector in VECTORS:
        clock.now = START
        rule = Rule(vector["name"], Rate(vector["limit"], vector["window_ms"]))
        reading = Reading(vector["previous"], vector["current"], vector["elapsed_ms"])
        fill(store, clock, rule, ANN, reading)
        hit = Hit(rule, ANN, vector["cost"])
        expected = Verdict(
            vector["allowed"],
            vector["limit"],
            vector["remaining"],
            vector["retry_after_ms"],
            vector["reset_after_ms"],
        )
        decision = store.take([hit])
        [answer] = decision.answers
        assert (answer.reading, answer.verdict) == (reading, expected), vector["name"]
        assert decision.time_ms == clock.now
        # Counted if admitted, and only then.
        charge = hit.cost if vector["allowed"] else 0
        assert answer.charged == charge
        assert state(store, hit) == [(reading.previous, reading.current + charge)]


def test_exactly_the_limit_is_admitted(store: Store) -> None:
    assert [store.take([Hit(FIVE, ANN)]).allowed for _ in range(8)] == [True] * 5 + [False] * 3


def test_clients_and_rules_are_counted_apart(store: Store) -> None:
    once = Rule("once", Rate(1, 1000))
    others = [
        Hit(once, BOB),
        Hit(once, Client("ip", "ann")),
        Hit(Rule("other", once.rate), ANN),
        Hit(Rule("once", Rate(1, 2000)), ANN),
    ]
    assert store.take([Hit(once, ANN)]).allowed
    for hit in others:
        assert store.take([hit]).allowed
    for hit in (Hit(once, ANN), *others):
        assert not store.take([hit]).allowed


PAIRS = [
    (("a", "bc"), ("ab", "c")),
    (("a:b", "c"), ("a", "b:c")),
    (("a", ""), ("", "a")),
    (("a\0", "b"), ("a", "\0b")),
    (("", ""), ("\0\0\0\0", "")),
    (("ip", "é"), ("ip", "e\u0301")),
    (("ip", "\ud800"), ("ip", "?")),
    (("ip", "w"), ("w", "")),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_no_two_clients_share_a_counter(
    store: Store, one: tuple[str, str], other: tuple[str, str]
) -> None:
    once = Rule("once", Rate(1, 1000))
    for client in (one, other):
        assert store.take([Hit(once, Client(*client))]).allowed
        assert not store.take([Hit(once, Client(*client))]).allowed


def test_when_an_enforcing_rule_refuses_nothing_is_counted_anywhere(store: Store) -> None:
    watcher = Rule("watcher", Rate(9, 1000), observe=True)
    hits = [Hit(FIVE, ANN), Hit(watcher, ANN), Hit(TWO, BOB)]
    admitted = [store.take(hits).allowed for _ in range(4)]
    assert admitted == [True, True, False, False]
    assert state(store, *hits) == [(0, 2), (0, 2), (0, 2)]


def test_the_order_of_the_hits_does_not_matter(store: Store) -> None:
    hits = [Hit(TWO, BOB), Hit(FIVE, ANN)]
    for _ in range(4):
        store.take(hits)
        hits.reverse()
    assert state(store, *hits) == [(0, 2), (0, 2)]


def test_the_decision_says_which_rules_refuse(store: Store) -> None:
    hits = [Hit(FIVE, ANN), Hit(TWO, ANN)]
    for _ in range(2):
        store.take(hits)
    refused = store.take(hits)
    assert [answer.hit for answer in refused.answers] == hits
    assert [answer.verdict.allowed for answer in refused.answers] == [True, False]
    assert [answer.verdict.remaining for answer in refused.answers] == [3, 0]
    assert refused.charges == {}


def test_an_observing_rule_never_vetoes_and_counts_what_it_would_admit(store: Store) -> None:
    watcher = Rule("watcher", Rate(3, 1000), observe=True)
    hits = [Hit(watcher, ANN), Hit(FIVE, ANN)]
    decisions = [store.take(hits) for _ in range(7)]
    assert [d.allowed for d in decisions] == [True] * 5 + [False] * 2
    assert [d.answers[0].verdict.allowed for d in decisions] == [True] * 3 + [False] * 4
    assert state(store, *hits) == [(0, 3), (0, 5)]


def test_a_soft_limit_of_3_over_a_hard_one_of_10_admits_10_of_50(store: Store) -> None:
    soft = Rule("soft", Rate(3, 60_000), observe=True)
    hard = Rule("hard", Rate(10, 60_000))
    decisions = [store.take([Hit(soft, ANN), Hit(hard, ANN)]) for _ in range(50)]
    assert sum(d.allowed for d in decisions) == 10
    assert sum(not d.limited for d in decisions) == 3


def test_hits_on_one_counter_are_charged_the_greatest_cost_once(store: Store) -> None:
    hits = [Hit(FIVE, ANN, 1), Hit(FIVE, ANN, 3), Hit(FIVE, ANN, 2)]
    decision = store.take(hits)
    assert decision.charges == {hits[0].counter: 3}
    assert [answer.verdict.remaining for answer in decision.answers] == [2, 2, 2]
    assert state(store, hits[0]) == [(0, 3)]
    assert not store.take(hits).allowed
    assert state(store, hits[0]) == [(0, 3)]


def test_every_limit_on_one_counter_is_checked(store: Store) -> None:
    high, low = Rule("shared", Rate(9, 1000)), Rule("shared", Rate(2, 1000))
    hits = [Hit(high, ANN), Hit(low, ANN)]
    assert [store.take(hits).allowed for _ in range(3)] == [True, True, False]
    assert store.take([Hit(high, ANN)]).allowed
    assert state(store, *hits) == [(0, 3), (0, 3)]


def test_of_one_counter_only_the_costs_that_fit_are_charged(store: Store) -> None:
    observing = Rule("shared", Rate(2, 1000), observe=True)
    decision = store.take([Hit(observing, ANN, 4), Hit(Rule("shared", Rate(9, 1000)), ANN, 1)])
    assert decision.allowed
    assert [answer.charged for answer in decision.answers] == [1, 1]


def test_a_cost_above_what_is_left_is_refused_and_takes_nothing(store: Store) -> None:
    store.take([Hit(FIVE, ANN, 3)])
    for cost in (3, 5, 6, 10**6, 2**53, 2**64, 10**400, 10**5000):
        assert not store.take([Hit(FIVE, ANN, cost)]).allowed
    assert store.take([Hit(FIVE, ANN, 10**400)]).retry_after is None
    assert state(store, Hit(FIVE, ANN)) == [(0, 3)]
    assert store.take([Hit(FIVE, ANN, 2)]).allowed


def test_a_hit_that_costs_nothing_counts_nothing(store: Store) -> None:
    decision = store.take([Hit(FIVE, ANN, 0)])
    assert decision.allowed
    assert decision.charges == {}
    assert decision.answers[0].verdict == Verdict(True, 5, 5, 0, 0)


def test_nothing_asked_is_allowed(store: Store) -> None:
    assert store.take([]).allowed
    assert store.peek([]).allowed
    assert store.reset([]) == []
    store.restore([])
    store.refund(Decision())
    store.refund(store.take([]))


def test_a_limit_of_0_refuses_everything(store: Store) -> None:
    closed = Rule("closed", Rate(0, 1000))
    assert not store.take([Hit(closed, ANN)]).allowed
    assert store.take([Hit(closed, ANN)]).retry_after is None
    assert state(store, Hit(closed, ANN)) == [(0, 0)]


@pytest.mark.parametrize("window", [1, 3, 1000, 10**10])
def test_the_largest_numbers_are_counted_exactly(store: Store, clock: Clock, window: int) -> None:
    most = (MAX_PRODUCT - 1) // window
    rule = Rule("large", Rate(most, window))
    clock.now += -clock.now % window
    assert store.take([Hit(rule, ANN, 1)]).allowed
    assert store.take([Hit(rule, ANN, most - 2)]).allowed
    assert not store.take([Hit(rule, ANN, 2)]).allowed
    decision = store.take([Hit(rule, ANN, 1)])
    assert decision.answers[0].verdict.remaining == 0
    assert state(store, Hit(rule, ANN)) == [(0, most)]
    clock.now += window
    assert state(store, Hit(rule, ANN)) == [(most, 0)]
    assert not store.take([Hit(rule, ANN)]).allowed
    store.refund(decision)
    assert state(store, Hit(rule, ANN)) == [(most - 1, 0)]
    clock.now += window - 1
    expected = verdict(rule.rate, most - 1, 0, window - 1)
    assert store.take([Hit(rule, ANN)]).answers[0].verdict == expected


def test_the_longest_window_is_counted(store: Store) -> None:
    rule = Rule("long", Rate(1, MAX_PRODUCT - 1))
    assert store.take([Hit(rule, ANN)]).allowed
    assert not store.take([Hit(rule, ANN)]).allowed


def test_peek_answers_as_take_would_and_counts_nothing(store: Store) -> None:
    hits = [Hit(FIVE, ANN, 4), Hit(TWO, ANN)]
    peeked = store.peek(hits)
    assert [answer.verdict.remaining for answer in peeked.answers] == [5, 2]
    assert peeked.charges == {}
    taken = store.take(hits)
    assert [a.verdict.allowed for a in peeked.answers] == [a.verdict.allowed for a in taken.answers]
    refused = store.peek(hits)
    assert [answer.verdict for answer in refused.answers] == [
        answer.verdict for answer in store.take(hits).answers
    ]
    assert not refused.allowed


def test_peek_sees_all_counters_past_a_rule_that_refuses(store: Store) -> None:
    store.take([Hit(TWO, ANN, 2), Hit(FIVE, ANN, 3)])
    hits = [Hit(TWO, ANN), Hit(FIVE, ANN)]
    assert state(store, *hits) == [(0, 2), (0, 3)]
    assert [answer.verdict.remaining for answer in store.take(hits).answers] == [0, 2]


def test_after_the_wait_the_same_hits_are_admitted_and_a_millisecond_earlier_not(
    store: Store, clock: Clock
) -> None:
    hits = [Hit(Rule("seven", Rate(7, 999)), ANN, 2), Hit(Rule("ten", Rate(10, 1733)), ANN, 3)]
    waits = set()
    for _ in range(60):
        decision = store.take(hits)
        wait = decision.retry_after
        assert wait is not None
        waits.add(wait)
        if wait:
            clock.now += wait - 1
            assert not store.take(hits).allowed
            clock.now += 1
            assert store.take(hits).allowed
        clock.now += 41
    assert len(waits - {0}) > 2


def test_reset_forgets_the_counters_named_and_no_others(store: Store, clock: Clock) -> None:
    hits = [Hit(FIVE, ANN), Hit(FIVE, BOB), Hit(TWO, ANN)]
    store.take(hits)
    clock.now += 1000
    store.take(hits)
    assert state(store, *hits) == [(1, 1), (1, 1), (0, 2)]
    store.reset([Hit(FIVE, ANN), Hit(FIVE, ANN)])
    assert state(store, *hits) == [(0, 0), (1, 1), (0, 2)]
    store.reset([Hit(FIVE, ANN), Hit(Rule("never seen", Rate(1, 1)), ANN)])
    assert store.take([Hit(FIVE, ANN, 5)]).allowed


def test_what_a_reset_forgot_is_restored_beside_what_was_counted_since(
    store: Store, clock: Clock
) -> None:
    hits = [Hit(FIVE, ANN), Hit(FIVE, BOB), Hit(TWO, ANN)]
    store.take(hits)
    clock.now += 1000
    store.take(hits)
    held = store.reset([hits[0], hits[0], hits[2]])
    number = clock.now // 1000
    assert sorted((h.number, h.amount) for h in held if h.counter == hits[0].counter) == [
        (number - 1, 1),
        (number, 1),
    ]
    assert [h.amount for h in held if h.counter == hits[2].counter] == [2]
    store.take([Hit(FIVE, ANN, 2)])
    store.restore(held)
    assert state(store, *hits) == [(1, 3), (1, 1), (0, 2)]


def test_a_restored_count_is_forgotten_at_the_end_of_the_next_window(
    store: Store, clock: Clock
) -> None:
    for windows, expected in (0, (0, 3)), (1, (3, 0)), (2, (0, 0)), (3, (0, 0)):
        store.take([Hit(FIVE, ANN, 3)])
        held = store.reset([Hit(FIVE, ANN)])
        clock.now += windows * 1000
        store.restore(held)
        assert state(store, Hit(FIVE, ANN)) == [expected]
        store.reset([Hit(FIVE, ANN)])
    assert store.reset([Hit(FIVE, ANN)]) == []


def test_refund_gives_back_all_that_a_decision_charged(store: Store) -> None:
    hits = [Hit(FIVE, ANN, 2), Hit(TWO, BOB)]
    store.take(hits)
    decision = store.take(hits)
    store.refund(decision)
    assert state(store, *hits) == [(0, 2), (0, 1)]


def test_a_refunded_answer_reads_as_if_it_had_not_been_charged(store: Store) -> None:
    store.take([Hit(FIVE, ANN)])
    [answer] = store.take([Hit(FIVE, ANN, 3)]).answers
    assert (answer.verdict.remaining, answer.charged) == (1, 3)
    assert (refunded(answer).verdict.remaining, refunded(answer).charged) == (4, 0)
    [refused] = store.take([Hit(FIVE, ANN, 3)]).answers
    assert refunded(refused) == refused


def test_refund_of_merged_hits_gives_back_once(store: Store) -> None:
    store.take([Hit(FIVE, ANN)])
    store.refund(store.take([Hit(FIVE, ANN, 1), Hit(FIVE, ANN, 3)]))
    assert state(store, Hit(FIVE, ANN)) == [(0, 1)]


def test_refund_of_what_was_not_charged_gives_nothing_back(store: Store) -> None:
    store.take([Hit(TWO, ANN, 2)])
    store.refund(store.take([Hit(TWO, ANN)]))
    store.refund(store.peek([Hit(TWO, ANN)]))
    store.refund(store.take([Hit(TWO, ANN, 0)]))
    assert state(store, Hit(TWO, ANN)) == [(0, 2)]


def test_refund_reaches_a_window_that_has_become_the_previous(store: Store, clock: Clock) -> None:
    decision = store.take([Hit(FIVE, ANN, 3)])
    clock.now += 1000
    store.take([Hit(FIVE, ANN)])
    store.refund(decision)
    assert state(store, Hit(FIVE, ANN)) == [(0, 1)]


@pytest.mark.parametrize("windows", [2, 3, 4, 5])
def test_refund_leaves_later_windows_alone(store: Store, clock: Clock, windows: int) -> None:
    decision = store.take([Hit(FIVE, ANN, 3)])
    clock.now += windows * 1000
    store.refund(decision)
    assert state(store, Hit(FIVE, ANN)) == [(0, 0)]
    store.take([Hit(FIVE, ANN, 4)])
    store.refund(decision)
    assert state(store, Hit(FIVE, ANN)) == [(0, 4)]


def test_refund_stops_at_0(store: Store) -> None:
    decision = store.take([Hit(FIVE, ANN, 3)])
    store.refund(decision)
    store.take([Hit(FIVE, ANN, 1)])
    store.refund(decision)
    store.refund(decision)
    assert state(store, Hit(FIVE, ANN)) == [(0, 0)]
    assert store.take([Hit(FIVE, ANN, 5)]).allowed


def test_refund_after_a_reset_makes_nothing(store: Store) -> None:
    decision = store.take([Hit(FIVE, ANN, 3)])
    store.reset([Hit(FIVE, ANN)])
    store.refund(decision)
    assert state(store, Hit(FIVE, ANN)) == [(0, 0)]


@pytest.mark.parametrize("windows", [2, 3, 4, 5, 1000])
def test_counts_older_than_the_previous_window_do_not_count(
    store: Store, clock: Clock, windows: int
) -> None:
    store.take([Hit(FIVE, ANN, 5), Hit(FIVE, BOB, 4)])
    clock.now += windows * 1000
    assert state(store, Hit(FIVE, ANN), Hit(FIVE, BOB)) == [(0, 0), (0, 0)]
    # What ann writes into the bucket does not bring bob's old count back.
    assert store.take([Hit(FIVE, ANN, 5)]).allowed
    assert state(store, Hit(FIVE, ANN), Hit(FIVE, BOB)) == [(0, 5), (0, 0)]


@pytest.mark.parametrize("windows", [0, 1, 2, 3])
def test_two_clients_of_one_rule_are_both_charged_in_one_walk(
    store: Store, clock: Clock, windows: int
) -> None:
    store.take([Hit(FIVE, ANN, 5)])
    clock.now += windows * 1000
    store.reset([Hit(FIVE, ANN)])
    others = [Client("user", str(n)) for n in range(4)]
    hits = [Hit(FIVE, client, 1 + n) for n, client in enumerate(others)]
    store.take(hits)
    assert state(store, *hits) == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_a_clock_set_back_by_a_window_never_counts_the_future(store: Store, clock: Clock) -> None:
    clock.now += 2000
    store.take([Hit(FIVE, ANN, 2)])
    clock.now += 1000
    store.take([Hit(FIVE, ANN, 3)])
    clock.now -= 1000
    assert state(store, Hit(FIVE, ANN)) == [(0, 2)]
    clock.now -= 1000
    assert state(store, Hit(FIVE, ANN)) == [(0, 0)]


def test_only_a_store_with_a_server_runs_its_commands() -> None:
    with pytest.raises(StoreError, match="MemoryStore"):
        MemoryStore().run([("PING",)])


# --- Both stores and the definition, on random walks ---


class Model:
    """The definition, word for word: counts of every window for ever, estimates in fractions."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.counts: dict[tuple[Counter, int], int] = {}

    def estimate(self, counter: Counter, ahead: int = 0) -> Fraction:
        number, elapsed = divmod(self.clock.now + ahead, counter.window_ms)
        previous = self.counts.get((counter, number - 1), 0)
        current = self.counts.get((counter, number), 0)
        return current + Fraction(previous * (counter.window_ms - elapsed), counter.window_ms)

    def fits(self, hit: Hit, ahead: int = 0) -> bool:
        return self.estimate(hit.counter, ahead) + hit.cost <= hit.rule.rate.limit

    def wait(self, hit: Hit) -> int | None:
        if hit.cost > hit.rule.rate.limit:
            return None
        low, high = -1, 2 * hit.counter.window_ms  # refused, admitted
        while high - low > 1:
            middle = (low + high) // 2
            if self.fits(hit, middle):
                high = middle
            else:
                low = middle
        return high

    def take(self, hits: Sequence[Hit]) -> tuple[list[Verdict], dict[Counter, int]]:
        fits = [self.fits(hit) for hit in hits]
        waits = [self.wait(hit) for hit in hits]
        due: dict[Counter, int] = {}
        if all(fit or hit.rule.observe for hit, fit in zip(hits, fits, strict=True)):
            for hit, fit in zip(hits, fits, strict=True):
                if fit and hit.cost:
                    due[hit.counter] = max(hit.cost, due.get(hit.counter, 0))
        for counter, cost in due.items():
            key = counter, self.clock.now // counter.window_ms
            self.counts[key] = self.counts.get(key, 0) + cost
        return self.told(hits, fits, waits), due

    def peek(self, hits: Sequence[Hit]) -> list[Verdict]:
        return self.told(hits, [self.fits(h) for h in hits], [self.wait(h) for h in hits])

    def told(
        self, hits: Sequence[Hit], fits: Sequence[bool], waits: Sequence[int | None]
    ) -> list[Verdict]:
        verdicts = []
        for hit, fit, wait in zip(hits, fits, waits, strict=True):
            limit, window = hit.rule.rate.limit, hit.rule.rate.window_ms
            left = limit - self.estimate(hit.counter)
            number, elapsed = divmod(self.clock.now, window)
            reset = 0
            for back in (1, 0):
                if self.counts.get((hit.counter, number - back)):
                    reset = (2 - back) * window - elapsed
            verdicts.append(Verdict(fit, limit, max(0, left.__floor__()), wait, reset))
        return verdicts

    def refund(self, time_ms: int, due: dict[Counter, int]) -> None:
        for counter, cost in due.items():
            key = counter, time_ms // counter.window_ms
            self.counts[key] = max(0, self.counts.get(key, 0) - cost)

    def reset(self, hits: Sequence[Hit]) -> None:
        for hit in hits:
            for counter, number in list(self.counts):
                if counter == hit.counter:
                    del self.counts[counter, number]


Step = tuple[str, Any]
costs = st.sampled_from([1, 1, 1, 0, 2, 3, 5, 9])


@st.composite
def walks(draw: st.DrawFn) -> list[Step]:
    """Steps of one or two windows' lengths, few rules and two clients: counters meet often."""
    windows = draw(st.sampled_from([[5], [7], [1000], [60_000], [5, 7], [1000, 60_000]]))
    some_window = st.sampled_from(windows)
    rates = st.builds(Rate, st.integers(0, 8), some_window)
    rules = st.builds(Rule, st.sampled_from(["a", "b"]), rates, observe=st.booleans())
    one_hit = st.builds(Hit, rules, st.sampled_from([ANN, BOB]), costs)
    hits = st.lists(one_hit, min_size=2, max_size=4)
    moves = st.one_of(
        st.tuples(st.just("edge"), some_window, st.integers(-2, 1)),  # to it, give or take
        st.tuples(st.just("windows"), some_window, st.integers(1, 3)),
        st.tuples(st.just("ms"), st.just(1), st.integers(1, 3 * windows[-1] // 4)),
    )
    take, move = st.tuples(st.just("take"), hits), st.tuples(st.just("move"), moves)
    others = st.one_of(
        st.tuples(st.just("peek"), hits),
        st.tuples(st.just("reset"), hits),
        st.tuples(st.just("refund"), st.integers(1, 4)),
    )
    return draw(st.lists(st.one_of(take, move, take, move, others), min_size=20, max_size=30))


fresh_prefix = count()


def move(clock: Clock, kind: str, window: int, number: int) -> None:
    if kind == "edge":
        clock.now = max(clock.now, (clock.now // window + 1) * window + number)
    else:
        clock.now += number * window


@pytest.fixture(scope="module")
def url(redis_server: EmbeddedServer) -> str:
    return redis_server.url


@brief
@given(walks(), st.sampled_from([1, 1, 2, 16384]))
def test_the_stores_agree_with_each_other_and_with_the_definition(
    url: str, walk: list[Step], buckets: int
) -> None:
    clock = Clock()
    model, memory = Model(clock), MemoryStore(clock)
    wire = ClockedWire(url, clock)
    redis = RedisStore(wire, prefix=f"{next(fresh_prefix)}:", buckets=buckets)
    past: list[Decision] = []
    for kind, what in walk:
        if kind == "move":
            move(clock, *what)
        elif kind == "take":
            verdicts, due = model.take(what)
            decision = redis.take(what)
            assert decision == memory.take(what)
            assert [answer.verdict for answer in decision.answers] == verdicts
            assert decision.charges == due
            past.append(decision)
        elif kind == "peek":
            decision = redis.peek(what)
            assert decision == memory.peek(what)
            assert [answer.verdict for answer in decision.answers] == model.peek(what)
        elif kind == "reset":
            for each in (redis, memory, model):
                each.reset(what)
        elif past:
            decision = past[-min(what, len(past))]
            redis.refund(decision)
            memory.refund(decision)
            assert decision.time_ms is not None
            model.refund(decision.time_ms, decision.charges)
