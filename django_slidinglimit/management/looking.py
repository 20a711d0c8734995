"""Looking at clients in a shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.utils import timezone

from django_slidinglimit.usage import busiest, overview
from django_slidinglimit.usage import client as client_usage
from django_slidinglimit.usage.busiest import Wanted

from . import tables
from .arguments import client_named, in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.core.management.base import BaseCommand

    from django_slidinglimit.overrides import Override
    from django_slidinglimit.usage.rules import RuleUsage
    from django_slidinglimit.usage.standings import Standing

# Rules whose clients `top` looks through, those asked most.
MOST_RULES = 50
NUMBERS = ("USED", "LIMIT", "LEFT", "REFUSED")


def top(
    command: BaseCommand, *, rule: str | None, limited: bool, count: int, as_json: bool, **_: Any
) -> None:
    """List who uses most of the limits, or who is refused."""
    found = overview.overview()
    rules = [hour for hour in found.rules if rule in (None, hour.usage.rule.name, hour.key)]
    if rule is not None and not rules:
        raise CommandError(f"No rule {rule!r} was asked in the last hour.")
    if limited:
        names = {hour.usage.rule.name for hour in rules}
        lines = [
            _standing(refused.usage, refused.standing)
            | {"refused": refused.times, "since": refused.since_ms / 1000}
            for refused in found.limited.clients
            if refused.usage.rule.name in names
        ]
    else:
        lines = [
            _standing(hour.usage, line.standing) | {"refused": sum(line.over)}
            for hour in rules[:MOST_RULES]
            for line in busiest.of_rule(hour.key, Wanted()).lines
        ]
        lines.sort(key=lambda line: (-line["used"] / (line["limit"] or 1), -line["refused"]))
    tables.write(command, as_json, {"clients": lines[:count]}, _table(lines[:count], since=limited))
    if not lines and not as_json:
        told = "Nobody was refused in the last minute." if limited else "Nobody asked lately."
        command.stdout.write(told)


def one(command: BaseCommand, *, kind: str, identity: str, as_json: bool, **_: Any) -> None:
    """Tell everything about one client."""
    client = client_named(command, kind, identity)
    found = client_usage.of_client(client, most=None)
    everywhere = client_usage.override_everywhere(client)
    lines = [
        _standing(under.usage, under.standing)
        | {
            "refused": sum(under.over),
            "since": under.since_ms and under.since_ms / 1000,
            "within": under.within,
            "over": under.over,
        }
        for under in found.rules
    ]
    told: list[str] = [in_words(client)]
    if everywhere is not None:
        told.append(f"Under every rule without another override: {_effect(everywhere)}")
    if found.others:
        told.append(f"Seen in one request with it: {', '.join(map(in_words, found.others))}")
    if lines:
        told += ["", *_table(lines, override=True)]
    else:
        told.append("No rule has counted it in the last hour.")
    value = {
        "client": client._asdict(),
        "override": _override(everywhere),
        "others": [other._asdict() for other in found.others],
        "rules": lines,
    }
    tables.write(command, as_json, value, told)


def _standing(usage: RuleUsage, standing: Standing) -> dict[str, Any]:
    """A client under a rule; times in seconds since 1970, 0: now, None: never."""
    free = standing.free_at
    return {
        "rule": usage.rule.name,
        "rate": str(standing.rule.rate),
        "client": standing.client._asdict(),
        "state": standing.state.value,
        "used": standing.used,
        "limit": standing.rule.rate.limit,
        "left": standing.left,
        "free": free and free / 1000,
        "override": _override(standing.override),
    }


def _override(override: Override | None) -> dict[str, Any] | None:
    if override is None:
        return None
    return {
        "id": override.pk,
        "effect": override.effect,
        "rate": str(override.rate) if override.rate else None,
        "expires": override.expires,
    }


def _effect(override: Override) -> str:
    what = str(override.rate) if override.rate else override.effect
    if override.expires is None:
        return f"{what}, without an end"
    return f"{what} until {tables.moment(override.expires)}"


def _table(
    found: Sequence[dict[str, Any]], *, since: bool = False, override: bool = False
) -> Iterator[str]:
    now = timezone.now().timestamp()
    head = ["RULE", "RATE", "CLIENT", "STATE", "USED", "LIMIT", "LEFT", "REFUSED", "FREE IN"]
    head += ["SINCE"] * since + ["OVERRIDE"] * override
    rows = []
    for line in found:
        free = line["free"]
        row = [
            line["rule"],
            line["rate"],
            f"{line['client']['kind']} {line['client']['identity']}".rstrip(),
            line["state"],
            *(str(line[name]) for name in ("used", "limit", "left", "refused")),
            "never" if free is None else f"{max(0, round(free - now))} s" if free else "now",
        ]
        if since:
            row.append(tables.moment(line["since"]))
        if override:
            held = line["override"]
            row.append((held["rate"] or held["effect"]) if held else "")
        rows.append(row)
    return tables.lines(head, rows, NUMBERS) if rows else iter(())
