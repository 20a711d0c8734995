from __future__ import annotations

import time

from django_slidinglimit.core.decisions import Client, Decision, Hit, Rule
from django_slidinglimit.core.memory import MemoryStore
from django_slidinglimit.core.rates import Rate

from .clock import Clock
from .peers import together

ANN = Client("ip", "192.0.2.1")


def test_without_a_clock_it_lives_by_the_systems() -> None:
    before = time.time_ns() // 1_000_000
    decision = MemoryStore().take([Hit(Rule("r", Rate(1, 1000)), ANN)])
    assert decision.time_ms is not None
    assert before <= decision.time_ms <= time.time_ns() // 1_000_000


def test_each_store_counts_alone() -> None:
    hits = [Hit(Rule("r", Rate(1, 3_600_000)), ANN)]
    assert MemoryStore().take(hits).allowed
    assert MemoryStore().take(hits).allowed


def test_100_threads_get_exactly_5_through() -> None:
    store = MemoryStore(Clock())
    hits = [Hit(Rule("r", Rate(5, 60_000)), ANN), Hit(Rule("s", Rate(50, 60_000)), ANN)]
    answers = together(100, lambda: store.take(hits))
    assert sum(answer.allowed for answer in answers if isinstance(answer, Decision)) == 5
    readings = [answer.reading for answer in store.peek(hits).answers]
    assert [reading.current for reading in readings if reading] == [5, 5]
