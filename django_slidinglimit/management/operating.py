"""What an operator does about clients in a shell."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.utils import timezone

from django_slidinglimit import interventions
from django_slidinglimit.core.decisions import Hit
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.errors import SettingError
from django_slidinglimit.usage import client as client_usage

from . import history, looking, tables
from .arguments import client_named, in_words, rule_named, time, whole

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from django.core.management.base import BaseCommand

    from django_slidinglimit.core.decisions import Client
    from django_slidinglimit.interventions import Change


def add_arguments(actions: Any, command: BaseCommand) -> None:
    """Add what can be done to the command's actions."""

    def action(name: str, told: str, run: Callable[..., None]) -> ArgumentParser:
        parser: ArgumentParser = actions.add_parser(
            name, help=told, description=f"{told.capitalize()}."
        )
        parser.set_defaults(run=partial(_run, run, command))
        parser.add_argument(
            "--json", dest="as_json", action="store_true", help="print JSON instead of a table"
        )
        return parser

    def about_one(name: str, told: str, run: Callable[..., None]) -> ArgumentParser:
        parser = action(name, told, run)
        parser.add_argument("kind", help="what is counted: user, ip, header:x-api-key and so on")
        parser.add_argument(
            "identity", help="a user's name or primary key, an address, what stands in the header"
        )
        return parser

    top = action("top", "list who uses most of the limits, and who is refused", looking.top)
    top.add_argument("--rule", metavar="RULE", help="of this rule alone, by its name")
    top.add_argument("--limited", action="store_true", help="only who was refused in this minute")
    top.add_argument(
        "--count", type=whole, default=10, metavar="N", help="how many clients (default: 10)"
    )
    about_one("client", "tell everything about one client", looking.one)
    reset = about_one("reset", "have one client start afresh", _reset)
    block = about_one("block", "refuse one client's requests for a time", _block)
    unblock = about_one("unblock", "end the blocks of one client", _unblock)
    block.add_argument(
        "--for", dest="time", type=time, required=True, metavar="TIME",
        help="how long, such as 10m, 1h, 1d or 2w",
    )  # fmt: skip
    block.add_argument("--reason", default="", help="why; the client does not hear of it")
    for parser in (reset, block, unblock):
        parser.add_argument("--rule", metavar="RULE", help="on this rule alone, by its name")
        parser.add_argument(
            "--user", metavar="NAME", help="who does it, for the admin's history (default: none)"
        )


def _run(run: Callable[..., None], command: BaseCommand, **options: Any) -> None:
    try:
        run(command, **options)
    except StoreError as exc:
        raise CommandError(f"Redis does not answer: {exc}") from exc
    except SettingError as exc:
        raise CommandError(str(exc)) from exc


def _reset(
    command: BaseCommand,
    *,
    kind: str,
    identity: str,
    rule: str | None,
    user: str | None,
    as_json: bool,
    **_: Any,
) -> None:
    person = history.person(user)
    client = client_named(command, kind, identity)
    under = client_usage.of_client(client, most=None).rules
    if rule is not None:
        under = [u for u in under if rule in (u.usage.rule.name, u.usage.rule.id)]
    rules = [found.standing.rule for found in under]
    interventions.reset([Hit(found, client) for found in rules])
    if person is not None:
        history.write_counts(person, rules, f"Reset {in_words(client)}.")
    names = [found.name for found in rules]
    told = f"{in_words(client)} starts afresh on {', '.join(map(tables.shown, names))}."
    if not rules:
        told = f"Nothing is counted of {in_words(client)}{f' on {rule}' if rule else ''}."
    tables.write(command, as_json, {"client": client._asdict(), "rules": names}, [told])


def _block(
    command: BaseCommand,
    *,
    kind: str,
    identity: str,
    rule: str | None,
    time: timedelta,
    reason: str,
    user: str | None,
    as_json: bool,
    **_: Any,
) -> None:
    person = history.person(user)
    client = client_named(command, kind, identity)
    row = rule_named(rule)
    expires = timezone.now().replace(microsecond=0) + time
    try:
        changes = interventions.override(
            client, "block", expires, rule=row.pk if row else None, reason=reason, user=person
        )
    except (ValidationError, ValueError) as exc:
        raise CommandError(" ".join(getattr(exc, "messages", [str(exc)]))) from exc
    if person is not None:
        history.write_changes(person, changes)
    where = tables.shown(row.name) if row else "all rules"
    told = f"{in_words(client)} is blocked on {where} until {tables.moment(expires.timestamp())}."
    tables.write(command, as_json, _changed(client, changes), [told])


def _unblock(
    command: BaseCommand,
    *,
    kind: str,
    identity: str,
    rule: str | None,
    user: str | None,
    as_json: bool,
    **_: Any,
) -> None:
    person = history.person(user)
    client = client_named(command, kind, identity)
    row = rule_named(rule)
    changes = interventions.end(client, "block", row.pk if row else None)
    if person is not None:
        history.write_changes(person, changes)
    told = f"{in_words(client)} is not blocked any more{f' on {rule}' if rule else ''}."
    if not changes:
        told = f"No block of its own holds for {in_words(client)}{f' on {rule}' if rule else ''}."
    tables.write(command, as_json, _changed(client, changes), [told])


def _changed(client: Client, changes: Iterable[Change]) -> dict[str, Any]:
    return {
        "client": client._asdict(),
        "overrides": [
            {
                "id": row.pk,
                "rule": row.rule.name if row.rule else None,
                "effect": row.effect,
                "expires": row.expires and row.expires.timestamp(),
                "ended": was is not None,
            }
            for row, was in changes
        ],
    }
