"""A site whose alias names one node of a cluster: decisions, rules, usage and what pages read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.test import RequestFactory

from django_slidinglimit import connections, keeper, limiter
from django_slidinglimit.core.decisions import Client
from django_slidinglimit.usage import busiest, client, hour, overview, recorder
from django_slidinglimit.usage.busiest import Wanted
from django_slidinglimit.usage.housekeeping import Housekeeper
from tests.core.cluster import Cluster
from tests.core.conftest import start_server as start_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

    from tests.core.conftest import StartServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster(start_server: StartServer, settings: Settings) -> Iterator[Cluster]:
    found = Cluster(start_server)
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": found.url()}}
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 5}
    yield found
    found.close()


@pytest.mark.usefixtures("cluster")
def test_all_that_works_on_one_server_works_in_a_cluster() -> None:
    user = User.objects.create(username="maria")
    for number in range(12):  # addresses in as many slots, all in step with the user's counter
        request = RequestFactory().get("/", REMOTE_ADDR=f"192.0.2.{number}")
        request.user = user
        with limiter.walk(request):
            assert limiter.check(request, "address", key="ip", rate="2/day").allowed
            decision = limiter.check(request, "person", key="user", rate="10/day")
            assert decision.allowed == (number < 10)
    for number in range(12):  # what the person's limit refused was given back
        request = RequestFactory().get("/", REMOTE_ADDR=f"192.0.2.{number}")
        [answer] = limiter.peek(request, "address", key="ip", rate="2/day").answers
        assert answer.verdict.remaining == (1 if number < 10 else 2)

    keeper.publish()
    recorder.flush()
    seen = overview.overview()
    assert {row.usage.rule.name for row in seen.rules} == {"address", "person"}
    for row in seen.rules:
        assert busiest.of_rule(row.usage.fields[0], Wanted()).usage
    assert client.of_client(Client("user", str(user.pk))).rules
    assert len(hour.sources(lambda _rule: True)) == 2
    running = int(connections.pages().run([("TIME",)])[0][0]) // 60
    Housekeeper().keep(connections.store().store, running + 1)

    request.user = user
    assert not limiter.check(request, "person", key="user", rate="10/day").allowed
    limiter.reset(request, "person", key="user", rate="10/day")
    assert limiter.check(request, "person", key="user", rate="10/day").allowed
    assert connections.store().failure is None


def test_a_node_that_ends_leaves_the_others_counting(cluster: Cluster, settings: Settings) -> None:
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 0.5}
    requests = [RequestFactory().get("/", REMOTE_ADDR=f"192.0.2.{n}") for n in range(30)]
    for request in requests:
        assert limiter.check(request, "address", key="ip", rate="1/day").allowed
    cluster.servers[2].stop()
    told = [limiter.check(request, "address", key="ip", rate="1/day") for request in requests]
    assert any(not decision.allowed for decision in told)
