"""The site that is measured: the tests' settings with everything else as in production."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import AbstractContextManager, contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def temporary_site() -> Iterator[None]:
    """Run a server and an SQLite database of this process's own; both are gone afterwards.

    The server is asked over TCP, as most are, on the loopback address, and has a processor of its
    own: where the kernel chooses, it now and then puts both on one, and a GET takes half as long.
    """
    from example_project.server import EmbeddedServer

    with (
        EmbeddedServer(port=free_port()) as server,
        TemporaryDirectory(prefix="sl-benchmarks-") as folder,
    ):
        os.environ["SLIDINGLIMIT_TEST_REDIS_URL"] = server.url
        os.environ.pop("SLIDINGLIMIT_TEST_POSTGRES", None)
        os.environ["SLIDINGLIMIT_TEST_DATABASE"] = f"{folder}/site.sqlite3"
        keep_apart(server.url)
        set_up()
        from django.core.management import call_command

        from django_slidinglimit import keeper
        from django_slidinglimit.usage import recorder

        call_command("migrate", verbosity=0)
        try:
            yield
        finally:
            keeper.stop()
            recorder.forget()


def keep_apart(url: str) -> None:
    """Leave the last processor to the server, the others to this process."""
    import redis

    if sys.platform == "linux":
        *ours, last = sorted(os.sched_getaffinity(0))
        if ours:
            with redis.Redis.from_url(url) as client:
                os.sched_setaffinity(client.info("server")["process_id"], {last})
            os.sched_setaffinity(0, ours)


def run_anywhere() -> None:
    """Take every processor, as the many processes of a site do."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def usage(recorded: bool) -> AbstractContextManager[object]:
    """Whether usage is recorded meanwhile. Settings change, so that all is connected anew."""
    from django.conf import settings
    from django.test import override_settings

    return override_settings(SLIDINGLIMIT=settings.SLIDINGLIMIT | {"USAGE": recorded})


def set_up() -> None:
    """Set Django up; rules are looked for as often as by default."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django
    from django.conf import settings

    del settings.SLIDINGLIMIT["RULES_POLL"]
    settings.SLIDINGLIMIT["TIMEOUT"] = 5  # a busy machine's Redis is no Redis that is away
    django.setup()
