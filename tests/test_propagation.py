"""An edit in one process is obeyed by another within a second; each test has a second process."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.urls import reverse

from django_slidinglimit import keeper
from django_slidinglimit.models import Rule, Usage
from example_project.server import EmbeddedServer

from .benchmarks.figures import Sizes
from .benchmarks.propagation import times
from .benchmarks.rows import write_overrides, write_rules
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from django.test import Client
    from redis import Redis

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = "sl:rules:version"


@pytest.fixture
def rule() -> Rule:
    return Rule.objects.create(name="one", scope="a", rate="5/min")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker.log"


@pytest.fixture
def worker(rule: Rule, log: Path) -> Iterator[Worker]:
    """A process that obeys `rule`."""
    with Worker.start(log) as worker:
        assert worker.limits("a") == [5]
        yield worker


def save(rule: Rule) -> list[int]:
    rule.rate = "7/min"
    rule.save()
    return [7]


def create(rule: Rule) -> list[int]:
    Rule.objects.create(scope="a", rate="8/min")
    return [5, 8]


def delete(rule: Rule) -> list[int]:
    rule.delete()
    return []


def update(rule: Rule) -> list[int]:
    Rule.objects.filter(scope="a").update(rate="9/min")
    return [9]


def switch_off(rule: Rule) -> list[int]:
    Rule.objects.filter(scope="a").update(mode=Rule.Mode.OFF)
    return []


def bulk_create(rule: Rule) -> list[int]:
    Rule.objects.bulk_create([Rule(scope="a", rate="1/min"), Rule(scope="a", rate="2/min")])
    return [1, 2, 5]


def bulk_update(rule: Rule) -> list[int]:
    rule.rate = "11/min"
    Rule.objects.bulk_update([rule], ["rate"])
    return [11]


def update_or_create(rule: Rule) -> list[int]:
    Rule.objects.update_or_create(scope="a", defaults={"rate": "12/min"})
    return [12]


def delete_many(rule: Rule) -> list[int]:
    Rule.objects.filter(scope="a").delete()
    return []


def save_by_the_usage_pages_model(rule: Rule) -> list[int]:
    usage = Usage.objects.get(pk=rule.pk)
    usage.rate = "14/min"
    usage.save()
    return [14]


def delete_by_the_usage_pages_model(rule: Rule) -> list[int]:
    Usage.objects.get(pk=rule.pk).delete()
    return []


def empty_the_database(rule: Rule) -> list[int]:
    call_command("flush", interactive=False, verbosity=0)
    return []


@pytest.mark.parametrize(
    "edit",
    [
        save,
        create,
        delete,
        update,
        switch_off,
        bulk_create,
        bulk_update,
        update_or_create,
        delete_many,
        save_by_the_usage_pages_model,
        delete_by_the_usage_pages_model,
        empty_the_database,
    ],
)
def test_an_edit_is_obeyed_within_a_second(
    worker: Worker, rule: Rule, edit: Callable[[Rule], list[int]]
) -> None:
    assert worker.obeys_within(1, "a", edit(rule))


def test_a_deletion_in_the_admin_is_obeyed_within_a_second(
    worker: Worker, rule: Rule, client: Client
) -> None:
    client.force_login(User.objects.create_superuser("admin"))
    answer = client.post(
        reverse("admin:django_slidinglimit_rule_changelist"),
        {"action": "delete_selected", "_selected_action": [rule.pk], "post": "yes"},
    )
    assert answer.status_code == 302
    assert worker.obeys_within(1, "a", [])


def test_loaded_data_are_obeyed_within_a_second(worker: Worker, rule: Rule, tmp_path: Path) -> None:
    fixture = tmp_path / "rules.json"
    call_command("dumpdata", "django_slidinglimit.Rule", output=fixture)
    [row] = json.loads(fixture.read_text())
    row["fields"]["rate"] = "13/min"
    fixture.write_text(json.dumps([row]))
    call_command("loaddata", fixture, verbosity=0)
    assert worker.obeys_within(1, "a", [13])


def test_a_process_whose_threads_did_not_run_obeys_with_its_first_decision(
    worker: Worker, rule: Rule
) -> None:
    for limit in (7, 8):
        worker.send("sleep", "1.2")
        Rule.objects.update(rate=f"{limit}/min")
        worker.receive()
        assert worker.limits("a") == [limit]


def test_a_process_that_was_idle_obeys_with_its_first_decision(worker: Worker, rule: Rule) -> None:
    time.sleep(1.2)
    Rule.objects.update(rate="7/min")
    time.sleep(1)
    assert worker.limits("a") == [7]


def test_a_transaction_tells_when_it_commits_and_not_before(
    worker: Worker, rule: Rule, redis_client: Redis
) -> None:
    before = redis_client.get(TOKEN)
    with transaction.atomic():
        save(rule)
        update(rule)
        bulk_update(rule)
        assert redis_client.get(TOKEN) == before
    assert redis_client.get(TOKEN) != before
    assert worker.obeys_within(1, "a", [11])


def test_a_transaction_that_rolls_back_changes_nothing(
    worker: Worker, rule: Rule, redis_client: Redis
) -> None:
    before = redis_client.get(TOKEN)
    with suppress(RuntimeError), transaction.atomic():
        save(rule)
        bulk_create(rule)
        raise RuntimeError
    assert redis_client.get(TOKEN) == before
    assert worker.limits("a") == [5]


def test_a_savepoint_that_rolls_back_silences_no_other_edit(
    worker: Worker, rule: Rule, redis_client: Redis
) -> None:
    with transaction.atomic():
        with suppress(RuntimeError), transaction.atomic():
            create(rule)
            raise RuntimeError
        save(rule)
    assert worker.obeys_within(1, "a", [7])
    before = redis_client.get(TOKEN)
    with transaction.atomic(), suppress(RuntimeError), transaction.atomic():
        update(rule)
        raise RuntimeError
    assert redis_client.get(TOKEN) == before


def test_a_redis_that_was_emptied_makes_the_rules_load_again(
    worker: Worker, rule: Rule, redis_client: Redis
) -> None:
    with connection.cursor() as cursor:  # of which nobody is told
        cursor.execute("UPDATE django_slidinglimit_rule SET rate = '7/min'")
    redis_client.flushall()
    assert worker.obeys_within(1, "a", [7])


def test_a_redis_that_was_away_makes_the_rules_load_again(
    rule: Rule, log: Path, redis_server: EmbeddedServer
) -> None:
    server = EmbeddedServer(redis_server.binary)
    with Worker.start(log, SLIDINGLIMIT_TEST_REDIS_URL=server.url) as worker:
        with server:
            assert worker.limits("a") == [5]
        assert worker.limits("a") == [5]
        Rule.objects.update(rate="7/min")  # it is told to the tests' own Redis
        with server:
            # As long as the breaker may pause.
            assert worker.obeys_within(6, "a", [7])


def test_a_process_that_starts_without_redis_has_the_rules(
    rule: Rule, log: Path, redis_server: EmbeddedServer
) -> None:
    server = EmbeddedServer(redis_server.binary)
    with Worker.start(log, SLIDINGLIMIT_TEST_REDIS_URL=server.url) as worker:
        assert worker.limits("a") == [5]


def test_without_the_table_a_process_serves_on_and_logs_once_a_change(
    worker: Worker, rule: Rule
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_slidinglimit_rule RENAME TO gone")
        try:
            keeper.publish()
            worker.ask("sleep", "1.2")
            assert worker.limits("a") == [5]
            worker.ask("sleep", "1.2")
            assert worker.limits("a") == [5]
        finally:
            cursor.execute("ALTER TABLE gone RENAME TO django_slidinglimit_rule")
    save(rule)
    assert worker.obeys_within(1, "a", [7])
    assert len(worker.logged()) == 2


def test_a_forked_child_follows_edits_and_has_one_thread_of_its_own(
    worker: Worker, rule: Rule
) -> None:
    worker.ask("fork")
    assert worker.ask("threads") == ["MainThread"]
    assert worker.limits("a") == [5]
    assert worker.obeys_within(1, "a", save(rule))
    assert worker.ask("threads").count("slidinglimit-rules") == 1


@pytest.mark.parametrize(("overrides", "bound"), [(0, 10), (10_000, 20)])
def test_four_busy_processes_obey_an_edit_among_many_rows(overrides: int, bound: float) -> None:
    """Within 1 s among 1,000 rows and 2 s among 11,000, as the benchmarks measure.

    The bounds here are ten times that: they tell of an edit that is lost or waits for the reload
    of each minute, and of no busy machine. What was measured is printed.
    """
    write_rules(1_000)
    write_overrides(overrides)
    [seconds] = times(Sizes(edits=1, processes=4))
    print(f"among {1_000 + overrides:,} rows obeyed by all after {seconds:.2f} s")
    assert seconds < bound
