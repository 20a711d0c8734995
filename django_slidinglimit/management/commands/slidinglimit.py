"""`manage.py slidinglimit`: what an operator does in a shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from django_slidinglimit import exchange
from django_slidinglimit.documents import InvalidFileError
from django_slidinglimit.loading import database
from django_slidinglimit.management import history, operating

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    help = "Looks at and helps the clients of rate limits; exports and imports the rules."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        told = "write all rules, and the overrides that have not expired, as JSON"
        export = actions.add_parser("export", help=told, description=f"{told.capitalize()}.")
        export.set_defaults(run=self.export)
        export.add_argument(
            "file", nargs="?", default="-", help="where to (default: -, standard output)"
        )
        told = "read what export has written into the database, all of it or nothing"
        load = actions.add_parser("import", help=told, description=f"{told.capitalize()}.")
        load.set_defaults(run=self.load)
        load.add_argument("file", help="the file; -: standard input")
        load.add_argument(
            "--prune", action="store_true", help="delete the rows that are not in the file"
        )
        load.add_argument(
            "--dry-run", action="store_true", help="print what would change and write nothing"
        )
        load.add_argument(
            "--user", metavar="NAME", help="who does it, for the admin's history (default: none)"
        )
        operating.add_arguments(actions, self)

    def handle(self, *, run: Any, **options: Any) -> None:
        run(**options)

    def export(self, *, file: str, **_: Any) -> None:
        text = exchange.dumps()
        if file == "-":
            self.stdout.write(text, ending="")
            return
        try:
            Path(file).write_text(text, encoding="utf-8")
        except OSError as exc:
            raise CommandError(f"{file} cannot be written: {exc}") from exc

    def load(self, *, file: str, prune: bool, dry_run: bool, user: str | None, **_: Any) -> None:
        person = history.person(user)
        text = _read(file)
        try:
            with transaction.atomic(using=database()):
                if dry_run:
                    plan = exchange.compare(text, prune=prune)
                else:
                    plan = exchange.load(text, prune=prune, user=person)
                    if person is not None:
                        history.write_plan(person, plan)
        except InvalidFileError as exc:
            raise CommandError(f"Nothing is imported.\n{exc}") from exc
        for line in plan.lines():
            self.stdout.write(line)
        if dry_run:
            self.stdout.write("Nothing is written: this was a dry run.")


def _read(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.read()
        return Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise CommandError(f"{file} cannot be read: {exc}") from exc
