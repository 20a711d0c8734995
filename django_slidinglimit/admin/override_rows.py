"""The rows behind the overrides that a process decides by.

Of those that are kept, what an override does and until when is never old: if that changes, it is
another compiled override.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_slidinglimit.loading import database
from django_slidinglimit.models import Override

from .recent import Recent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_slidinglimit.overrides import Override as Compiled

# Rows that are kept.
MOST = 10_000


def overrides_by_key(found: Iterable[Compiled | None]) -> dict[int, Override]:
    """The rows of compiled overrides, by their keys, in one query or none."""
    wanted = {override for override in found if override is not None}
    known = _kept.known(wanted)
    lacking = {override.pk: override for override in wanted - known.keys()}
    if lacking:
        rows = Override.objects.using(database()).filter(pk__in=lacking)
        fresh = {lacking[row.pk]: row for row in rows.select_related("rule", "group")}
        _kept.add(fresh)
        known |= fresh
    return {row.pk: row for row in known.values()}


def forget() -> None:
    """Drop what is kept; tests begin so."""
    _kept.clear()


_kept: Recent[Compiled, Override] = Recent(MOST)
