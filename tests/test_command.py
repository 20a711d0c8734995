"""`manage.py slidinglimit`, with real files and a second process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.urls import reverse

from django_slidinglimit.models import Override, Rule

from .worker import Worker

if TYPE_CHECKING:
    from django.test import Client
    from pytest_django import Settings
    from redis import Redis

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parents[1]
TOKEN = "sl:rules:version"
A = {"name": "one", "scope": "a"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that says another rate for rule a, and adds an override."""
    path = tmp_path / "rules.json"
    parts = {
        "version": 1,
        "rules": [{**A, "rate": "7/min"}],
        "overrides": [{"rule": A, "kind": "ip", "identity": "192.0.2.1", "effect": "block"}],
    }
    path.write_text(json.dumps(parts))
    return path


def run(*args: object) -> str:
    out = io.StringIO()
    call_command("slidinglimit", *map(str, args), stdout=out)
    return out.getvalue()


def limits() -> dict[str, str]:
    return dict(Rule.objects.values_list("name", "rate"))


@pytest.fixture
def rule() -> Rule:
    return Rule.objects.create(**A, rate="5/min")


@pytest.mark.usefixtures("rule")
def test_an_export_to_a_file_is_what_is_printed(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    assert run("export", path) == ""
    assert path.read_text() == run("export")
    assert run("import", path) == "0 added, 0 changed, 0 removed, 1 unchanged\n"


@pytest.mark.usefixtures("rule")
def test_a_dry_run_prints_what_an_import_prints_and_writes_nothing(
    file: Path, redis_client: Redis, django_capture_on_commit_callbacks: Any
) -> None:
    told = redis_client.get(TOKEN)
    with django_capture_on_commit_callbacks() as callbacks:
        foretold = run("import", file, "--dry-run")
    assert (limits(), Override.objects.count(), callbacks) == ({"one": "5/min"}, 0, [])
    assert redis_client.get(TOKEN) == told
    assert foretold == run("import", file) + "Nothing is written: this was a dry run.\n"
    assert (limits(), Override.objects.count()) == ({"one": "7/min"}, 1)


@pytest.mark.usefixtures("rule")
def test_only_pruning_deletes(file: Path) -> None:
    Rule.objects.create(name="two", scope="b", rate="5/min")
    run("import", file)
    assert limits() == {"one": "7/min", "two": "5/min"}
    assert 'removed rule: name "two", scope "b"' in run("import", file, "--prune", "--dry-run")
    assert limits() == {"one": "7/min", "two": "5/min"}
    run("import", file, "--prune")
    assert limits() == {"one": "7/min"}


@pytest.mark.usefixtures("rule")
def test_of_a_file_with_one_wrong_row_nothing_is_imported(file: Path) -> None:
    parts = json.loads(file.read_text())
    parts["overrides"].append({"effect": "rate", "rate": "often"})
    file.write_text(json.dumps(parts))
    with pytest.raises(CommandError, match=r"Nothing is imported\.\noverrides\[1\]\.rate: "):
        run("import", file)
    assert (limits(), Override.objects.count()) == ({"one": "5/min"}, 0)


def test_a_file_that_cannot_be_read_or_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        run("import", tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes(b"\xe9")
    with pytest.raises(CommandError, match="cannot be read"):
        run("import", tmp_path / "latin.json")
    with pytest.raises(CommandError, match="cannot be written"):
        run("export", tmp_path)


def test_an_import_is_in_the_history_of_who_made_it_and_can_be_undone(
    rule: Rule, file: Path, client: Client
) -> None:
    admin = User.objects.create_superuser("admin")
    gone = Rule.objects.create(name="two", scope="b", rate="5/min")
    run("import", file, "--prune", "--user", "admin")
    override = Override.objects.get()
    assert override.created_by == admin
    entries = LogEntry.objects.values_list("user", "action_flag", "object_id", "object_repr")
    assert sorted(entries, key=lambda entry: entry[1]) == [
        (admin.pk, ADDITION, str(override.pk), "block for ip 192.0.2.1"),
        (admin.pk, CHANGE, str(rule.pk), "one"),
        (admin.pk, DELETION, str(gone.pk), "two"),
    ]
    client.force_login(admin)
    page = reverse("admin:django_slidinglimit_rule_history", args=[rule.pk])
    shown = client.get(page)
    assert [str(d) for d in shown.context["changes"][0].differences] == ["rate: 5/min → 7/min"]
    assert shown.context["changes"][0].states


def test_a_history_needs_a_user_and_the_admin(file: Path, settings: Settings) -> None:
    with pytest.raises(CommandError, match="There is no user 'nobody'"):
        run("import", file, "--user", "nobody")
    settings.INSTALLED_APPS = [
        app for app in settings.INSTALLED_APPS if app != "django.contrib.admin"
    ]
    with pytest.raises(CommandError, match="the admin is not installed"):
        run("import", file, "--user", "nobody")
    assert limits() == {}


@pytest.mark.django_db(transaction=True)
def test_an_import_is_obeyed_by_another_process(
    rule: Rule, file: Path, tmp_path: Path, redis_client: Redis
) -> None:
    with Worker.start(tmp_path / "worker.log") as worker:
        assert worker.limits("a") == [5]
        before = redis_client.get(TOKEN)
        run("import", file)
        assert redis_client.get(TOKEN) != before
        assert worker.obeys_within(1, "a", [7])


@pytest.mark.django_db(transaction=True)
def test_an_import_that_fails_at_its_last_row_changes_nothing(
    rule: Rule, file: Path, redis_client: Redis
) -> None:
    # The history is written last, and here it cannot be.
    User.objects.create_superuser("admin")
    before = redis_client.get(TOKEN)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_admin_log RENAME TO elsewhere")
        try:
            with pytest.raises(Exception, match="django_admin_log"):
                run("import", file, "--user", "admin")
        finally:
            cursor.execute("ALTER TABLE elsewhere RENAME TO django_admin_log")
    assert (limits(), Override.objects.count()) == ({"one": "5/min"}, 0)
    assert redis_client.get(TOKEN) == before


@pytest.mark.django_db(transaction=True)
def test_it_is_a_filter_in_a_shell(rule: Rule) -> None:
    environment = os.environ | {
        "SLIDINGLIMIT_TEST_DATABASE": str(connection.settings_dict["NAME"]),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONIOENCODING": "utf-8",
    }

    def shell(*args: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "django", "slidinglimit", *args],
            input=given, capture_output=True, text=True, encoding="utf-8", cwd=ROOT,
            env=environment, check=False, timeout=60,
        )  # fmt: skip

    exported = shell("export")
    assert exported.returncode == 0, exported.stderr
    done = shell("import", "-", given=exported.stdout.replace("5/min", "8/min"))
    assert (done.returncode, limits()) == (0, {"one": "8/min"}), done.stderr
    failed = shell("import", "-", given="{")
    assert failed.returncode == 1
    assert "This is not JSON" in failed.stderr
