"""Counters in Redis or Valkey: where they are kept, and how they are asked.

Layout: a rule's clients live in a fixed number of hash buckets, two keys a bucket, for even and odd
windows: `<prefix>{<bucket>}:<rule>:<window ms>:<0 or 1>`. Only the bucket stands in braces, so
that in a cluster all rules of one client share a slot.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from .decisions import Client, Counter, Decision, Held
from .stores import Store, StoreError, charges, decide
from .window import Reading
from .wire import Script, Wire

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from .decisions import Hit

TAKE = Script("take")
REFUND = Script("refund")
RESET = Script("reset")
RESTORE = Script("restore")

# The kind of a client whose identity is nothing but its digest, in hex, begins so.
HASHED = "hashed:"

# Of the field that a client is kept under, in bytes.
FIELD_SIZE = 8


class RedisStore(Store):
    """Counts in Redis or Valkey, in one round trip for any number of hits.

    Args:
        wire: the way to the server.
        prefix: what all keys begin with; without braces.
        buckets: hash buckets a rule; changing it hands out a fresh allowance.
        secret: the key of the digest under which clients are kept, 64 bytes at most; changing it
            hands out a fresh allowance.
    """

    def __init__(
        self, wire: Wire, *, prefix: str = "sl:", buckets: int = 16384, secret: bytes = b""
    ) -> None:
        if "{" in prefix or "}" in prefix:
            raise ValueError(f"The prefix {prefix!r} may hold no braces: they mark the bucket.")
        self.wire = wire
        self.prefix = prefix
        self._begin = f"{prefix}{{".encode()
        self._buckets = buckets
        self._secret = secret

    def take(self, hits: Sequence[Hit]) -> Decision:
        if not hits:
            return Decision()
        readings, now = self._ask(hits, [hit.cost for hit in hits])
        return decide(hits, readings, charges(hits, readings), now)

    def peek(self, hits: Sequence[Hit]) -> Decision:
        if not hits:
            return Decision()
        readings, now = self._ask(hits, [0] * len(hits))
        return decide(hits, readings, {}, now)

    def reset(self, hits: Sequence[Hit]) -> list[Held]:
        counters = list({hit.counter: None for hit in hits})
        if not counters:
            return []
        keys: list[bytes] = []
        fields: list[bytes] = []
        for counter in counters:
            even, odd, field = self.place(counter)
            keys += [even, odd]
            fields.append(field)
        reply = self.wire.script(RESET, keys, fields)
        return [
            Held(counters[int(i) - 1], int(number), int(count))
            for i, number, count in zip(*[iter(reply)] * 3, strict=True)
        ]

    def restore(self, held: Sequence[Held]) -> None:
        keys: list[bytes] = []
        args: list[bytes] = []
        for counter, number, count in held:
            *buckets, field = self.place(counter)
            keys.append(buckets[number % 2])
            args += [field, *(b"%d" % n for n in (number, counter.window_ms, count))]
        if keys:
            self.wire.script(RESTORE, keys, args)

    def refund(self, decision: Decision) -> None:
        if decision.time_ms is None:
            return
        keys: list[bytes] = []
        args: list[bytes] = []
        for counter, cost in decision.charges.items():
            number = decision.time_ms // counter.window_ms
            *buckets, field = self.place(counter)
            keys.append(buckets[number % 2])
            args += [field, b"%d" % number, b"%d" % cost]
        if keys:
            self.wire.script(REFUND, keys, args)

    def run(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        return self.wire.run(commands) if commands else []

    def _ask(self, hits: Sequence[Hit], costs: Sequence[int]) -> tuple[dict[Counter, Reading], int]:
        keys: list[bytes] = []
        args: list[bytes] = []
        indices: dict[Counter, int] = {}
        for hit in hits:
            counter = hit.counter
            if counter not in indices:
                indices[counter] = len(indices) + 1
                even, odd, field = self.place(counter)
                keys += (even, odd)
                args += (field, b"%d" % counter.window_ms)
        for hit, cost in zip(hits, costs, strict=True):
            # A cost above every limit asks the same as the least such cost, and stays exact in Lua.
            limit = hit.rule.rate.limit
            args += (
                b"%d" % indices[hit.counter],
                b"%d" % limit,
                b"%d" % min(cost, limit + 1),
                b"0" if hit.rule.observe else b"1",
            )
        return _read(self.wire.script(TAKE, keys, args), indices)

    def place(self, counter: Counter) -> tuple[bytes, bytes, bytes]:
        """The counter's keys for even and odd windows, and its field in both."""
        field = self._field(counter.client)
        bucket = int.from_bytes(field) % self._buckets
        key = b"%b%d%b" % (self._begin, bucket, _end(counter.rule, counter.window_ms))
        return key + b"0", key + b"1", field

    def _field(self, client: Client) -> bytes:
        return digest(client, self._secret)


@lru_cache(maxsize=4096)
def _end(rule: str, window_ms: int) -> bytes:
    """How the keys of a rule's buckets end, but for the window."""
    return f"}}:{rule}:{window_ms}:".encode()


@lru_cache(maxsize=4096)  # each rule of a walk asks for it
def digest(client: Client, secret: bytes) -> bytes:
    """The field that stands for a client in its bucket; of one known by it alone, the same."""
    if client.kind.startswith(HASHED):
        with suppress(ValueError):
            field = bytes.fromhex(client.identity)
            if len(field) == FIELD_SIZE:  # others are no client's, above all "w"
                return field
    # The kind's length goes first, so that no two pairs of kind and identity read alike.
    kind = client.kind.encode(errors="surrogatepass")
    identity = client.identity.encode(errors="surrogatepass")
    text = len(kind).to_bytes(4) + kind + identity
    return blake2b(text, digest_size=FIELD_SIZE, key=secret).digest()


def _read(reply: Any, counters: Collection[Counter]) -> tuple[dict[Counter, Reading], int]:
    """What take.lua tells of counters, in the order they were asked, and the time in ms."""
    if not isinstance(reply, list) or len(reply) != 1 + 2 * len(counters):
        raise StoreError(f"The server's answer for {len(counters)} counters makes no sense.")
    try:
        sum(reply)
    except TypeError as exc:
        raise StoreError(f"The server's answer to a script makes no sense: {exc}") from exc
    now, *counts = reply
    pairs = zip(counters, counts[::2], counts[1::2], strict=True)
    return {
        counter: Reading(previous, current, now % counter.window_ms)
        for counter, previous, current in pairs
    }, now
