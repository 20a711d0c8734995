"""The demo as a newcomer meets it, from outside: `python -m pytest tests/smoke.py`."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest

ROOT = Path(__file__).parent.parent
PATIENCE = 60  # seconds


class Demo:
    """A running `manage.py demo`, and what it has printed so far."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.site = f"http://127.0.0.1:{port}"
        ours = ("DJANGO_", "SLIDINGLIMIT_", "REDIS_URL")
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "demo", "--port", str(port)],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith(ours)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a process group of its own, as in a terminal
        )
        self.output = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.output += line

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the match once it is printed."""
        deadline = time.monotonic() + PATIENCE
        while not (match := re.search(pattern, self.output)):
            assert self.process.poll() is None, f"The demo ended:\n{self.output}"
            assert time.monotonic() < deadline, f"No {pattern!r} in:\n{self.output}"
            time.sleep(0.05)
        return match

    def end(self, how: signal.Signals) -> int:
        """Send a signal as a terminal would, to the whole group; return the exit status."""
        os.killpg(self.process.pid, how)
        status = self.process.wait(PATIENCE)
        self._reader.join(5)  # not for ever: what outlives the demo may hold its output
        return status


class Browser:
    """Keeps cookies; gives status and text of a page."""

    def __init__(self, site: str) -> None:
        self.site = site
        self.cookies = CookieJar()
        self._opener = build_opener(HTTPCookieProcessor(self.cookies))

    def open(self, path: str, form: dict[str, str] | None = None) -> tuple[int, str]:
        request = Request(self.site + path, urlencode(form).encode() if form else None)
        try:
            with self._opener.open(request, timeout=10) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.open("/admin/login/")
            except URLError:
                assert time.monotonic() < deadline, "Nothing answers."
                time.sleep(0.1)
            else:
                return

    def sign_in(self, name: str, password: str) -> None:
        self.open("/admin/login/")
        [token] = [cookie.value for cookie in self.cookies if cookie.name == "csrftoken"]
        form = {"username": name, "password": password, "csrfmiddlewaretoken": token or ""}
        status, page = self.open("/admin/login/?next=/admin/", form)
        assert status == 200
        assert "/admin/logout/" in page


def processes() -> dict[int, int]:
    """The parent of each living process, by process id."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in listing.stdout.splitlines())
    return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}


def family(ancestor: int) -> set[int]:
    """The process and all that it started, directly or not."""
    parents = processes()
    found = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def still_there(members: set[int]) -> set[int]:
    """Those that live on after the others were given time to end."""
    deadline = time.monotonic() + 5
    while (rest := members & processes().keys()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return rest


@pytest.fixture
def demo() -> Iterator[Demo]:
    running = Demo()
    yield running
    if running.process.poll() is None:
        running.end(signal.SIGKILL)


def test_the_demo_refuses_shows_and_stops(demo: Demo) -> None:
    for page in ("/api/items/", "/admin/", "/admin/django_slidinglimit/usage/"):
        demo.wait_for(re.escape(demo.site + page) + r"(?!\S)")
    name, password = demo.wait_for(r"Sign in as: (\S+) / (\S+)\n").groups()
    browser = Browser(demo.site)
    browser.wait_until_it_serves()

    statuses = [browser.open("/api/items/")[0]]
    deadline = time.monotonic() + PATIENCE
    while statuses[-1] == 200 and time.monotonic() < deadline:
        statuses.append(browser.open("/api/items/")[0])
    assert statuses[0] == 200
    assert statuses[-1] == 429

    browser.sign_in(name, password)
    while "127.0.0.1" not in (usage := browser.open("/admin/django_slidinglimit/usage/"))[1]:
        assert usage[0] == 200
        assert time.monotonic() < deadline, "The usage page does not list the refused client."
        time.sleep(0.5)

    members = family(demo.process.pid)
    assert len(members) > 1, "The demo has no server of its own."
    assert demo.end(signal.SIGINT) == 0, demo.output
    assert "Traceback" not in demo.output
    assert not still_there(members)


def test_the_demo_leaves_nothing_when_killed(demo: Demo) -> None:
    demo.wait_for("Sign in as")
    members = family(demo.process.pid)
    os.kill(demo.process.pid, signal.SIGKILL)
    demo.process.wait()
    assert not still_there(members)
