"""The wire when all is not well: every failure is a StoreError, in time, and nothing runs twice."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from redis import ConnectionPool, Redis
from redis._parsers import _HiredisParser, _RESP2Parser

from django_slidinglimit.core.breaker import Breaker
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.pool import own_pool
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.stores import StoreBusyError, StoreError
from django_slidinglimit.core.wire import MOST_CONNECTIONS, Wire
from example_project.server import EmbeddedServer
from tests.conftest import need

from .peers import peer, together

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .conftest import StartServer
    from .peers import Command

DAY = 86_400_000
HITS = [Hit(Rule("many", Rate(100_000, 30 * DAY)), Client("ip", "192.0.2.1"))]
TIMEOUT = 0.4
# One deadline, and room for a slow machine.
IN_TIME = 10 * TIMEOUT


def store_at(url: str, timeout: float = TIMEOUT) -> RedisStore:
    return RedisStore(Wire.from_url(url, timeout))


def fails_in_time(store: RedisStore, match: str | None = None) -> None:
    begun = time.monotonic()
    with pytest.raises(StoreError, match=match) as info:
        store.take(HITS)
    assert time.monotonic() - begun < IN_TIME
    assert not isinstance(info.value, StoreBusyError)
    assert info.value.__cause__ is not None


def counted(store: RedisStore) -> int:
    reading = store.peek(HITS).answers[0].reading
    assert reading is not None
    return reading.previous + reading.current


def with_db(url: str, more: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{more}"


@contextmanager
def hung(client: Redis) -> Iterator[None]:
    """The server neither reads nor answers, but its socket takes connections and commands."""
    info: Any = client.info("server")
    os.kill(info["process_id"], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(info["process_id"], signal.SIGCONT)


@pytest.fixture(params=["unix", "tcp"])
def server(
    request: pytest.FixtureRequest, start_server: StartServer, free_port: int
) -> EmbeddedServer:
    """A server of the test's own, reached over each kind of socket in turn."""
    return start_server(port=free_port if request.param == "tcp" else 0)


# --- Away and back ---


def test_a_restarted_server_is_found_again_without_an_error(server: EmbeddedServer) -> None:
    store = store_at(server.url, timeout=5)
    together(5, lambda: store.take(HITS))
    server.stop()
    server.start()
    answers = together(5, lambda: store.take(HITS))
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert counted(store) == 5


def test_a_connection_that_the_server_closed_is_replaced(server: EmbeddedServer) -> None:
    store = store_at(server.url, timeout=5)
    store.take(HITS)
    with Redis.from_url(server.url) as client:
        for _ in range(3):
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            assert store.take(HITS).allowed
    assert counted(store) == 4


def test_a_stopped_server_is_an_error_until_it_is_back(server: EmbeddedServer) -> None:
    store = store_at(server.url)
    store.take(HITS)
    server.stop()
    fails_in_time(store)
    fails_in_time(store)
    fails_in_time(store_at(server.url))
    server.start()
    assert store_at(server.url, timeout=5).take(HITS).allowed
    assert store.take(HITS).allowed


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1", "unix:///nowhere/redis.sock", "redis://no-such-host.invalid"]
)
def test_nobody_at_the_address_is_an_error(url: str) -> None:
    fails_in_time(store_at(url))


# --- Hung ---


def test_a_hung_server_is_an_error_in_time_and_nothing_is_counted_twice(
    server: EmbeddedServer,
) -> None:
    store = store_at(server.url)
    with Redis.from_url(server.url) as client:
        store.take(HITS)
        with hung(client):
            fails_in_time(store)  # on the open connection
            fails_in_time(store)  # on a new one
        assert client.ping()
        # The first may have been counted when the server woke. The second never got that far.
        assert counted(store_at(server.url, timeout=5)) in (1, 2)
        assert store.take(HITS).allowed


def test_all_callers_of_a_hung_server_fail_in_time(start_server: StartServer) -> None:
    server = start_server()
    store = store_at(server.url, timeout=0.5)
    with Redis.from_url(server.url) as client, hung(client):
        begun = time.monotonic()
        answers = together(50, lambda: store.take(HITS))
        assert time.monotonic() - begun < 5
        assert all(isinstance(answer, StoreError) for answer in answers)


