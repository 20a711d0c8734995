"""The work once a minute, done by one of the processes, that keeps usage within its budget.

It counts the distinct clients of the minute that is over, leaves fewer clients in the one that is
no longer one of the last five, measures both, and drops what there is no room for.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.core.wire import Script

from . import processes
from .budget import MEMBER, MOST_LIMITED, OLDER_CLIENTS, RECENT, Budget
from .layout import minute_base, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from django_slidinglimit.core.stores import Store

    Command = tuple[Any, ...]

# Recorders write late: a minute is over so many milliseconds after its end.
LATE_MS = 5000
# Commands of one trip, and fields of one command.
TRIP = 50
CHUNK = 100
# Limited clients that one call of the script takes out.
TRIMMED = 250
# Rules that pages are told of because their clients were dropped, and for how long.
MOST_DROPPED = 1000
TOLD_SECONDS = 180

SETS = ("top", "asked", "over")
OWN = ("rules", "counts", "bytes", "limited", "since", "links")
# In `bytes`, in place of a rule's.
DROPPED = b"dropped"
# A member or a field, where the server does not let itself be measured.
ESTIMATE = MEMBER + 48

LIMITED = Script("usage_limited")


class Housekeeper:
    """Does the work of each minute, if no other process does."""

    def __init__(self) -> None:
        self._tried = 0
        self._may_measure = True

    def work(self, store: Store, now_ms: int) -> None:
        """Do it if it is due.

        Args:
            store: the server.
            now_ms: its time, as far as it is known without asking.

        Raises:
            StoreError: it does not answer; what is left undone is made up for in the next minute.
        """
        running = now_ms // 60_000
        if running == self._tried or now_ms % 60_000 < LATE_MS:
            return
        self._tried = running
        elected = ("SET", f"{minute_base(store.prefix, running)}housekeeper", 1, "NX", "EX", 120)
        (seconds, _), mine = store.run([("TIME",), elected])
        if mine and int(seconds) // 60 == running:
            self.keep(store, running)

    def keep(self, store: Store, running: int) -> None:
        """Do the work of a minute, and of those before it that nobody did it in."""
        house, kept = _House(store, Budget.current()), f"{store.prefix}usage:kept"
        last = whole(store.run([("GET", kept)])[0])
        fresh = range(max(last, running - house.budget.minutes) + 1, running + 1)
        over = [minute - 1 for minute in fresh]
        older = [minute - RECENT for minute in over]
        house.count_clients(over)
        house.trim(older)
        for minute in sorted({*over, *older}):
            self._measure(house, minute)
        house.drop(running)
        house.forget_processes()
        store.run([("SET", kept, running, "EX", house.budget.keep)])

    def _measure(self, house: _House, minute: int) -> None:
        if self._may_measure:
            try:
                return house.measure(minute, exactly=True)
            except StoreError:  # it may not be allowed; if the server is away, the next says so
                self._may_measure = False
        return house.measure(minute, exactly=False)


class _Kept(NamedTuple):
    """A rule's clients in one minute: how useful they are, the least first, and where they are."""

    asked: int  # the minute when the rule was last asked
    minute: int
    decisions: int
    field: bytes
    size: int


