"""A cluster: counted in several slots all or nothing, wherever the slots are and go."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from django_slidinglimit.core.cluster import slot
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.slots import ClusterStore
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.core.wire import Wire

from .cluster import Cluster
from .peers import together
from .test_wire import IN_TIME, hung

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import StartServer

DAY = 86_400_000
WIDE = Rule("c1", Rate(1000, DAY), "wide")
NARROW = Rule("c2", Rate(3, DAY), "narrow")


@pytest.fixture
def cluster(start_server: StartServer) -> Iterator[Cluster]:
    found = Cluster(start_server)
    yield found
    found.close()


def store_at(cluster: Cluster, node: int = 0, timeout: float = 5) -> ClusterStore:
    return ClusterStore(RedisStore(Wire.from_url(cluster.url(node), timeout)))


@pytest.fixture
def store(cluster: Cluster) -> ClusterStore:
    return store_at(cluster)


def keys_of(hit: Hit) -> tuple[bytes, bytes]:
    even, odd, _ = RedisStore(Wire.from_url("redis://127.0.0.1")).place(hit.counter)
    return even, odd


def client_at(cluster: Cluster, node: int, kind: str = "ip") -> Client:
    """A client whose counters lie on a node."""
    return next(
        client
        for client in (Client(kind, str(n)) for n in range(1000))
        if cluster.owner(keys_of(Hit(WIDE, client))[0]) == node
    )


@pytest.mark.parametrize("node", range(3))
def test_a_client_is_counted_whatever_node_is_named(cluster: Cluster, node: int) -> None:
    store = store_at(cluster, node)
    for at in range(3):
        hit = Hit(NARROW, client_at(cluster, at))
        assert [store.take([hit]).allowed for _ in range(4)] == [True, True, True, False]
        assert any(keys_of(hit)[0][:-1] in key for key in cluster.keys(at))


def test_hits_of_several_nodes_are_counted_all_or_none(
    store: ClusterStore, cluster: Cluster
) -> None:
    clients = [client_at(cluster, node) for node in range(3)]
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        hits = [Hit(NARROW if n == 1 else WIDE, clients[n]) for n in order]
        store.reset(hits)
        assert [store.take(hits).allowed for _ in range(5)] == [True] * 3 + [False] * 2
        used = {a.hit.rule.name: a.reading.current for a in store.peek(hits).answers if a.reading}
        assert used == {"wide": 3, "narrow": 3}


def test_what_was_decided_in_several_slots_says_so(store: ClusterStore, cluster: Cluster) -> None:
    hits = [Hit(WIDE, client_at(cluster, node)) for node in range(2)]
    assert store.take(hits).in_parts
    assert not store.take(hits[:1]).in_parts


def test_a_refusal_tells_what_all_rules_hold(store: ClusterStore, cluster: Cluster) -> None:
    hits = [
        Hit(Rule("c3", Rate(0, DAY), "none"), client_at(cluster, 0)),
        Hit(NARROW, client_at(cluster, 1)),
        Hit(WIDE, client_at(cluster, 2)),
    ]
    decision = store.take(hits)
    assert not decision.allowed
    assert [a.hit for a in decision.answers] == hits
    assert [a.verdict.remaining for a in decision.answers] == [0, 3, 1000]
    assert decision.charges == {}


def test_an_observing_rule_of_another_node_never_vetoes(
    store: ClusterStore, cluster: Cluster
) -> None:
    watching = Rule("c4", Rate(1, DAY), "watching", observe=True)
    hits = [Hit(watching, client_at(cluster, 0)), Hit(WIDE, client_at(cluster, 1))]
    decisions = [store.take(hits) for _ in range(3)]
    assert [d.allowed for d in decisions] == [True] * 3
    assert [d.answers[0].verdict.allowed for d in decisions] == [True, False, False]


def test_what_was_counted_on_several_nodes_can_be_given_back(
    store: ClusterStore, cluster: Cluster
) -> None:
    hits = [Hit(WIDE, client_at(cluster, node)) for node in range(3)]
    store.refund(store.take(hits))
    assert [a.reading.current for a in store.peek(hits).answers if a.reading] == [0, 0, 0]


def test_it_is_given_back_although_the_clocks_of_nodes_are_apart(
    store: ClusterStore, cluster: Cluster
) -> None:
    short = Rule("c6", Rate(1000, 20_000))
    client = client_at(cluster, 1)
    hits = [Hit(WIDE, client_at(cluster, 0)), Hit(short, client), Hit(WIDE, client)]
    decision = store.take(hits)
    assert decision.time_ms is not None
    # As if the first node's clock were late by more than half of the short window.
    store.refund(replace(decision, time_ms=decision.time_ms - 12_000))
    held = [a.reading.previous + a.reading.current for a in store.peek(hits).answers if a.reading]
    assert held[1:] == [0, 0]


def test_many_threads_get_exactly_the_limit(store: ClusterStore, cluster: Cluster) -> None:
    hit = Hit(Rule("c5", Rate(20, DAY)), client_at(cluster, 2))
    answers = together(60, lambda: store.take([hit]).allowed)
    assert sorted(map(str, answers)) == ["False"] * 40 + ["True"] * 20


def test_a_moved_slot_is_followed_and_counts_go_on(store: ClusterStore, cluster: Cluster) -> None:
    hit = Hit(NARROW, client_at(cluster, 0))
    where = slot(keys_of(hit)[0])
    assert store.take([hit]).allowed
    for key in keys_of(hit):  # else a script has to wait until all is moved
        cluster.nodes[0].hsetnx(key, "w", 0)
    cluster.begin_move(where, 0, 1)
    for key in cluster.keys(0):
        cluster.move_key(key, 0, 1)
    assert store.take([hit]).allowed  # ASK
    cluster.end_move(where, 1)
    assert [store.take([hit]).allowed for _ in range(2)] == [True, False]  # MOVED
    assert cluster.keys(0) == []


def test_where_a_slot_has_moved_to_is_learnt_once(store: ClusterStore, cluster: Cluster) -> None:
    clients = [client_at(cluster, node) for node in range(3)]
    for client in clients:
        assert store.take([Hit(WIDE, client)]).allowed
    mover = Hit(WIDE, client_at(cluster, 0, "user"))
    where = slot(keys_of(mover)[0])
    cluster.begin_move(where, 0, 1)
    cluster.end_move(where, 1)
    assert store.take([mover]).allowed
    opened = cluster.connections(0)
    assert all(store.take([mover]).allowed for _ in range(20))
    assert cluster.connections(0) <= opened + 1  # a node that is asked in vain is left


def test_while_a_node_is_away_the_others_get_no_more_and_more_connections(
    cluster: Cluster,
) -> None:
    store = store_at(cluster, timeout=0.5)
    hit = Hit(WIDE, client_at(cluster, 2))
    cluster.servers[2].stop()
    for _ in range(2):
        with pytest.raises(StoreError):
            store.take([hit])
    opened = cluster.connections(0)
    for _ in range(10):
        with pytest.raises(StoreError):
            store.take([hit])
    assert cluster.connections(0) <= opened


def test_a_script_waits_while_a_slots_keys_lie_on_two_nodes(
    store: ClusterStore, cluster: Cluster
) -> None:
    hit = Hit(NARROW, client_at(cluster, 0))
    store.take([hit])
    where = slot(keys_of(hit)[0])
    cluster.begin_move(where, 0, 1)
    # One of the counter's two keys is on its way, the other does not exist: TRYAGAIN.
    impatient = store_at(cluster, timeout=0.5)
    begun = time.monotonic()
    with pytest.raises(StoreError, match="TryAgain"):
        impatient.take([hit])
    assert time.monotonic() - begun < IN_TIME
    for key in cluster.keys(0):
        cluster.move_key(key, 0, 1)
    cluster.end_move(where, 1)
    assert [store.take([hit]).allowed for _ in range(3)] == [True, True, False]


def test_a_node_that_is_away_is_an_error_for_its_clients_alone(
    cluster: Cluster,
) -> None:
    store = store_at(cluster, timeout=0.5)
    here, there = (Hit(WIDE, client_at(cluster, node)) for node in (0, 2))
    assert store.take([here]).allowed
    assert store.take([there]).allowed
    cluster.servers[2].stop()
    begun = time.monotonic()
    with pytest.raises(StoreError):
        store.take([there])
    assert time.monotonic() - begun < IN_TIME
    assert store.take([here]).allowed


def test_a_cluster_is_found_again_without_the_node_that_is_named(cluster: Cluster) -> None:
    store = store_at(cluster, timeout=0.3)
    hits = [Hit(WIDE, client_at(cluster, node)) for node in range(3)]
    for node, hit in zip(cluster.nodes, hits, strict=True):
        node.config_set("cluster-require-full-coverage", "no")
        assert store.take([hit]).allowed
    with ExitStack() as all_hang:
        for node in cluster.nodes:
            all_hang.enter_context(hung(node))
        for _ in range(2):
            with pytest.raises(StoreError):
                store.take([hits[1]])
    with hung(cluster.nodes[0]):
        deadline = time.monotonic() + 30
        while True:  # the nodes have to find one another again, too
            with suppress(StoreError):
                assert store.take([hits[1]]).allowed
                break
            assert time.monotonic() < deadline


def test_plain_commands_go_to_the_nodes_of_their_keys(
    store: ClusterStore, cluster: Cluster
) -> None:
    keys = [keys_of(Hit(WIDE, client_at(cluster, node)))[0] for node in range(3)]
    written = store.run([("SET", key, i) for i, key in enumerate(keys)])
    assert written == [b"OK"] * 3
    time_, *read = store.run([("TIME",), *(("GET", key) for key in reversed(keys))])
    assert len(time_) == 2
    assert read == [b"2", b"1", b"0"]


def test_a_refusal_stands_whatever_becomes_of_other_nodes(cluster: Cluster) -> None:
    store = store_at(cluster, timeout=0.5)
    none = Hit(Rule("c6", Rate(0, DAY)), client_at(cluster, 1))
    others = [Hit(WIDE, client_at(cluster, node)) for node in (0, 2)]
    for hits in ([none, others[1]], [others[0], none, others[1]]):
        assert not store.take(hits).allowed
    cluster.servers[2].stop()
    for hits in ([none, others[1]], [others[0], none, others[1]]):
        assert not store.take(hits).allowed