@pytest.mark.parametrize("credentials", ["", ":password@", "user:password@"])
@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_who_accepts_and_never_answers_is_an_error_in_time(scheme: str, credentials: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        # Reading the system's certificates takes this process a while.
        timeout = TIMEOUT if scheme == "redis" else 1.0
        fails_in_time(store_at(f"{scheme}://{credentials}{address}/3", timeout))


def test_who_does_not_accept_is_an_error_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = []
        for _ in range(4):  # fill the queue, so that the next connection hangs
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(listener.getsockname())
        fails_in_time(store_at(f"redis://127.0.0.1:{listener.getsockname()[1]}"))
        for each in waiting:
            each.close()


def test_one_deadline_holds_for_all_steps_of_a_slow_exchange() -> None:
    def slowly(command: Command) -> Iterator[bytes]:
        time.sleep(TIMEOUT * 0.7)
        yield b"-NOSCRIPT no\r\n" if command[0] == b"EVALSHA" else b"+OK\r\n"

    with peer(slowly) as url:
        store = store_at(url.replace("redis://", "redis://user:password@").replace("/0", "/3"))
        begun = time.monotonic()
        with pytest.raises(StoreError):
            store.take(HITS)
        assert time.monotonic() - begun < 3.5 * TIMEOUT  # six steps that each are in time


@pytest.mark.parametrize("parser", [_HiredisParser, _RESP2Parser])  # an alias may name its own
def test_one_deadline_holds_for_an_answer_in_small_pieces(parser: type[Any]) -> None:
    def trickle(command: Command) -> Iterator[bytes]:
        if command[0] != b"EVALSHA":
            yield b"+OK\r\n"
            return
        yield b"*3\r\n"
        for _ in range(80):  # twice IN_TIME
            time.sleep(TIMEOUT / 4)
            yield b":0"

    with peer(trickle) as url:
        pool = own_pool(ConnectionPool.from_url(url, parser_class=parser))
        fails_in_time(RedisStore(Wire(pool, TIMEOUT)))


def test_one_deadline_holds_while_sending(start_server: StartServer) -> None:
    server = start_server()
    store = store_at(server.url)
    with Redis.from_url(server.url) as client, hung(client):
        begun = time.monotonic()
        with pytest.raises(StoreError):
            store.run([("SET", "k", b"x" * 50_000_000)])  # more than the socket's buffers hold
        assert time.monotonic() - begun < IN_TIME


# --- Never sent again ---


def silence(command: Command) -> Iterator[bytes]:
    if not command[0].startswith(b"EVAL"):
        yield b"+OK\r\n"


def hang_up(command: Command) -> Iterator[bytes | None]:
    yield None if command[0].startswith(b"EVAL") else b"+OK\r\n"


def hang_up_within_the_answer(command: Command) -> Iterator[bytes | None]:
    yield from [b"*3\r\n:1", None] if command[0].startswith(b"EVAL") else [b"+OK\r\n"]


def nonsense(command: Command) -> Iterator[bytes]:
    yield b"HTTP/1.1 400 Bad Request\r\n\r\n" if command[0].startswith(b"EVAL") else b"+OK\r\n"


@pytest.mark.parametrize(
    ("answers", "timeout"),
    [(silence, 1.0), (hang_up, 10.0), (hang_up_within_the_answer, 10.0), (nonsense, 10.0)],
)
def test_what_may_have_been_executed_is_never_sent_again(answers: Any, timeout: float) -> None:
    known: list[Command] = []
    begun = time.monotonic()
    with peer(answers, known) as url:
        with pytest.raises(StoreError):
            store_at(url, timeout).take(HITS)
        with pytest.raises(StoreError):
            store_at(url, timeout).run([("EVAL", "return 1", 0)])
    assert time.monotonic() - begun < 10
    sent = [command[0] for command in known if command[0].startswith(b"EVAL")]
    assert sent == [b"EVALSHA", b"EVAL"]


def test_settings_that_would_retry_do_not() -> None:
    known: list[Command] = []
    with peer(silence, known) as url:
        store = store_at(f"{url}?retry_on_timeout=yes&socket_timeout=60&protocol=3", timeout=1)
        with pytest.raises(StoreError):
            store.take(HITS)
    assert [command[0] for command in known if command[0].startswith(b"EVAL")] == [b"EVALSHA"]


class Numbering:
    """Answers each script with its own number as the time, the first one late."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, command: Command) -> Iterator[bytes]:
        if command[0] != b"EVALSHA":
            yield b"+OK\r\n"
            return
        self.asked += 1
        number = self.asked
        if number == 1:
            time.sleep(2 * TIMEOUT)
        yield b"*3\r\n:%d\r\n:0\r\n:0\r\n" % number


def test_an_answer_that_comes_too_late_is_read_by_nobody() -> None:
    with peer(Numbering()) as url:
        store = store_at(url)
        fails_in_time(store)
        time.sleep(2 * TIMEOUT)
        assert [store.take(HITS).time_ms for _ in range(2)] == [2, 3]


class Interrupt(BaseException):
    """What a worker's own time limit raises, as gevent.Timeout or KeyboardInterrupt do."""


def test_an_answer_to_an_interrupted_caller_is_read_by_nobody() -> None:
    def interrupt(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with peer(Numbering()) as url:
            store = store_at(url, timeout=5)
            signal.setitimer(signal.ITIMER_REAL, TIMEOUT)
            with pytest.raises(Interrupt):
                store.take(HITS)
            time.sleep(2 * TIMEOUT)
            assert [store.take(HITS).time_ms for _ in range(2)] == [2, 3]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- Answers that are errors ---


@pytest.mark.parametrize(
    "error",
    [
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script.",
        "MISCONF Redis is configured to save RDB snapshots",
        "NOREPLICAS Not enough good replicas to write.",
        "MASTERDOWN Link with MASTER is down",
        "CLUSTERDOWN Hash slot not served",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "MOVED 1 127.0.0.1:1",
        "ASK 1 127.0.0.1:1",
        "UNKILLABLE Sorry",
        "ERR max number of clients reached",
        "ERR unknown command 'EVALSHA'",
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair",
        "",
    ],
)
def test_an_error_of_the_server_is_an_error_of_the_store(error: str) -> None:
    def refuse(command: Command) -> Iterator[bytes]:
        yield f"-{error}\r\n".encode() if command[0] == b"EVALSHA" else b"+OK\r\n"

    with peer(refuse) as url:
        fails_in_time(store_at(url))


@pytest.mark.parametrize(
    "reply",
    ["+OK", ":1", "*0", "*1\r\n:1", "*2\r\n:1\r\n:0", "*5" + "\r\n:1" * 5, "*3" + "\r\n+x" * 3],
)
def test_an_answer_that_makes_no_sense_is_an_error(reply: str) -> None:
    def answer(command: Command) -> Iterator[bytes]:
        yield f"{reply}\r\n".encode() if command[0] == b"EVALSHA" else b"+OK\r\n"

    with peer(answer) as url, pytest.raises(StoreError, match="answer"):
        store_at(url, timeout=5).take(HITS)


def test_an_error_that_meets_every_command_is_an_error_of_the_store() -> None:
    with peer(lambda _: iter([b"-LOADING Redis is loading the dataset in memory\r\n"])) as url:
        fails_in_time(store_at(url), match="loading")


def test_a_read_only_replica_is_an_error_and_counts_nothing(server: EmbeddedServer) -> None:
    store = store_at(server.url)
    store.take(HITS)
    with Redis.from_url(server.url) as client:
        client.replicaof("127.0.0.1", 1)
        fails_in_time(store, match=r"(?i)read ?only")
        client.replicaof("NO", "ONE")
    assert store_at(server.url, timeout=5).take(HITS).allowed
    assert counted(store) == 2


def test_a_master_that_was_demoted_is_left_when_its_address_leads_to_another(
    start_server: StartServer, tmp_path: Path
) -> None:
    """As when a name in the DNS moves to the new master while connections to the old one stay."""
    old, new = start_server(), start_server()
    address = tmp_path / "redis.sock"
    address.symlink_to(old.url.removeprefix("unix://").partition("?")[0])
    store = store_at(f"unix://{address}", timeout=5)
    assert store.take(HITS).allowed
    with Redis.from_url(old.url) as client:
        client.replicaof("127.0.0.1", 1)
    address.unlink()
    address.symlink_to(new.url.removeprefix("unix://").partition("?")[0])
    with pytest.raises(StoreError, match=r"(?i)read ?only"):
        store.take(HITS)
    assert store.take(HITS).allowed


def test_out_of_memory_is_an_error_and_counts_nothing(start_server: StartServer) -> None:
    server = start_server()
    store = store_at(server.url)
    store.take(HITS)
    with Redis.from_url(server.url) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        fails_in_time(store, match="(?i)memory")
        assert counted(store) == 1  # reading goes on
        client.config_set("maxmemory", 0)
    assert store.take(HITS).allowed


def test_too_many_clients_is_an_error(start_server: StartServer) -> None:
    server = start_server()
    with Redis.from_url(server.url) as client:
        client.config_set("maxclients", 1)
        fails_in_time(store_at(server.url), match="max number of clients|losed|reset|pipe")


# --- Signing in ---


@pytest.fixture
def guarded(server: EmbeddedServer) -> EmbeddedServer:
    with Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">app p@ss/wörd", "~sl:*", "+@all")
        client.execute_command(
            "ACL", "SETUSER", "reader", "on", ">r", "~*", "+@read", "+@connection"
        )
        client.config_set("requirepass", "sesame")
    return server


def signed_in(server: EmbeddedServer, user: str, password: str, more: str = "") -> str:
    address = server.url.removesuffix("/0")
    if address.startswith("redis://"):
        address = address.replace("//", f"//{quote(user)}:{quote(password, safe='')}@")
    else:
        more = f"username={quote(user)}&password={quote(password, safe='')}&{more}"
    return with_db(address, more)


@pytest.mark.parametrize(("user", "password"), [("default", "sesame"), ("app", "app p@ss/wörd")])
def test_signs_in_with_a_password(guarded: EmbeddedServer, user: str, password: str) -> None:
    store = store_at(signed_in(guarded, user, password), timeout=5)
    assert store.take(HITS).allowed
    assert counted(store) == 1


@pytest.mark.parametrize(
    ("user", "password"),
    [("default", "wrong"), ("app", "sesame"), ("nobody", "x"), ("reader", "r")],
)
def test_wrong_credentials_are_an_error(guarded: EmbeddedServer, user: str, password: str) -> None:
    fails_in_time(store_at(signed_in(guarded, user, password)))


def test_no_credentials_where_some_are_needed_are_an_error(guarded: EmbeddedServer) -> None:
    fails_in_time(store_at(guarded.url), match="(?i)auth")


def test_a_database_number_is_used(server: EmbeddedServer) -> None:
    url = server.url.replace("/0", "/7").replace("db=0", "db=7")
    store_at(url, timeout=5).take(HITS)
    with Redis.from_url(url) as seven, Redis.from_url(server.url) as zero:
        assert (zero.dbsize(), seven.dbsize()) == (0, 1)
    fails_in_time(store_at(server.url.replace("/0", "/99").replace("db=0", "db=99")))


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    subprocess.run(
        [
            *(need("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-keyout", f"{tmp_path}/key.pem", "-out", f"{tmp_path}/cert.pem"),
        ],
        check=True,
        capture_output=True,
    )
    return tmp_path


def test_speaks_tls_and_checks_the_certificate(certificates: Path, free_port: int) -> None:
    server = EmbeddedServer(
        need("redis-server"),  # the wheel's server is built without TLS
        [
            *("--tls-port", str(free_port), "--tls-auth-clients", "no"),
            *("--tls-cert-file", f"{certificates}/cert.pem"),
            *("--tls-key-file", f"{certificates}/key.pem"),
        ],
    )
    url = f"rediss://127.0.0.1:{free_port}/0"
    with server:
        store = store_at(f"{url}?ssl_ca_certs={certificates}/cert.pem", timeout=5)
        assert store.take(HITS).allowed
        fails_in_time(store_at(url), match="(?i)certificate")
        with Redis.from_url(server.url) as client, hung(client):
            store = store_at(f"{url}?ssl_ca_certs={certificates}/cert.pem")
            fails_in_time(store)


# --- Many callers ---


def test_300_threads_share_the_connections_and_all_are_answered(
    start_server: StartServer,
) -> None:
    server = start_server()
    changes: list[StoreError | None] = []
    breaker = Breaker(store_at(server.url, timeout=20), changes.append)
    answers = together(300, lambda: [breaker.take(HITS).allowed for _ in range(5)])
    assert answers == [[True] * 5] * 300
    assert changes == []
    with Redis.from_url(server.url) as client:
        info: Any = client.info()
        assert info["total_connections_received"] <= MOST_CONNECTIONS + 2


def test_who_found_no_free_connection_in_time_is_told_that_this_process_is_busy(
    start_server: StartServer,
) -> None:
    server = start_server()
    store = store_at(server.url, timeout=1)
    with Redis.from_url(server.url) as client, hung(client):
        answers = together(MOST_CONNECTIONS + 50, lambda: store.take(HITS))
    busy = sum(isinstance(answer, StoreBusyError) for answer in answers)
    assert all(isinstance(answer, StoreError) for answer in answers)
    # Those who waited for a connection learned nothing about the server, even where they got one
    # with no time left. The others did.
    assert 50 <= busy < len(answers)


INTERRUPTED = """
from gevent import Timeout, joinall, monkey, sleep, spawn
monkey.patch_all()
import sys
from redis import Redis
from django_slidinglimit.core import wire
from django_slidinglimit.core.stores import StoreBusyError

class Over(BaseException):
    pass

def hurried(number):
    for turn in range(60):
        try:
            with Timeout(0.0005 * ((number + turn) % 9 + 1), Over):
                while True:
                    way.run([("PING",)])
        except (Over, StoreBusyError):
            pass

def wait():
    way.run([("BLPOP", "queue", 0)])

wire.MOST_CONNECTIONS = 8
way = wire.Wire.from_url(sys.argv[1], 20)
client = Redis.from_url(sys.argv[1])
joinall([spawn(hurried, number) for number in range(40)], raise_error=True)
waiting = [spawn(wait) for _ in range(wire.MOST_CONNECTIONS)]
with Timeout(15):
    while client.info("clients")["blocked_clients"] < len(waiting):
        sleep(0.01)
    while client.info("clients")["connected_clients"] > len(waiting) + 1:
        sleep(0.01)
client.rpush("queue", *range(len(waiting)))
joinall(waiting, raise_error=True)
"""


def test_greenlets_that_are_interrupted_anywhere_leave_all_connections_to_others(
    start_server: StartServer,
) -> None:
    command = [sys.executable, "-W", "error", "-c", INTERRUPTED, start_server().url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


FORKING = """
import os, pickle, sys
from django_slidinglimit.core.redis import RedisStore
from django_slidinglimit.core.wire import Wire
HITS = pickle.load(sys.stdin.buffer)
store = RedisStore(Wire.from_url(sys.argv[1], 5))
assert store.take(HITS).allowed
children = [os.fork() for _ in range(3)]
for _ in range(50):
    assert store.take(HITS).allowed
if 0 not in children:
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
"""


def test_a_forked_process_opens_connections_of_its_own(redis_server: EmbeddedServer) -> None:
    command = [sys.executable, "-c", FORKING, redis_server.url]
    subprocess.run(command, input=pickle.dumps(HITS), check=True, timeout=60)
    assert counted(store_at(redis_server.url, timeout=5)) == 1 + 8 * 50
