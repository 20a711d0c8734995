"""How the rule set in memory is kept; across processes: test_propagation.py."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.test import RequestFactory, TestCase, override_settings
from redis import Redis

from django_slidinglimit import keeper, limiter
from django_slidinglimit.keeper import Keeper
from django_slidinglimit.models import Override, Rule
from example_project.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_django import DjangoAssertNumQueries

TOKEN = "sl:rules:version"


def limits(scope: str) -> list[int]:
    """The limits that a request in a scope is under; the code has none of its own."""
    decision = limiter.check(RequestFactory().get("/"), scope)
    return sorted(answer.verdict.limit for answer in decision.answers)


def is_soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def keeper_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "slidinglimit-rules"]


@pytest.fixture
def polling() -> Iterator[None]:
    """The rule set is kept as in production; nothing of it outlives the test."""
    with override_settings(SLIDINGLIMIT={}):
        yield
    for thread in keeper_threads():
        thread.join(timeout=10)
    assert not keeper_threads()


class RulesInOrdinaryTests(TestCase):
    """What a user's own TestCase sees with RULES_POLL 0, on any database."""

    @classmethod
    def setUpTestData(cls) -> None:
        Rule.objects.create(scope="data", rate="3/min")

    def setUp(self) -> None:
        Rule.objects.create(scope="setup", rate="4/min")

    def test_sees_the_rules_of_set_up_and_set_up_test_data(self) -> None:
        assert limits("data") == [3]
        assert limits("setup") == [4]

    def test_sees_each_change_at_once(self) -> None:
        Rule.objects.filter(scope="data").update(rate="7/min")
        Rule.objects.filter(scope="setup").delete()
        assert limits("data") == [7]
        assert limits("setup") == []

    def test_sees_no_change_of_another_test(self) -> None:
        assert limits("data") == [3]


