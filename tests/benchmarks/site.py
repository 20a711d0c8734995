"""The site that is measured: the tests' settings with everything else as in production."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def temporary_site() -> Iterator[None]:
    """Run a server and an SQLite database of this process's own; both are gone afterwards.

    The server is asked over TCP, as most are, on the loopback address.
    """
    from example_project.server import EmbeddedServer

    with (
        EmbeddedServer(port=free_port()) as server,
        TemporaryDirectory(prefix="sl-benchmarks-") as folder,
    ):
        os.environ["SLIDINGLIMIT_TEST_REDIS_URL"] = server.url
        os.environ.pop("SLIDINGLIMIT_TEST_POSTGRES", None)
        os.environ["SLIDINGLIMIT_TEST_DATABASE"] = f"{folder}/site.sqlite3"
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


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def set_up() -> None:
    """Set Django up; rules are looked for as often as by default."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django
    from django.conf import settings

    del settings.SLIDINGLIMIT["RULES_POLL"]
    settings.SLIDINGLIMIT["TIMEOUT"] = 5  # a busy machine's Redis is no Redis that is away
    django.setup()