class _House:
    """The commands of it."""

    def __init__(self, store: Store, budget: Budget) -> None:
        self.budget = budget
        self._store = store

    def count_clients(self, minutes: Iterable[int]) -> None:
        """Count the distinct clients of minutes that are over."""
        for minute in minutes:
            fields = self._fields(minute)
            keys = [self._key(minute, "seen", field) for field in fields]
            counted = zip(fields, self._run([("PFCOUNT", key) for key in keys]), strict=True)
            known = [(field + b":clients", clients) for field, clients in counted if clients]
            self._run(self._setting(minute, "counts", known))
            self._run([("UNLINK", key) for key in keys])

    def trim(self, minutes: Iterable[int]) -> None:
        """Leave of minutes what older ones may have."""
        most = min(OLDER_CLIENTS, self.budget.limited)
        for minute in minutes:
            self._run(
                [
                    ("ZREMRANGEBYRANK", self._key(minute, kind, field), 0, -OLDER_CLIENTS - 1)
                    for field in self._fields(minute)
                    for kind in SETS
                ]
            )
            keys = [self._key(minute, kind) for kind in ("limited", "since")]
            trim = ("EVAL", LIMITED.source, 2, *keys, self.budget.keep, most)
            self._run([trim] * -(-MOST_LIMITED // TRIMMED))

    def measure(self, minute: int, *, exactly: bool) -> None:
        """Remember what a minute takes, and how many decisions each rule made in it."""
        fields = self._fields(minute)
        if not fields:
            return
        names = [field + what for field in fields for what in (b":allowed", b":refused", b":would")]
        counts = chain.from_iterable(
            self._run([("HMGET", self._key(minute, "counts"), *part) for part in _parts(names)])
        )
        sizes = iter(self._sizes(minute, fields, exactly))
        told: list[tuple[bytes, Any]] = []
        known = dict(self._bytes([minute]))[minute]
        for field in fields:
            size = sum(next(sizes) for _ in SETS)
            decisions = sum(whole(next(counts)) for _ in range(3))
            dropped = known.get(field) == DROPPED and not size
            told.append((field, DROPPED if dropped else f"{size} {decisions}"))
        told.append((b"own", sum(self._own_sizes(minute, len(fields), exactly))))
        self._run([("HDEL", self._key(minute, "bytes"), "sum")])
        self._run(self._setting(minute, "bytes", told))

    def drop(self, running: int) -> None:
        """Drop clients until the minutes that are over fit, the least recently useful first.

        A rule that was last asked long ago goes before others; of one rule the oldest minutes do.
        """
        minutes = range(running - self.budget.minutes, running)
        asked = dict.fromkeys(self._fields(running), running)
        own: dict[int, int] = {}
        sizes: list[tuple[int, bytes, int, int]] = []
        dropped: Counter[bytes] = Counter()
        for minute, reply in self._bytes(minutes):
            for field, value in reply.items():
                if field == b"own":
                    own[minute] = whole(value)
                elif value == DROPPED:
                    dropped[field] += 1
                elif field != b"sum":
                    size, _, decisions = value.partition(b" ")
                    sizes.append((minute, field, whole(size), whole(decisions)))
                    asked[field] = max(minute, asked.get(field, 0))
        kept = sorted(_Kept(asked[f], m, decisions, f, size) for m, f, size, decisions in sizes)
        total = sum(own.values()) + sum(entry.size for entry in kept)
        commands: list[Command] = []
        for entry in kept:
            if total > self.budget.over and entry.size:
                keys = [self._key(entry.minute, kind, entry.field) for kind in SETS]
                commands.append(("UNLINK", *keys))
                commands += self._setting(entry.minute, "bytes", [(entry.field, DROPPED)])
                dropped[entry.field] += 1
                total -= entry.size
        for minute in sorted(own):  # the counts of a day may take more than there is
            if total > self.budget.over and minute < running - RECENT:
                commands.append(("UNLINK", *(self._key(minute, kind) for kind in OWN)))
                total -= own[minute]
        self._run(commands)
        self._tell(dropped)

    def forget_processes(self) -> None:
        """Drop what processes said that are gone."""
        key = processes.key(self._store.prefix)
        (seconds, _), reply = self._store.run([("TIME",), ("HGETALL", key)])
        for part in _parts(processes.gone(reply, int(seconds) * 1000)):
            self._store.run([("HDEL", key, *part)])

    def _tell(self, dropped: Counter[bytes]) -> None:
        key = f"{self._store.prefix}usage:dropped"
        told = [("HSET", key, *pair) for pair in dropped.most_common(MOST_DROPPED)]
        self._run([("UNLINK", key), *told, ("EXPIRE", key, TOLD_SECONDS)])

    def _sizes(self, minute: int, fields: Sequence[bytes], exactly: bool) -> list[int]:
        keys = [self._key(minute, kind, field) for field in fields for kind in SETS]
        if exactly:
            return [size or 0 for size in self._run([("MEMORY", "USAGE", key) for key in keys])]
        return [card * ESTIMATE for card in self._run([("ZCARD", key) for key in keys])]

    def _own_sizes(self, minute: int, rules: int, exactly: bool) -> list[int]:
        keys = [self._key(minute, kind) for kind in OWN]
        if exactly:
            return [size or 0 for size in self._run([("MEMORY", "USAGE", key) for key in keys])]
        sets = self._run([("ZCARD", key) for key in keys[3:]])
        return [card * ESTIMATE for card in (*sets, 6 * rules)]

    def _fields(self, minute: int) -> list[bytes]:
        found: list[bytes] = self._run([("HKEYS", self._key(minute, "rules"))])[0]
        return found

    def _bytes(self, minutes: Sequence[int]) -> Iterator[tuple[int, dict[bytes, bytes]]]:
        replies = self._run([("HGETALL", self._key(minute, "bytes")) for minute in minutes])
        for minute, reply in zip(minutes, replies, strict=True):
            yield minute, dict(zip(reply[::2], reply[1::2], strict=True))

    def _setting(
        self, minute: int, kind: str, fields: Sequence[tuple[bytes, Any]]
    ) -> list[Command]:
        """What sets fields of a minute's hash, which may just have expired."""
        key = self._key(minute, kind)
        parts = _parts(fields)
        commands = [("HSET", key, *chain.from_iterable(part)) for part in parts]
        return [*commands, ("EXPIRE", key, self.budget.keep)] if commands else []

    def _key(self, minute: int, kind: str, field: bytes = b"") -> bytes:
        key = f"{minute_base(self._store.prefix, minute)}{kind}".encode()
        return key + b":" + field if field else key

    def _run(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands, in trips that are short."""
        replies: list[Any] = []
        for start in range(0, len(commands), TRIP):
            replies += self._store.run(commands[start : start + TRIP])
        return replies


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), CHUNK):
        yield values[start : start + CHUNK]
