"""Other processes of the same site: some decide as fast as they can, one edits rules or is flooded.

`python -m tests.benchmarks.processes` is such a process; it does what its standard input says, a
JSON list a line, and answers a line to each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 120.0  # seconds that a process may live


class Process:
    """This end: asks, and waits for the answers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    @contextmanager
    def start(cls) -> Iterator[Process]:
        """Start a process on the same database and Redis; it ends with its input."""
        from django.db import connection

        process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"SLIDINGLIMIT_TEST_DATABASE": str(connection.settings_dict["NAME"])},
        )
        limit = threading.Timer(PATIENCE, process.kill)
        limit.start()
        try:
            yield cls(process)
        finally:
            process.communicate()
            limit.cancel()

    def ask(self, command: str, *args: Any) -> Any:
        """Send a command and wait for its answer."""
        stdin, stdout = (cast("IO[str]", s) for s in (self._process.stdin, self._process.stdout))
        stdin.write(json.dumps([command, *args]) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())


# Its other end. Times are of the machine's monotonic clock, which all processes share.

_seen: dict[int, float] = {}  # limits, and when a decision was first under them


def decide(scope: str) -> None:
    """Begin to decide, without end and without a pause."""

    def go_on() -> None:
        from django.test import RequestFactory

        from django_slidinglimit import limiter

        request = RequestFactory().get("/")
        while True:
            for answer in limiter.check(request, scope, key="ip").answers:
                _seen.setdefault(answer.verdict.limit, time.monotonic())

    threading.Thread(target=go_on, daemon=True).start()


def obeyed(limit: int) -> float:
    """When a decision was first under a limit; waits for it."""
    while limit not in _seen:
        time.sleep(0.01)
    return _seen[limit]


def edit(scope: str, limit: int) -> float:
    """Give a scope's rule a limit; the time when that was committed."""
    from django_slidinglimit.models import Rule

    Rule.objects.filter(scope=scope).update(rate=f"{limit}/min")
    return time.monotonic()


def flood(clients: int, rules: int) -> int:
    """Record a decision on each of so many clients, under some rules in turn.

    Returns:
        The most bytes that Python's objects took meanwhile.
    """
    import tracemalloc

    from django_slidinglimit.usage import recorder
    from tests.benchmarks import population

    decisions = [population.decide(f"flood{number}") for number in range(rules)]
    recorder.record(decisions[0])  # starts its thread
    tracemalloc.start()
    for number in range(clients):
        decision = decisions[number % rules]
        recorder.record(population.on_another(decision, number))
    recorder.flush()
    return tracemalloc.get_traced_memory()[1]


def main() -> None:
    from tests.benchmarks.site import run_anywhere, set_up

    run_anywhere()
    set_up()
    commands = {f.__name__: f for f in (decide, obeyed, edit, flood)}
    for line in sys.stdin:
        command, *args = json.loads(line)
        print(json.dumps(commands[command](*args)), flush=True)


if __name__ == "__main__":
    main()
