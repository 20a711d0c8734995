"""Indexes that are never changed: look-up by key of what stands under it, in order."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

K = TypeVar("K")
V = TypeVar("V")


def changed(
    index: Mapping[K, tuple[V, ...]],
    gone: Iterable[tuple[K, V]],
    new: Iterable[tuple[K, V]],
    order: Callable[[V], Any],
    pause: Callable[[], None],
) -> dict[K, tuple[V, ...]]:
    """A copy of an index with some values taken out and others put in.

    To copy a dict takes microseconds, whatever its size; the rest depends on what changes alone.

    Args:
        index: the index as it was.
        gone: values of it (these very objects) with their keys.
        new: values with their keys.
        order: sorts the values under one key.
        pause: called before each change.
    """
    copy = dict(index)
    for key, value in gone:
        pause()
        left = tuple(v for v in copy[key] if v is not value)
        if left:
            copy[key] = left
        else:
            del copy[key]
    for key, value in new:
        pause()
        values = list(copy.get(key, ()))
        insort(values, value, key=order)
        copy[key] = tuple(values)
    return copy
