"""A cluster of real servers, whose slots a test can move."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from redis import Redis

from django_slidinglimit.core.cluster import SLOTS, slot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import StartServer

LOCAL = "127.0.0.1"
# Where each node listens for the others: its port and so much.
BUS = 10_000


class Cluster:
    """Three masters, each with a third of the slots.

    Args:
        start: starts a server.
    """

    def __init__(self, start: StartServer) -> None:
        self.servers = [
            start("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", port=port)
            for port in _free_ports(3)
        ]
        self.nodes: list[Any] = [Redis(LOCAL, server.port) for server in self.servers]
        for i, node in enumerate(self.nodes):
            node.execute_command("CLUSTER", "ADDSLOTS", *_share(i))
        for server in self.servers[1:]:
            self.nodes[0].execute_command("CLUSTER", "MEET", LOCAL, server.port)
        self._wait_until_all_agree()
        self.ids = [node.execute_command("CLUSTER", "MYID").decode() for node in self.nodes]

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def url(self, node: int = 0) -> str:
        return self.servers[node].url

    def owner(self, key: bytes) -> int:
        """Which node has a key's slot, as the slots were shared out."""
        return next(i for i in range(3) if slot(key) in _share(i))

    def begin_move(self, where: int, source: int, target: int) -> None:
        """Have a slot be on its way from one node to another; its keys still lie at the first."""
        self._set_slot(target, where, "IMPORTING", source)
        self._set_slot(source, where, "MIGRATING", target)

    def move_key(self, key: bytes, source: int, target: int) -> None:
        port = self.servers[target].port
        self.nodes[source].execute_command("MIGRATE", LOCAL, port, key, 0, 5000)

    def end_move(self, where: int, target: int) -> None:
        for node in range(3):
            self._set_slot(node, where, "NODE", target)

    def keys(self, node: int) -> list[bytes]:
        found: list[bytes] = self.nodes[node].keys("*")
        return found

    def connections(self, node: int) -> int:
        """How many connections a node has taken so far."""
        opened: int = self.nodes[node].info("stats")["total_connections_received"]
        return opened

    def _set_slot(self, node: int, where: int, what: str, other: int) -> None:
        self.nodes[node].execute_command("CLUSTER", "SETSLOT", where, what, self.ids[other])

    def _wait_until_all_agree(self) -> None:
        deadline = time.monotonic() + 60
        while not all(_is_up(node) for node in self.nodes):
            assert time.monotonic() < deadline, "the cluster does not come up"
            time.sleep(0.05)


def _share(node: int) -> range:
    return range(SLOTS * node // 3, SLOTS * (node + 1) // 3)


def _is_up(node: Any) -> bool:
    info = node.execute_command("CLUSTER", "INFO")
    text = info.decode() if isinstance(info, bytes) else str(info)
    slots = node.execute_command("CLUSTER", "SLOTS")
    return "ok" in text.split("cluster_slots")[0] and len(slots) == 3


def _free_ports(count: int) -> Iterator[int]:
    """Ports that are free, with those that their nodes take besides."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.create_server((LOCAL, 0)))
            port = probe.getsockname()[1]
            if port + BUS > 65_535:
                continue
            try:
                held.enter_context(socket.create_server((LOCAL, port + BUS)))
            except OSError:
                continue
            found.append(port)
    yield from found
