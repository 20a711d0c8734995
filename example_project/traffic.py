"""Background traffic for the demo: real requests, each caller one at a time, at a steady pace."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from itertools import cycle
from threading import Event, Thread

PATHS = ("/api/items/", "/api/items/", "/api/items/", "/api/items/search/?q=mug")
TIMEOUT = 5.0  # seconds


@dataclass(frozen=True)
class Caller:
    """Who sends requests.

    Args:
        headers: what they are known by.
        pause: seconds between two requests.
    """

    headers: Mapping[str, str]
    pause: float


@contextmanager
def running(port: int, callers: Sequence[Caller]) -> Iterator[None]:
    """Have the callers send requests to this machine's port until the block is left."""
    stopping = Event()
    threads = [
        Thread(target=_call, args=(port, caller, stopping), name="traffic", daemon=True)
        for caller in callers
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join(TIMEOUT)


def _call(port: int, caller: Caller, stopping: Event) -> None:
    for path in cycle(PATHS):
        if stopping.wait(caller.pause):
            return
        connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        try:
            connection.request("GET", path, headers=dict(caller.headers))
            connection.getresponse().read()
        except (OSError, HTTPException):
            pass  # the server is busy: the next one counts
        finally:
            connection.close()
