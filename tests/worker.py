"""A second process of the same site: a server's worker that is asked for decisions.

A test starts it with `Worker.start(...)`; it shares the test's database and Redis, and its settings
are the tests', save that RULES_POLL is left at its default.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Worker:
    """The test's end: asks, and waits for the answers."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    @contextmanager
    def start(cls, log: Path, **environment: str) -> Iterator[Worker]:
        """Start a worker; what it logs goes to a file."""
        from django.db import connection

        database = str(connection.settings_dict["NAME"])
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,  # the leader of its children
                env=os.environ | {"SLIDINGLIMIT_TEST_DATABASE": database} | environment,
            )
        limit = threading.Timer(60, os.killpg, (process.pid, signal.SIGKILL))
        limit.start()
        try:
            yield cls(process, log)
        finally:
            process.communicate()  # it ends with its input
            limit.cancel()

    def limits(self, scope: str) -> list[int]:
        """The limits that a request in a scope is under; the code has none of its own."""
        return cast("list[int]", self.ask("limits", scope))

    def ask(self, command: str, *args: str) -> Any:
        """Send a command and wait for its answer."""
        self.send(command, *args)
        return self.receive()

    def send(self, command: str, *args: str) -> None:
        stdin = cast("IO[str]", self._process.stdin)
        stdin.write(json.dumps([command, *args]) + "\n")
        stdin.flush()

    def receive(self) -> Any:
        return json.loads(cast("IO[str]", self._process.stdout).readline())

    def logged(self) -> list[str]:
        """What was logged so far, each record a line."""
        return self._log.read_text().splitlines()

    def obeys_within(self, seconds: float, scope: str, limits: list[int]) -> bool:
        """Whether a scope's limits are these after at most so many seconds, and how many it took.

        The last question is put when the time is over, so that a slow machine fails no test.
        """
        began = time.monotonic()
        while True:
            waited = time.monotonic() - began
            if self.limits(scope) == limits:
                print(f"obeyed after {waited:.3f} s")
                return True
            if waited >= seconds:
                return False
            time.sleep(0.02)


def limits(scope: str) -> list[int]:
    from django.test import RequestFactory

    from django_slidinglimit import limiter

    decision = limiter.check(RequestFactory().get("/"), scope)
    return sorted(answer.verdict.limit for answer in decision.answers)


def admits(scope: str, rate: str) -> bool:
    from django.test import RequestFactory

    from django_slidinglimit import limiter

    return limiter.check(RequestFactory().get("/"), scope, rate=rate).allowed


def remember(seconds: str) -> None:
    """Remember refusals for longer than any test takes."""
    from django_slidinglimit.core import refusals

    refusals.LONGEST = float(seconds)


def sleep(seconds: str) -> None:
    """Sleep as uWSGI without threads does between requests: no other thread runs, either."""
    ctypes.PyDLL(None).usleep(int(float(seconds) * 1_000_000))


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def fork() -> str:
    """Let a child go on in this process's place, as gunicorn does with --preload.

    It forks at the worst moment: another thread holds the lock of the rules.
    """
    from django_slidinglimit import keeper

    held = threading.Event()

    def hold() -> None:
        with keeper._keeper._turn:
            held.set()
            threading.Event().wait()

    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return "forked"


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django
    from django.conf import settings

    del settings.SLIDINGLIMIT["RULES_POLL"]
    logging.basicConfig(format="%(message)r")
    django.setup()
    commands = {f.__name__: f for f in (limits, admits, remember, sleep, threads, fork)}
    for line in sys.stdin:
        command, *args = json.loads(line)
        print(json.dumps(commands[command](*args)), flush=True)


if __name__ == "__main__":
    main()