@pytest.mark.django_db(transaction=True)
class TestKeeping:
    def test_the_request_path_makes_no_database_query(
        self, polling: None, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        Rule.objects.create(scope="a", rate="5/min")
        with django_assert_num_queries(0):
            assert limits("a") == [5]
        with (
            override_settings(SLIDINGLIMIT={"RULES_POLL": 0}),
            django_assert_num_queries(2),
        ):  # rules and overrides
            assert limits("a") == [5]

    def test_rules_and_overrides_cost_no_query_however_many(
        self, polling: None, django_assert_num_queries: DjangoAssertNumQueries
    ) -> None:
        Rule.objects.bulk_create([Rule(scope=f"{n}", rate="5/min") for n in range(300)])
        Override.objects.bulk_create(
            [
                Override(kind="ip", identity=f"10.0.{n}.1", effect="rate", rate=f"{n + 9}/min")
                for n in range(256)
            ]
        )
        keeper.current()
        with django_assert_num_queries(0):
            for n in range(0, 256, 16):
                request = RequestFactory(REMOTE_ADDR=f"10.0.{n}.1").get("/")
                [answer] = limiter.check(request, f"{n}", key="ip").answers
                assert answer.verdict.limit == n + 9

    def test_requests_go_on_while_a_long_load_runs(
        self, polling: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Rule.objects.bulk_create([Rule(scope=f"{n}", rate="5/min") for n in range(60)])
        assert limits("7") == [5]
        monkeypatch.setattr(keeper, "SLICE", 0)
        monkeypatch.setattr(keeper, "BREAK", 0.1)  # 6 s for 60 rows
        monkeypatch.setattr(keeper, "OLDEST_LOOK", 2.0)

        def edit() -> None:
            Rule.objects.filter(scope="7").update(rate="7/min")
            connections.close_all()

        editor = threading.Thread(target=edit)
        editor.start()
        editor.join()
        began = latest = time.monotonic()
        longest = 0.0
        while limits("7") == [5]:
            now = time.monotonic()
            longest, latest = max(longest, now - latest), now
            time.sleep(0.005)
        assert limits("7") == [7]
        assert latest - began > 4  # else it was no long load
        assert longest < 2  # as long as a decision waits that finds the rules too old

    def test_an_edit_is_obeyed_by_the_next_decision_of_its_own_thread(self, polling: None) -> None:
        for limit in range(5, 25):
            Rule.objects.update_or_create(scope="a", defaults={"rate": f"{limit}/min"})
            assert limits("a") == [limit]

    def test_one_thread_keeps_the_rules_for_all_and_ends_when_settings_change(
        self, polling: None
    ) -> None:
        Rule.objects.create(scope="a", rate="5/min")
        seen: list[list[int]] = []
        threads = [threading.Thread(target=lambda: seen.append(limits("a"))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [[5]] * 20
        assert len(keeper_threads()) == 1
        with override_settings(SLIDINGLIMIT={}):
            assert is_soon(lambda: not keeper_threads())

    def test_rows_changed_while_they_are_read_are_read_again(self) -> None:
        """So they are if the version is taken before the rows, and only then."""
        Rule.objects.create(scope="a", rate="5/min")
        kept = Keeper()

        def edit() -> None:
            Rule.objects.update(rate="7/min")
            connections.close_all()

        def edited_meanwhile(execute: Callable[..., Any], *args: Any) -> Any:
            old_rows = execute(*args)
            thread = threading.Thread(target=edit)
            thread.start()
            thread.join()
            return old_rows

        with connection.execute_wrapper(edited_meanwhile):
            kept.look()
        assert [r.rule.rate.limit for r in kept.rules.for_scope("a", "GET")] == [5]
        kept.look()
        assert [r.rule.rate.limit for r in kept.rules.for_scope("a", "GET")] == [7]

    def test_a_failure_is_told_until_a_load_succeeds(self) -> None:
        Rule.objects.create(scope="a", rate="5/min")
        assert limits("a") == [5]
        assert keeper.failure() is None
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE django_slidinglimit_rule RENAME TO gone")
            try:
                assert limits("a") == [5]
                assert "django_slidinglimit_rule" in str(keeper.failure())
            finally:
                cursor.execute("ALTER TABLE gone RENAME TO django_slidinglimit_rule")
        assert limits("a") == [5]
        assert keeper.failure() is None

    def test_without_the_table_the_last_good_set_serves_and_the_log_tells_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        Rule.objects.create(scope="a", rate="5/min")
        kept = Keeper()
        kept.look()
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE django_slidinglimit_rule RENAME TO gone")
            try:
                for _ in range(3):
                    kept.publish()
                    kept.look()
            finally:
                cursor.execute("ALTER TABLE gone RENAME TO django_slidinglimit_rule")
        assert [r.rule.rate.limit for r in kept.rules.for_scope("a", "GET")] == [5]
        for _ in range(3):
            kept.look()
        assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]

    def test_a_row_of_raw_sql_that_does_not_compile_is_told_of_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        bad = Rule.objects.create(scope="a", rate="5/min", name="bad")
        Rule.objects.create(scope="a", rate="6/min")
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE django_slidinglimit_rule SET rate = 'many' WHERE id = %s", [bad.pk]
            )
        for _ in range(3):
            assert limits("a") == [6]
        [told] = [record.getMessage() for record in caplog.records]
        assert f"rule {bad.pk}" in told
        assert "bad" in told
        assert "many" in told

    def test_an_edit_is_saved_although_nobody_can_be_told_of_it(self) -> None:
        with override_settings(SLIDINGLIMIT={"TIMEOUT": "soon"}):  # an error wherever it is read
            Rule.objects.create(scope="a", rate="5/min")
        assert limits("a") == [5]

    def test_a_row_of_raw_sql_is_obeyed_once_a_reload_is_due(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keeper, "RELOAD", 2.0)
        Rule.objects.create(scope="a", rate="5/min")
        kept = Keeper()
        kept.look()
        with connection.cursor() as cursor:
            cursor.execute("UPDATE django_slidinglimit_rule SET rate = '7/min'")
        kept.look()
        assert [r.rule.rate.limit for r in kept.rules.for_scope("a", "GET")] == [5]
        time.sleep(keeper.RELOAD)
        kept.look()
        assert [r.rule.rate.limit for r in kept.rules.for_scope("a", "GET")] == [7]

    def test_a_database_that_hangs_costs_a_second_now_and_then(self, polling: None) -> None:
        Rule.objects.create(scope="a", rate="5/min")
        assert limits("a") == [5]
        answers = threading.Event()

        def hang(**_: object) -> None:
            if threading.current_thread() in keeper_threads():
                answers.wait(timeout=30)

        connection_created.connect(hang)
        try:
            Rule.objects.update(rate="7/min")
            began = time.monotonic()
            for _ in range(20):
                assert limits("a") == [5]
            assert time.monotonic() - began < 10  # one waited, not twenty
        finally:
            answers.set()
            connection_created.disconnect(hang)
        assert is_soon(lambda: limits("a") == [7])

    def test_an_edit_while_redis_is_away_is_kept_and_told_when_it_is_back(
        self, redis_server: EmbeddedServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = EmbeddedServer(redis_server.binary)
        caches = {"default": settings.CACHES["default"] | {"LOCATION": server.url}}
        with override_settings(CACHES=caches, SLIDINGLIMIT={}):
            Rule.objects.create(scope="a", rate="5/min")
            Rule.objects.create(scope="a", rate="6/min")
            assert limits("a") == [5, 6]
            assert [record.name for record in caplog.records] == ["django_slidinglimit"]
            with server, Redis.from_url(server.url) as client:
                assert is_soon(lambda: client.get(TOKEN) is not None)


PROJECT = """
import sys

import django
from django.conf import settings

folder, redis = sys.argv[1:]


class Router:
    def db_for_read(self, model, **hints):
        return "default"

    def db_for_write(self, model, **hints):
        return "primary"


sqlite = "django.db.backends.sqlite3"
names = ("default", "primary")
settings.configure(
    SECRET_KEY="only for the tests",
    DATABASES={name: {"ENGINE": sqlite, "NAME": f"{folder}/{name}"} for name in names},
    DATABASE_ROUTERS=[Router()],
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_slidinglimit"],
    SLIDINGLIMIT={"TIMEOUT": 5},
)
django.setup()

from django.core.management import call_command
from django.db import transaction

from django_slidinglimit import connections, keeper, loading
from django_slidinglimit.models import Rule


def token():
    return connections.store().run([("GET", keeper.token_key())])


for alias in ("default", "primary"):
    call_command("migrate", database=alias, verbosity=0)
before = token()
with transaction.atomic(using="primary"):
    Rule.objects.create(scope="a", rate="5/min")
    assert token() == before, "told before the commit"
assert token() != before, "not told after the commit"
found = loading.load(loading.Loaded(), None, lambda: None).set
assert [rule.rule.rate.limit for rule in found.for_scope("a", "GET")] == [5]
"""


def test_rules_are_told_of_and_read_where_they_are_written(
    redis_server: EmbeddedServer, tmp_path: Path
) -> None:
    """With a replica for reading: after the commit of the database that is written to."""
    command = [sys.executable, "-c", PROJECT, str(tmp_path), redis_server.url]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
