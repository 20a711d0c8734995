"""What a wire may meet at the other end besides a healthy server, and callers in step."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")

Command = list[bytes]
# What a peer does about a command: bytes are sent one after the other, None hangs up.
Answers = Iterator[bytes | None]


@contextmanager
def peer(
    answers: Callable[[Command], Answers], known: list[Command] | None = None
) -> Iterator[str]:
    """A TCP server that speaks the protocol but decides itself what to answer.

    Args:
        answers: called with each command.
        known: the list that each command is added to as it arrives.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    sockets: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(target: Callable[..., None], *args: object) -> None:
        threads.append(threading.Thread(target=target, args=args))
        threads[-1].start()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            sockets.append(connection)
            start(serve, connection)

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            try:
                while line := lines.readline():
                    command = []
                    for _ in range(int(line[1:])):
                        size = int(lines.readline()[1:])
                        command.append(lines.read(size + 2)[:-2])
                    if known is not None:
                        known.append(command)
                    for answer in answers(command):
                        if answer is None:
                            return
                        connection.sendall(answer)
            except OSError:
                return

    start(accept)
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
    finally:
        for each in (listener, *sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(timeout=10)


def together(count: int, call: Callable[[], T]) -> list[T | Exception]:
    """What `count` threads get that all call at once: results, or the exceptions raised."""
    barrier = threading.Barrier(count)

    def one(_: int) -> T | Exception:
        barrier.wait()
        try:
            return call()
        except Exception as exc:
            return exc

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(one, range(count)))
