"""Sockets that wait for the server no longer than the running exchange may."""

from __future__ import annotations

import _socket
import socket
import ssl
import struct
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class _Patience(threading.local):
    """For how many seconds this thread may still wait for the server in the running exchange."""

    left = 0.0


patience = _Patience()


# A wait that is longer by so much, in seconds, is not worth telling the kernel.
_NEGLIGIBLE = 0.0005
# A thread that was let run so soon after sending, in seconds, has not been late.
_PROMPT = 0.001


def longest_wait(share: int) -> float:
    """For how many seconds a wait for the server may last."""
    return max(patience.left / share, 0.001)


def waited(begun: float, allowed: float) -> None:
    """Take a wait off what is left.

    No more than was allowed: what goes by until this thread runs again is not the server's.
    """
    patience.left -= min(time.monotonic() - begun, allowed)


def timed_socket(sock: Any, share: int) -> Any:
    """A socket that waits no longer than it may."""
    if isinstance(sock, _socket.socket) and not isinstance(sock, ssl.SSLSocket):
        return PlainSocket(sock, share)
    return TimedSocket(sock, share)  # TLS, and gevent's sockets, which are not the kernel's


class PlainSocket:
    """A socket whose waits the kernel ends.

    To wait and to read is then one call, where Python's own timeouts take four; and what has come
    already is taken, however late the process is.
    """

    def __init__(self, sock: Any, share: int) -> None:
        sock.settimeout(None)
        self._sock = sock
        self._share = share
        self._allowed = 0.0  # as the kernel was told last
        self._looks = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def settimeout(self, seconds: float | None) -> None:
        """With 0 the pool only looks whether something has come; other waits are ours."""
        self._looks = seconds == 0

    def is_fit(self) -> bool:
        """Whether it is open and nothing is left to be read on it."""
        try:
            self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def sendall(self, data: bytes) -> None:
        self._wait(self._sock.sendall, data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        if self._looks:
            flags |= socket.MSG_DONTWAIT
        received: bytes = self._wait(self._sock.recv, size, flags)
        return received

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        if self._looks:
            flags |= socket.MSG_DONTWAIT
        count: int = self._wait(self._sock.recv_into, buffer, size, flags)
        return count

    def _wait(self, call: Callable[..., Any], *args: Any) -> Any:
        allowed = longest_wait(self._share)
        if abs(allowed - self._allowed) > _NEGLIGIBLE:
            seconds, rest = divmod(allowed, 1)
            told = struct.pack("ll", int(seconds), int(rest * 1e6))
            for which in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._sock.setsockopt(socket.SOL_SOCKET, which, told)
            self._allowed = allowed
        begun = time.monotonic()
        try:
            return call(*args)
        except BlockingIOError as exc:
            if self._looks:
                raise
            raise TimeoutError("timed out") from exc
        finally:
            waited(begun, allowed)


class TimedSocket:
    """A socket whose every wait is as long as it then may be, however many one reply takes.

    What has come already is taken without a wait. So a process with more to do than it has time
    for, whose threads run long after their replies came, does not take the server for slow.
    """

    def __init__(self, sock: Any, share: int) -> None:
        self._sock = sock
        self._share = share
        self._sent = 0.0  # when sending last began
        self.recv = partial(self._read, sock.recv)
        self.recv_into = partial(self._read, sock.recv_into)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendall(self, data: bytes) -> None:
        self._sent = time.monotonic()
        sent: int = self._at_once(self._sock.send, data) or 0
        if sent < len(data):
            self._wait(self._sock.sendall, data[sent:])

    def _read(self, read: Callable[..., Any], *args: Any) -> Any:
        allowed = self._sock.gettimeout()
        if not allowed:  # 0: the pool only looks whether something has come
            return read(*args)
        begun = time.monotonic()
        if begun - self._sent > _PROMPT:
            come = self._at_once(read, *args)
            return self._wait(read, *args) if come is None else come
        try:  # hardly anything comes so soon
            return read(*args)
        finally:
            waited(begun, allowed)

    def _wait(self, call: Callable[..., Any], *args: Any) -> Any:
        allowed = longest_wait(self._share)
        self._sock.settimeout(allowed)
        begun = time.monotonic()
        try:
            return call(*args)
        finally:
            waited(begun, allowed)

    def _at_once(self, call: Callable[..., Any], *args: Any) -> Any:
        """What the call gives without a wait; None if it would have to."""
        self._sock.settimeout(0)
        try:
            return call(*args)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        finally:
            self._sock.settimeout(longest_wait(self._share))  # never 0, which has a meaning above
