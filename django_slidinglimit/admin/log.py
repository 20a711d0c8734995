"""The admin's log of rules and overrides, with what their rows held before and after.

An entry's message is of Django's structured form, with the values beside it:
`[{"changed": {"fields": ["rate: 5/min → 9/min"]}, "was": {...}, "now": {...}}]`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.contrib.contenttypes.models import ContentType
from django.db import router
from django.db.models import F
from django.utils.translation import override as language

from django_slidinglimit.models import Rule

from .states import differences, read, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.db.models import Model, QuerySet
    from django.http import HttpRequest

    from django_slidinglimit.core.decisions import Rule as CompiledRule

    from .states import State

Message = list[dict[str, Any]]


def added(row: Model) -> Message:
    """What the log says of a new row."""
    return [{"added": {}, "now": state_of(row)}]


def changed(row: Model, before: State) -> Message:
    """What the log says of a change: a row as it is now, and what it held before."""
    after = state_of(row)
    with language(None):
        fields = [str(found) for found in differences(type(row), before, after)]
    return [{"changed": {"fields": fields}, "was": before, "now": after}] if fields else []


def deleted(row: Model) -> Message:
    """What the log says of a deletion."""
    with language(None):
        name = str(row._meta.verbose_name)
    return [{"deleted": {"name": name, "object": str(row)}, "was": state_of(row)}]


def write(
    request: HttpRequest, flag: int, entries: Iterable[tuple[Model, Message]]
) -> list[LogEntry]:
    """Write what happened to rows to the log.

    Args:
        request: who did it.
        flag: ADDITION, CHANGE or DELETION of `django.contrib.admin.models`.
        entries: each row, and what to say of it.
    """
    return LogEntry.objects.bulk_create(
        LogEntry(
            user_id=cast("int", request.user.pk),
            content_type=get_content_type_for_model(row),
            object_id=str(row.pk),
            object_repr=str(row)[:200],
            action_flag=flag,
            change_message=json.dumps(message),
        )
        for row, message in entries
    )


def write_changes(request: HttpRequest, changes: Iterable[tuple[Model, Model | None]]) -> None:
    """Write to their log what was done to rows: each as it is now, and as it was, if it was."""
    for row, was in changes:
        if was is None:
            write(request, ADDITION, [(row, added(row))])
        else:
            write(request, CHANGE, [(row, changed(row, state_of(was)))])


def write_counts(request: HttpRequest, rules: Iterable[CompiledRule], message: str) -> None:
    """Write to the rules' log what was done to a client's counts; one in code has no row.

    The message names no user: who may read it may not be one who may see users.
    """
    kind = ContentType.objects.get_for_model(Rule)
    LogEntry.objects.bulk_create(
        LogEntry(
            user_id=cast("int", request.user.pk),
            content_type=kind,
            object_id=rule.id[1:] if rule.id.startswith("d") else None,
            object_repr=rule.name[:200],
            action_flag=CHANGE,
            change_message=message,
        )
        for rule in rules
    )


def values(entry: LogEntry, part: str) -> State | None:
    """What an entry keeps under "was" or "now"; None if it keeps nothing there."""
    try:
        [message] = json.loads(entry.change_message)
    except (ValueError, TypeError):  # a text of its own, or of more than one part
        return None
    return read(message.get(part)) if isinstance(message, dict) else None


def entries_of(row: Model) -> QuerySet[LogEntry]:
    """A row's entries."""
    return LogEntry.objects.filter(
        content_type=get_content_type_for_model(row), object_id=str(row.pk)
    ).select_related("user")


def last_entries(model: type[Model], rows: Iterable[Model]) -> dict[str | None, LogEntry]:
    """The newest entry of each row that keeps its values, by the row's key, in one query."""
    entries = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(model, for_concrete_model=False),
        object_id__in=[str(row.pk) for row in rows],
        change_message__startswith="[{",
    )
    return {entry.object_id: entry for entry in entries.select_related("user").order_by("pk")}


def database() -> str:
    """The alias of the database that rules are written to."""
    return router.db_for_write(Rule)


def lock(rows: QuerySet[Any]) -> None:
    """Have others wait with writing these rows until this transaction ends.

    Call it before the transaction reads. A write that changes nothing locks on every database;
    SQLite knows no SELECT FOR UPDATE, and lets nobody write after a read that another's write has
    outdated.
    """
    found = rows.order_by().values("pk")
    rows.model._base_manager.using(rows.db).filter(pk__in=found).update(updated=F("updated"))
