"""One line of the usage pages: a client under a rule, in the words that people read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

from django.utils.formats import localize
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_slidinglimit import keeper
from django_slidinglimit.clients import PREFIXES
from django_slidinglimit.core.redis import HASHED
from django_slidinglimit.interventions import is_writable
from django_slidinglimit.usage.layout import client_member, member_client, rule_field
from django_slidinglimit.usage.standings import State

from . import charts
from .figures import number
from .hours import in_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_slidinglimit.core.decisions import Client, Rule
    from django_slidinglimit.models import Override
    from django_slidinglimit.usage.rules import RuleUsage
    from django_slidinglimit.usage.standings import Standing

    from .people import Person

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True)
class Row:
    """A client under a rule.

    Args:
        usage: the rule and its last minutes.
        standing: how the client stands with it.
        person: the user behind it, if the one who looks may know.
        override: the row of the override that holds for it.
        within, over: what it asked within the limit and over it, by the minute, oldest first.
    """

    usage: RuleUsage
    standing: Standing
    person: Person | None = None
    override: Override | None = None
    within: Sequence[int] = ()
    over: Sequence[int] = ()

    @property
    def client(self) -> Client:
        return self.standing.client

    @property
    def label(self) -> str:
        """The client in words."""
        return label(self.client, self.person)

    @property
    def kind(self) -> str:
        return kind_label(self.client.kind)

    @property
    def who(self) -> str:
        """The client in words, without its kind."""
        return who(self.client, self.person)

    @property
    def window(self) -> str:
        return duration(self.standing.rule.rate.window_ms)

    @property
    def query(self) -> str:
        """Its place in the client page's address: never in the path, which loses `..` and `//`."""
        return client_query(self.client)

    @cached_property
    def id(self) -> str:
        """An HTML id that stays the same from one refresh to the next."""
        return blake2b(self.target.encode(), digest_size=8).hexdigest()

    @property
    def target(self) -> str:
        """What the buttons of its actions send; plain ASCII whatever the identity."""
        return target(self.client, self.standing.rule)

    @property
    def overridable(self) -> bool:
        """Whether an override can be for this client on this rule."""
        return self.usage.stored is not None and is_writable(self.client)

    @property
    def ends(self) -> str:
        """What the override does that holds for it, if it is for this very client."""
        override = self.standing.override
        if override and keeper.current().overrides.is_own(override, self.client):
            return override.effect
        return ""

    @property
    def blocks(self) -> str:
        """What a button sends that blocks it: on a row's rule there, else everywhere."""
        if not is_writable(self.client):
            return ""
        return self.target if self.usage.stored else target(self.client)

    @property
    def bar(self) -> float:
        return charts.bar(self.standing.used, self.standing.rule.rate.limit)

    @property
    def picture(self) -> charts.Picture:
        return charts.picture(self.standing.rule.rate, self.standing.reading)

    @property
    def sparkline(self) -> charts.Sparkline:
        return charts.sparkline(self.within, self.over)

    @property
    def hour_title(self) -> str:
        return _("The last hour of %s") % self.label

    @property
    def hour_description(self) -> str:
        """What the sparkline shows, in words."""
        return in_words(self.within, self.over)

    @property
    def all_within(self) -> str:
        return number(sum(self.within))

    @property
    def all_over(self) -> str:
        return number(sum(self.over))

    @property
    def state_label(self) -> str:
        return state_label(self.standing.state)

    @property
    def excepted(self) -> bool:
        """Whether an override has it blocked or exempt, so that its counter plays no part."""
        return self.standing.override is not None and self.standing.override.effect != "rate"

    @property
    def left(self) -> str:
        """How many more are admitted now."""
        if self.standing.state is State.EXEMPT:
            return _("no limit")
        return localize(self.standing.left)

    @property
    def free_in(self) -> str:
        """When the next request is admitted if nothing else arrives."""
        wait = self.standing.verdict.retry_after
        if self.standing.state is State.EXEMPT:
            wait = 0
        elif self.standing.state is State.BLOCKED and self.standing.override:
            wait = self.standing.override.expires_in_ms()
        if wait is None:
            return _("never")
        return duration(wait) if wait else _("now")

    @property
    def free_at(self) -> int:
        """The same as a time, in milliseconds since 1970; 0 where no time passes until then."""
        return self.standing.free_at or 0


def state_label(state: State) -> str:
    """A state in words."""
    return {
        State.OK: _("ok"),
        State.NEAR: _("near the limit"),
        State.LIMITED: _("limited"),
        State.OBSERVED: _("over, observed"),
        State.BLOCKED: _("blocked"),
        State.EXEMPT: _("exempt"),
    }[state]


def target(client: Client, rule: Rule | None = None) -> str:
    """A client and a rule, or all of them, as one text."""
    return json.dumps([client_member(client), rule_field(rule) if rule else ""])


def read_target(text: str) -> tuple[Client, str]:
    """The client and the rule's field of such a text; "" for all rules.

    Raises:
        ValueError: it is none.
    """
    try:
        found = json.loads(text)
        if not (isinstance(found, list) and [type(part) for part in found] == [str, str]):
            raise ValueError(f"{text!r} names no client and rule.")
        member, field = found
    except RecursionError as exc:
        raise ValueError("The text is nested too deeply.") from exc
    return member_client(member), field


def client_query(client: Client) -> str:
    """A client as the query of an address."""
    return urlencode({part: encodable(value) for part, value in client._asdict().items()})


def label(client: Client, person: Person | None = None) -> str:
    """A client in words."""
    return f"{kind_label(client.kind)} {who(client, person)}"


def kind_label(kind: str) -> str:
    """A kind of clients in words."""
    if kind.startswith(HASHED):
        return _("%s, hashed") % kind.removeprefix(HASHED)
    return kind


def who(client: Client, person: Person | None = None) -> str:
    """A client in words, without its kind."""
    if person:
        return person.name
    if client.kind.startswith(PREFIXES):
        digest, tilde, tail = client.identity.partition("~")
        if tilde and tail:  # people know a secret by its end
            return legible(f"…{tail} ({digest[:6]})")
    if client.identity:
        return legible(client.identity)
    return _("all clients together") if client.kind == "global" else _("requests without identity")


def legible(text: str) -> str:
    """A text in which blanks at its ends and characters that do not print show as escapes."""
    return text if text.isprintable() and text == text.strip() else repr(text)


def encodable(text: str) -> str:
    """A text without lone surrogates, which no address can be written with."""
    return text.encode(errors="replace").decode()


def duration(milliseconds: int) -> str:
    """A time in its two greatest units, rounded up to whole seconds: "2 h 5 min"."""
    left = -(-milliseconds // 1000)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        if len(parts) == 2 or (parts and not left):
            break
    return " ".join(parts)
