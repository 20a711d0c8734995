"""`manage.py demo`: the example site with all that it needs, until Ctrl-C."""

import errno
import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.servers.basehttp import (
    ThreadedWSGIServer,
    WSGIRequestHandler,
    get_internal_wsgi_application,
)

from django_slidinglimit import connections, keeper
from django_slidinglimit.core.stores import StoreError
from example_project import samples, traffic
from example_project.server import ServerError, find_url

HOST = "127.0.0.1"
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last: a terminal that is closed
REDIS_PATIENCE = 5.0  # seconds

GREETING = """
The demo is running. To open in a browser:

  {site}/api/items/                        a list: 30 requests a minute for each client
  {site}/admin/                            its rules, under "Rate limits"
  {site}/admin/django_slidinglimit/usage/  who uses how much of which limit, live

Sign in as: {name} / {password}

alice and bob send a request every {pause:g} seconds, and the attacker {attacker}
{times} times as many. To be the attacker:

  curl -H "X-Forwarded-For: {attacker}" {site}/api/items/

Ctrl-C stops everything.
"""


class Command(BaseCommand):
    help = (
        "Runs the example site with a Redis server of its own (or the one named by REDIS_URL), a "
        "fresh database, example rules and some traffic."
    )
    requires_system_checks = ()  # they connect to what the settings name, and this brings its own

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--port", type=int, default=8000, help="where to serve (default: 8000; 0: a free one)"
        )

    def handle(self, *, port: int, **_: Any) -> None:
        for number in STOPPING:
            signal.signal(number, _stop)
        try:
            # The port first: nothing needs to be undone when it is taken.
            with (
                _listening(port) as server,
                TemporaryDirectory(prefix="slidinglimit-demo-") as folder,
                find_url() as redis_url,
            ):
                # Before the first connection to either.
                settings.DATABASES["default"]["NAME"] = f"{folder}/demo.sqlite3"
                settings.CACHES["limits"]["LOCATION"] = redis_url
                self._run(server)
        except ServerError as exc:
            raise CommandError(str(exc)) from exc
        except KeyboardInterrupt:
            self.stdout.write("Stopped.")

    def _run(self, server: ThreadedWSGIServer) -> None:
        _need_redis()
        call_command("migrate", verbosity=0)
        callers = samples.install()
        with _serving(server), traffic.running(server.server_port, callers):
            self.stdout.write(
                GREETING.format(
                    site=f"http://{HOST}:{server.server_port}",
                    name=samples.NAME,
                    password=samples.PASSWORD,
                    pause=samples.PAUSE,
                    attacker=samples.ATTACKER,
                    times=samples.ATTACKERS_SHARE,
                )
            )
            self.stdout.flush()
            # Python swallows what a handler raises while it clears an object away.
            while signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                time.sleep(0.5)
            raise KeyboardInterrupt


@contextmanager
def _listening(port: int) -> Iterator[ThreadedWSGIServer]:
    """Take the port; requests wait there until the server serves."""
    try:
        server = ThreadedWSGIServer((HOST, port), WSGIRequestHandler)
    except (OSError, OverflowError) as exc:
        if isinstance(exc, OSError) and exc.errno == errno.EADDRINUSE:
            problem = f"Port {port} is taken by another program."
        else:
            problem = f"Port {port} cannot be used: {exc}."
        raise CommandError(f"{problem} Choose another one: manage.py demo --port 8001") from exc
    with server:
        yield server


@contextmanager
def _serving(server: ThreadedWSGIServer) -> Iterator[None]:
    """Serve the site, with the admin's static files, until the block is left."""
    server.set_app(StaticFilesHandler(get_internal_wsgi_application()))
    # A line for each request would drown the addresses. (Loading the application sets levels, too.)
    for name in ("django.request", "django.server"):
        logging.getLogger(name).setLevel(logging.ERROR)
    thread = threading.Thread(target=server.serve_forever, name="server", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        keeper.stop()  # Redis goes next: nothing should still look for it, and complain


def _need_redis() -> None:
    """Wait until Redis answers.

    Raises:
        CommandError: it does not.
    """
    deadline = time.monotonic() + REDIS_PATIENCE
    while True:
        try:
            connections.redis_store().run([("PING",)])
        except StoreError as exc:
            if time.monotonic() > deadline:
                raise CommandError(f"Redis does not answer: {exc}") from exc
            time.sleep(0.1)
        else:
            return


def _stop(_number: int, _frame: FrameType | None) -> None:
    """End the demo, once: its clearing up is not interrupted by another signal."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
