"""The way to a cluster: which node has which slot, and what to do when a slot moves.

(The protocol: Redis cluster specification, "Redirection and resharding".) A command that a node
answers with MOVED, ASK or TRYAGAIN was not executed, so that sending it again is safe.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from redis.crc import key_slot
from redis.exceptions import AskError, ClusterCrossSlotError, MovedError

from .pool import pool_of_node
from .stores import StoreError
from .wire import REDIRECTIONS, ElsewhereError, Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .wire import Script

    Address = tuple[str, int]

SLOTS = 16_384
# While a slot's keys lie on two nodes a script has to wait; so long between tries, in seconds.
TRY_AGAIN = 0.005
# Where a command's key stands, if it is not the second word; 0: it has none.
_KEY_AT = {"TIME": 0, "INFO": 0, "MEMORY": 2, "EVAL": 3, "EVALSHA": 3}


def slot(key: bytes | str) -> int:
    """The slot that a key lies in."""
    found: int = key_slot(key if isinstance(key, bytes) else key.encode())
    return found


class ClusterWire(Wire):
    """A way to each node of a cluster, found by slot.

    Args:
        first: the way to one of the nodes; the others are asked in the same manner.
    """

    def __init__(self, first: Wire) -> None:
        super().__init__(first.pool, first.timeout)
        self._first = first
        self._wires: dict[Address, Wire] = {}
        self._nodes: list[Address] = []  # by slot
        self._stale = True

    def script(
        self, script: Script, keys: Sequence[bytes], args: Sequence[bytes], *, asking: bool = False
    ) -> Any:
        """Run a script whose keys all lie in one slot; waits for a slot that is on its way."""
        where = slot(keys[0])
        wire, deadline = self._of(where), time.monotonic() + self.timeout
        while True:
            try:
                return wire.script(script, keys, args, asking=asking)
            except ElsewhereError as error:
                wire, asking = self._elsewhere(error, where, deadline)
            except StoreError:
                self._stale = True  # a replica may have taken over
                raise

    def replies(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Run plain commands, those of one node in one round trip; errors in place of replies.

        Those without a key are asked of the node that is asked first.
        """
        slots = [_slot_of(command) for command in commands]
        usual = next((found for found in slots if found is not None), 0)
        places = [usual if found is None else found for found in slots]
        parts: dict[Wire, list[int]] = {}
        for i, place in enumerate(places):
            parts.setdefault(self._of(place), []).append(i)
        found: list[Any] = [None] * len(commands)
        deadline = time.monotonic() + self.timeout
        for wire, part in parts.items():
            try:
                answered = wire.replies([commands[i] for i in part])
            except StoreError:
                self._stale = True
                raise
            for i, reply in zip(part, answered, strict=True):
                found[i] = self._settled(commands[i], reply, places[i], deadline)
        return found

    def run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """As `replies`; raises if any of them failed."""
        found = self.replies(commands)
        for reply in found:
            if isinstance(reply, Exception):
                raise StoreError(f"{type(reply).__name__}: {reply}") from reply
        return found

    def _settled(self, command: tuple[Any, ...], reply: Any, where: int, deadline: float) -> Any:
        """A command's reply, asked for wherever it was redirected to."""
        while isinstance(reply, REDIRECTIONS):
            wire, asking = self._elsewhere(ElsewhereError(reply), where, deadline)
            *_, reply = wire.replies([("ASKING",)] * asking + [command])
        return reply

    def _elsewhere(self, error: ElsewhereError, where: int, deadline: float) -> tuple[Wire, bool]:
        """Which node to ask instead, and whether it has to be told that it may be asked."""
        reply = error.reply
        if time.monotonic() >= deadline or isinstance(reply, ClusterCrossSlotError):
            raise error
        if isinstance(reply, AskError):  # a MovedError is one, too
            moved = isinstance(reply, MovedError)
            wire = self._at((reply.host or self._of(where).host, reply.port))
            self._stale |= moved  # else it is for this once
            return wire, not moved
        time.sleep(TRY_AGAIN)
        return self._of(where), False

    def _of(self, where: int) -> Wire:
        """The way to the node that has a slot."""
        if self._stale:
            self._learn()
        return self._at(self._nodes[where])

    def _at(self, address: Address) -> Wire:
        wire = self._wires.get(address)
        if wire is None:
            wire = self._wires[address] = Wire(pool_of_node(self.pool, *address), self.timeout)
        return wire

    def _learn(self) -> None:
        """Ask which node has which slot, of the first node that knows."""
        failure = StoreError("No node of the cluster answers.")
        for address, wire in (*list(self._wires.items()), (None, self._first)):
            try:
                [ranges] = wire.run([("CLUSTER", "SLOTS")])
                self._nodes = _nodes(ranges, wire.host)
            except StoreError as error:
                failure = error
                if address is not None:  # to be asked last from now on
                    self._wires[address] = self._wires.pop(address, wire)
            else:
                self._stale = False
                return
        raise failure


def _nodes(ranges: Sequence[Any], asked: str) -> list[Address]:
    """The masters by slot, from the reply to CLUSTER SLOTS.

    Args:
        ranges: the reply.
        asked: the host that gave it: a node that does not know its own address leaves it out.

    Raises:
        StoreError: a slot is nobody's.
    """
    found: dict[int, Address] = {}
    for first, last, (host, port, *_), *_ in ranges:
        address = (host.decode() if host else asked, port)
        found.update(dict.fromkeys(range(first, last + 1), address))
    if len(found) < SLOTS:
        raise StoreError(f"{SLOTS - len(found)} slots of the cluster are on no node.")
    return [found[number] for number in range(SLOTS)]


def _slot_of(command: tuple[Any, ...]) -> int | None:
    at = _KEY_AT.get(str(command[0]), 1)
    return slot(command[at]) if 0 < at < len(command) else None
