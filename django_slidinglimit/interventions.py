"""What an operator does about one client, and the way back.

The admin's pages and the command line act through here.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from django.db import transaction
from django.utils import timezone

from . import connections
from .core.redis import HASHED
from .loading import database
from .models import Override
from .overrides import STRENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from django.db.models import CharField, QuerySet

    from .core.decisions import Client, Held, Hit
    from .overrides import Effect


class Change(NamedTuple):
    """What was done to an override: how it is now, and how it was; None: there was none."""

    row: Override
    was: Override | None = None


class Step(NamedTuple):
    """How to take one change back.

    Args:
        pk: the override's.
        updated: when it was changed; if it was again since, it stays as it is.
        made: whether it was made then.
        expires: the end that it had before.
    """

    pk: int
    updated: datetime
    made: bool
    expires: datetime | None = None


def is_writable(client: Client) -> bool:
    """Whether an override can be for a client: no row holds a client that is known by its hash."""
    longest = (
        cast("CharField[Any, Any]", Override._meta.get_field(f)).max_length for f in client._fields
    )
    return not client.kind.startswith(HASHED) and all(
        len(text) <= (most or 0) and "\0" not in text and _is_unicode(text)
        for text, most in zip(client, longest, strict=True)
    )


def reset(hits: Sequence[Hit]) -> list[Held]:
    """Have a client start afresh under some rules.

    Returns:
        What was forgotten.

    Raises:
        StoreError: the store does not answer; nothing is known to be forgotten.
    """
    return connections.store().reset(hits)


def restore(held: Sequence[Held], once: str, seconds: int) -> bool:
    """Take a reset back, where its windows still count.

    Args:
        held: what it forgot.
        once: a name that this reset alone has; what was taken back under it is not again.
        seconds: for how long that is remembered.

    Returns:
        Whether this is the first time.

    Raises:
        StoreError: the store does not answer.
    """
    store = connections.store()
    key = f"{store.prefix}restored:{once}"
    if store.run([("SET", key, 1, "NX", "EX", seconds)])[0] is None:
        return False
    store.restore(held)
    return True


def own(client: Client) -> QuerySet[Override]:
    """The overrides that are for this very client and have not ended."""
    rows = Override.objects.using(database()).filter(kind=client.kind, identity=client.identity)
    return rows.exclude(expires__lte=timezone.now()).order_by("pk")


def voiding(client: Client, effect: Effect, rule: int | None) -> QuerySet[Override]:
    """Overrides of the client's own that would keep another from holding; `override` ends them.

    Args:
        client: whom both are for.
        effect: the other's.
        rule: the primary key of its rule; None: all rules.
    """
    stronger = [name for name, strength in STRENGTH.items() if strength < STRENGTH[effect]]
    found = own(client).filter(effect__in=stronger)
    return found if rule is None else found.filter(rule=rule)


def override(
    client: Client,
    effect: Effect,
    expires: datetime | None,
    *,
    rule: int | None = None,
    rate: str = "",
    reason: str = "",
    user: Any = None,
) -> list[Change]:
    """Block a client, exempt it, or give it another rate, whatever overrides of its own it has.

    Those that are stronger end. One on all rules is made for each rule, too, that the client has
    an override of its own on, since that would hold there instead.

    Args:
        client: who.
        effect: what.
        expires: until when; None: for good.
        rule: the primary key of the rule; None: all rules.
        rate: the other rate, if that is the effect.
        reason: why, for other operators.
        user: who does it.

    Raises:
        ValueError: no override can be for this client.
        ValidationError: with the errors by field.
    """
    if not is_writable(client):
        raise ValueError(f"No override can be for {client.kind} {client.identity!r}.")
    row = Override(
        kind=client.kind, identity=client.identity, effect=effect, rate=rate, expires=expires,
        rule_id=rule, reason=reason, created_by=user,
    )  # fmt: skip
    row.full_clean(exclude=("kind", "identity", "created_by"))  # the client as it is counted
    with transaction.atomic(using=database()):
        # First a write, which locks: SQLite lets nobody write after a read that is outdated.
        row.save(using=database())
        changes = [Change(row)]
        if rule is None:
            excepted = own(client).exclude(rule=None).values_list("rule", flat=True)
            for key in sorted(set(excepted)):
                other = copy(row)
                other.pk, other.rule_id = None, key
                other._state.adding = True
                other.save(using=database())
                changes.append(Change(other))
        changes += _ended(voiding(client, effect, rule))
    return changes


def end(client: Client, effect: Effect, rule: int | None = None) -> list[Change]:
    """End overrides of the client's own, such as all that block it.

    Args:
        client: whom they are for.
        effect: what they do.
        rule: the primary key of the rule that they are on; None: wherever they are.
    """
    found = own(client).filter(effect=effect)
    rows = list(found if rule is None else found.filter(rule=rule))
    with transaction.atomic(using=database()):
        return _ended(rows)


def steps(changes: Iterable[Change]) -> list[Step]:
    """How to take changes back."""
    return [
        Step(row.pk, row.updated, was is None, was.expires if was else None) for row, was in changes
    ]


def undo(taken: Iterable[Step]) -> list[Change]:
    """Take changes back, save of overrides that somebody has changed since.

    Returns:
        What was done: overrides that were made end now, others have the end that they had.
    """
    rows = Override.objects.using(database()).in_bulk([step.pk for step in taken])
    changes = []
    with transaction.atomic(using=database()):
        for step in taken:
            row = rows.get(step.pk)
            if row is not None and row.updated == step.updated:
                changes += _expire(row, _now() if step.made else step.expires)
    return changes


def _ended(rows: Iterable[Override]) -> list[Change]:
    return [change for row in rows for change in _expire(row, _now())]


def _expire(row: Override, expires: datetime | None) -> list[Change]:
    """Give an override another end, unless somebody has changed it since it was read."""
    was, now = copy(row), timezone.now()
    rows = Override.objects.using(database()).filter(pk=row.pk, updated=row.updated)
    if not rows.update(expires=expires, updated=now):
        return []
    row.expires, row.updated = expires, now
    return [Change(row, was)]


def _now() -> datetime:
    return timezone.now().replace(microsecond=0)  # as precise as the admin's form


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
