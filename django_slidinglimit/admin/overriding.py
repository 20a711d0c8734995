"""The rows behind the overrides that a process decides by.

They are kept for a minute, so that a page that refreshes itself asks the database for none. What an
override does and until when is never old: if that changes, it is another compiled override.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django_slidinglimit.loading import database
from django_slidinglimit.models import Override

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_slidinglimit.overrides import Override as Compiled

# How long a row is kept, in seconds, and how many are.
KEEP = 60.0
MOST = 10_000


def overrides_by_key(found: Iterable[Compiled | None]) -> dict[int, Override]:
    """The rows of compiled overrides, by their keys, in one query or none."""
    now = time.monotonic()
    wanted = {override for override in found if override is not None}
    known = {o: kept[1] for o in wanted if (kept := _kept.get(o)) and now - kept[0] < KEEP}
    lacking = {override.pk: override for override in wanted - known.keys()}
    if lacking:
        rows = Override.objects.using(database()).filter(pk__in=lacking)
        fresh = {lacking[row.pk]: row for row in rows.select_related("rule", "group")}
        if len(_kept) + len(fresh) > MOST:
            _kept.clear()
        _kept.update({override: (now, row) for override, row in fresh.items()})
        known |= fresh
    return {row.pk: row for row in known.values()}


def forget() -> None:
    """Drop what is kept; tests begin so."""
    _kept.clear()


_kept: dict[Compiled, tuple[float, Override]] = {}
