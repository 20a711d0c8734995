"""Counts decisions in memory and writes them to Redis once a second, for the usage pages.

The request path only adds to a dict. What a killed process loses is its last second's statistics,
never a decision.

Keys, all under `<prefix>usage:<minute>:` (minutes since 1970 by Redis TIME), gone after an hour:
`rules` a hash: a rule's field (see `rule_field`) -> its name; `counts` a hash: "<field>:allowed",
":refused", ":would" -> how many; `top:<field>` a sorted set: client -> the counter's own value.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from django.core.signals import setting_changed

from django_slidinglimit import conf, connections
from django_slidinglimit.core.decisions import Client, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.core.window import used

if TYPE_CHECKING:
    from django_slidinglimit.core.decisions import Answer, Decision
    from django_slidinglimit.core.window import Reading

logger = logging.getLogger("django_slidinglimit")

FLUSH_SECONDS = 1.0
KEEP_SECONDS = 3600
# Busiest clients kept a rule and minute, here and in Redis.
MOST_CLIENTS = 1000
# Rules kept between two flushes: a rate of the project's own making may differ with every client.
MOST_RULES = 500


def rule_field(rule: Rule) -> str:
    """How a rule stands in the keys: with its rate, since one place may have several."""
    mode = "observe" if rule.observe else "enforce"
    return f"{rule.id}:{rule.rate.limit}:{rule.rate.window_ms}:{mode}"


def field_rule(field: str, name: str = "") -> Rule:
    """The rule of a field.

    Raises:
        ValueError: the text is no rule's field.
    """
    rule_id, limit, window_ms, mode = field.split(":")
    if not (rule_id.isalnum() and rule_id.isascii()) or mode not in ("observe", "enforce"):
        raise ValueError(f"{field!r} is no rule.")
    return Rule(rule_id, Rate(int(limit), int(window_ms)), name, observe=mode == "observe")


def client_member(client: Client) -> str:
    """How a client stands in the sorted sets: JSON of its kind and identity."""
    return json.dumps([client.kind, client.identity], separators=(",", ":"))


def member_client(member: bytes | str) -> Client:
    """The client of a sorted set's member.

    Raises:
        ValueError: the text is no member.
    """
    found = json.loads(member)
    if not isinstance(found, list) or len(found) != 2:
        raise ValueError(f"{member!r} is no client.")
    return Client(*map(str, found))


def minute_base(prefix: str, minute: int) -> str:
    """What the keys of a minute begin with."""
    return f"{prefix}usage:{minute}:"


class Recorder:
    """This process's tally since the last flush."""

    def __init__(self) -> None:
        self._tally: dict[tuple[int, Rule], _Minute] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._lock = threading.Lock()  # never held across a trip

    def record(self, decision: Decision) -> None:
        """Add a decision to the tally."""
        if decision.time_ms is None:
            return
        minute = decision.time_ms // 60_000
        allowed = decision.allowed
        with self._lock:
            for answer in decision.answers:
                if answer.reading is None:
                    continue
                rule = answer.hit.rule
                tally = self._tally.get((minute, rule))
                if tally is None:
                    if len(self._tally) >= MOST_RULES:
                        continue
                    tally = self._tally[minute, rule] = _Minute()
                tally.add(answer, answer.reading, allowed)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="slidinglimit-usage", daemon=True
                )
                self._thread.start()

    def flush(self) -> None:
        """Write the tally to Redis in one pipeline, and begin a new one.

        Raises:
            StoreError: Redis does not answer; this tally is lost.
        """
        with self._lock:
            tally, self._tally = self._tally, {}
        store = connections.store()
        commands: list[tuple[Any, ...]] = []
        for (minute, rule), counts in tally.items():
            base = minute_base(store.prefix, minute)
            field = rule_field(rule)
            commands.append(("HSET", f"{base}rules", field, rule.name))
            for what in ("allowed", "refused", "would"):
                if getattr(counts, what):
                    count = getattr(counts, what)
                    commands.append(("HINCRBY", f"{base}counts", f"{field}:{what}", count))
            top = f"{base}top:{field}"
            scored = [x for c, value in counts.clients.items() for x in (value, client_member(c))]
            commands.append(("ZADD", top, "GT", *scored))
            commands.append(("ZREMRANGEBYRANK", top, 0, -MOST_CLIENTS - 1))
            commands += [
                ("EXPIRE", key, KEEP_SECONDS) for key in (f"{base}rules", f"{base}counts", top)
            ]
        store.run(commands)

    def stop(self) -> None:
        """End the thread; the next decision starts another."""
        self._thread = None
        self._wake.set()

    def _run(self) -> None:
        me = threading.current_thread()
        while me is self._thread:
            self._wake.wait(FLUSH_SECONDS)
            self._flush_quietly()

    def _flush_quietly(self) -> None:
        try:
            self.flush()
        except StoreError:
            pass  # the breaker has told of it; the counts of a second are lost
        except Exception:
            logger.exception("Recording usage failed.")


class _Minute:
    """One rule's decisions in one minute."""

    __slots__ = ("allowed", "clients", "refused", "would")

    def __init__(self) -> None:
        self.allowed = 0
        self.refused = 0
        self.would = 0
        self.clients: dict[Client, int] = {}

    def add(self, answer: Answer, reading: Reading, allowed: bool) -> None:
        """Count an answer of a decision that was allowed or not."""
        if not answer.verdict.allowed:
            if allowed:
                self.would += 1
            else:
                self.refused += 1
        elif allowed:
            self.allowed += 1
        client = answer.hit.client
        value = used(answer.hit.rule.rate, reading) + answer.charged
        if client in self.clients:
            self.clients[client] = max(value, self.clients[client])
        elif len(self.clients) < MOST_CLIENTS:
            self.clients[client] = value


recorder = Recorder()


def record(decision: Decision) -> None:
    """Count a decision, unless the setting USAGE is False."""
    if conf.current().USAGE:
        recorder.record(decision)


def flush() -> None:
    """Write what was counted so far."""
    recorder.flush()


def _after_fork() -> None:
    """Threads do not survive a fork; what the parent counted is the parent's to write."""
    global recorder
    recorder = Recorder()


def _forget(*, setting: str, **_: object) -> None:
    global recorder
    if setting in ("CACHES", "SLIDINGLIMIT", "SECRET_KEY"):
        recorder.stop()
        recorder = Recorder()


setting_changed.connect(_forget)
atexit.register(lambda: recorder._flush_quietly())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
