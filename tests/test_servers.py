"""Usage is recorded under every kind of server, by real ones, and nothing is lost when they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from socket import AF_UNIX, socket
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_slidinglimit.usage import processes
from tests.conftest import need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redis import Redis

pytestmark = pytest.mark.django_db(transaction=True)

BIN = Path(sys.executable).parent
# Other tests may keep the machine busy.
PATIENCE = 60

SERVERS = {
    "gunicorn-sync": ("gunicorn", "-w2", "--bind=unix:{socket}", "tests.served_site:wsgi"),
    "gunicorn-preload": (
        *("gunicorn", "-w2", "--preload", "--bind=unix:{socket}"),
        "tests.served_site:wsgi",
    ),
    "gunicorn-threads": (
        *("gunicorn", "-w2", "--threads=4", "--bind=unix:{socket}"),
        "tests.served_site:wsgi",
    ),
    "gunicorn-gevent": (
        *("gunicorn", "-w2", "-kgevent", "--bind=unix:{socket}"),
        "tests.served_site:wsgi",
    ),
    "uvicorn": ("uvicorn", "--uds={socket}", "--lifespan=off", "tests.served_site:asgi"),
    "uwsgi": (
        *("uwsgi", "-L", "--http-socket={socket}", "--processes=2", "--master"),
        *("--die-on-term", "--enable-threads", "--module=tests.served_site:wsgi"),
    ),
    "uwsgi-without-threads": (
        *("uwsgi", "-L", "--http-socket={socket}", "--processes=2", "--master"),
        *("--die-on-term", "--module=tests.served_site:wsgi"),
    ),
}


class Site(HTTPConnection):
    """The way to a server that listens on a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket(AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)

    def ask(self) -> int:
        """The status of a request of its own connection."""
        try:
            self.request("GET", "/")
            return self.getresponse().status
        finally:
            self.close()


@contextmanager
def serving(name: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Site]]:
    """A server that answers, and the way to it; when it is left it has ended by itself."""
    tool, *args = SERVERS[name]
    path = str(folder / "socket")
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [need(tool, str(BIN / tool)), *(arg.format(socket=path) for arg in args)],
        stdout=log,
        stderr=log,
        env=os.environ
        | {
            "SLIDINGLIMIT_TEST_DATABASE": str(connection.settings_dict["NAME"]),
            "PYTHONPATH": os.getcwd(),
            "VIRTUAL_ENV": str(BIN.parent),
        },
        start_new_session=True,  # the leader of its workers
    )
    try:
        eventually(lambda: listens(path) or process.poll() is not None)
        yield process, Site(path)
        process.terminate()
        process.wait(PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.close()
        print((folder / "log").read_text())


def idle(pid: int) -> bool:
    """Whether a process and its children sleep."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    stats = [Path(f"/proc/{each}/stat").read_text() for each in (pid, *children)]
    return all(stat.rpartition(")")[2].split()[0] == "S" for stat in stats)


def listens(path: str) -> bool:
    with socket(AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


def eventually(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def recorded(redis: Redis) -> int:
    """All decisions that were recorded, in whatever minute."""
    found: list[Any] = redis.keys("sl:usage:*:counts")
    counts: list[dict[bytes, bytes]] = [redis.hgetall(key) for key in found]  # type: ignore[misc]
    return sum(
        int(n) for each in counts for field, n in each.items() if not field.endswith(b":clients")
    )


@pytest.mark.parametrize("name", SERVERS)
def test_what_a_server_decides_is_recorded_and_nothing_is_lost_when_it_ends(
    name: str, tmp_path: Path, redis_client: Redis
) -> None:
    statuses = []
    with serving(name, tmp_path) as (server, site):
        statuses += [site.ask() for _ in range(12)]
        assert statuses == [200] * 5 + [429] * 7

        def all_there() -> bool:
            if name == "uwsgi-without-threads":  # its last second waits for a request
                statuses.append(site.ask())
            return recorded(redis_client) >= 12

        eventually(all_there)
        statuses += [site.ask() for _ in range(7)]
        eventually(lambda: idle(server.pid))  # uWSGI writes nothing at the end of a busy worker
    if server.returncode == -signal.SIGTERM:  # uvicorn lets the signal kill it in the end
        assert name == "uvicorn"
        assert 12 <= recorded(redis_client) <= len(statuses)
    else:
        assert recorded(redis_client) == len(statuses)


@pytest.mark.parametrize("name", ["gunicorn-sync", "gunicorn-gevent", "uwsgi-without-threads"])
def test_each_worker_says_which_rules_it_obeys(
    name: str, tmp_path: Path, redis_client: Redis
) -> None:
    with serving(name, tmp_path) as (server, site):

        def seen() -> list[processes.Process]:
            site.ask()
            seconds, _ = redis_client.time()
            reply: Any = redis_client.hgetall(processes.key("sl:"))
            flat = [part for pair in reply.items() for part in pair]
            return processes.seen(flat, int(seconds) * 1000)

        eventually(lambda: len(seen()) == 2)
        first, second = seen()
        assert {first.pid, second.pid}.isdisjoint({server.pid, os.getpid()})
        assert not first.breaker_open
