"""What the server that usage is kept in calls itself; asked once a minute, beside the rest."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from django_slidinglimit import connections
from django_slidinglimit.core.stores import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

# How long it is known, in seconds.
KEEP = 60.0
QUESTION = ("INFO", "server")


class Server(NamedTuple):
    """A server's name and version, such as "Valkey 9.1.0"; of a user that may not ask: "Redis"."""

    name: str


def question() -> list[tuple[Any, ...]]:
    """What to ask for `learn`; nothing while it is known."""
    return [] if _known is not None and time.monotonic() < _known[0] else [QUESTION]


def learn(replies: Sequence[Any]) -> None:
    """Take the reply to `question`; none: the user may not ask."""
    global _known
    info = _info(replies[0]) if replies else {}
    # Valkey calls itself a Redis 7.2.4 first.
    name, version = "Valkey", info.get("valkey_version")
    if version is None:
        name, version = "Redis", info.get("redis_version", "")
    _known = time.monotonic() + KEEP, Server(f"{name} {version}".strip())


def denied(error: StoreError) -> bool:
    """Whether an error tells that a user may not ask it."""
    return str(error).startswith("NoPermissionError")


def server() -> Server:
    """The server, asked if it is not known.

    Raises:
        StoreError: it does not answer.
    """
    if asked := question():
        try:
            learn(connections.pages().run(asked))
        except StoreError as error:
            if not denied(error):
                raise
            learn([])
    return _known[1] if _known is not None else Server("Redis")


def forget() -> None:
    """Ask anew."""
    global _known
    _known = None


# Until when it is known, and the server.
_known: tuple[float, Server] | None = None


def _info(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


connections.when_changed(forget)
