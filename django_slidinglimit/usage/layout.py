"""How usage stands in Redis: the names of keys, and what stands for rules and clients there.

All keys begin with `<prefix>usage:`. Those of a minute, `{<minute>}:` (minutes since 1970 by Redis
TIME), expire after an hour, or as the setting USAGE_KEEP says. The braces put them in one slot of a
cluster, so that a script may write several:

| key | kind | what |
|---|---|---|
| `rules` | hash | a rule's field (see `rule_field`) -> its name |
| `counts` | hash | `<field>:allowed`, `:refused`, `:would` -> decisions; `:clients` -> how many |
| `seen:<field>` | HyperLogLog | the rule's clients, counted when the minute is over |
| `top:<field>` | sorted set | clients by the counter's own value |
| `asked:<field>` | sorted set | clients by what they asked; a request of cost 3 asks for 3 |
| `over:<field>` | sorted set | clients by what of that was over the limit |
| `limited` | sorted set | clients under rules (see `limited_member`) by refusals |
| `since` | sorted set | the same by when that began, in milliseconds since 1970 |
| `links` | sorted set | clients of one request (see `link_member`), all at 0 |
| `bytes` | hash | what the above take in bytes (see housekeeping.py) |
| `housekeeper` | string | set by the process that does the work of the minute |

And not of a minute: `processes`, a hash of what each process last said of itself (processes.py);
`dropped`, a hash: rules' fields -> how many minutes' clients were dropped for lack of room; and
`kept`, the last minute whose work was done (housekeeping.py).

With the setting USAGE_HASHED, members hold clients as `clients.hashed` gives them. Who asks for a
client by its member need not care: the members of the one and of the other are the same then.
"""

from __future__ import annotations

import json
from dataclasses import replace
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING

from django_slidinglimit import clients, conf
from django_slidinglimit.core.decisions import Client, Rule
from django_slidinglimit.core.rates import Rate

if TYPE_CHECKING:
    from collections.abc import Sequence


# No count and no time is so great: beyond it a score is not exact.
GREATEST = 2**53


def rule_field(rule: Rule) -> str:
    """How a rule stands in the keys: with its rate, since one place may have several."""
    mode = "observe" if rule.observe else "enforce"
    return f"{rule.id}:{rule.rate.limit}:{rule.rate.window_ms}:{mode}"


def usage_field(rule: Rule) -> str:
    """The field that a rule's usage is kept under: its own rate's, also for exceptions to it."""
    return rule_field(rule if rule.own_rate is None else replace(rule, rate=rule.own_rate))


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
    return _json(_kept(client))


def member_client(member: bytes | str) -> Client:
    """The client of a sorted set's member.

    Raises:
        ValueError: the text is no member.
    """
    kind, identity = _texts(member, 2)
    return Client(kind, identity)


def known_client(member: bytes) -> Client | None:
    """The same; None for what others wrote there."""
    try:
        return member_client(member)
    except ValueError:
        return None


def whole(score: bytes | str | None) -> int:
    """A count or a time; 0 where there is none, and for what others wrote there."""
    try:
        number = float(score or 0)
    except ValueError:
        return 0
    return int(number) if 0 <= number < GREATEST else 0


def minute_base(prefix: str, minute: int) -> str:
    """What the keys of a minute begin with."""
    return f"{prefix}usage:{{{minute}}}:"


def limited_member(field: str, client: Client) -> str:
    """How a client under a rule stands where clients of all rules are together."""
    return _json((field, *_kept(client)))


def member_limited(member: bytes | str) -> tuple[str, Client]:
    """The rule's field and the client of such a member.

    Raises:
        ValueError: the text is no such member.
    """
    field, kind, identity = _texts(member, 3)
    return field, Client(kind, identity)


def link_member(client: Client, other: Client) -> str:
    """How it stands that two clients were seen in one request: once from each side.

    All that are linked to a client begin with its own member and a space.
    """
    return f"{client_member(client)} {client_member(other)}"


def linked(client: Client, member: bytes) -> Client | None:
    """The other client of such a member; None for what others wrote there."""
    return known_client(member[len(client_member(client)) + 1 :])


def _kept(client: Client) -> Client:
    return clients.hashed(client) if conf.current().USAGE_HASHED else client


def _texts(member: bytes | str, many: int) -> list[str]:
    """So many texts of a member's JSON, of which the last but one is a kind of clients.

    Raises:
        ValueError: it has others, or a kind that no page can hold.
    """
    try:
        found = json.loads(member)
    except RecursionError as exc:
        raise ValueError("The text is nested too deeply.") from exc
    if not isinstance(found, list) or len(found) != many:
        raise ValueError(f"{member!r} is no member.")
    texts = [str(each) for each in found]
    texts[-2].encode()  # pages show it as it is: no lone surrogates
    return texts


def _json(texts: Sequence[str]) -> str:
    # A flush in a flood has ten thousand of them; json.dumps takes four times as long.
    return f"[{','.join(map(encode_basestring_ascii, texts))}]"
