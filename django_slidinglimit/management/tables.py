"""Rows of texts as a table for a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unicodedata import combining, east_asian_width

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from django.core.management.base import BaseCommand


def lines(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]
) -> Iterator[str]:
    """A line for the head and one for each row, the columns aligned.

    Args:
        head: the columns' names.
        rows: as many texts each.
        numbers: the names of columns that are aligned on the right.
    """
    texts = [list(head), *([shown(text) for text in row] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        cells = []
        for name, text, width in zip(head, row, widths, strict=True):
            blank = " " * (width - _width(text))
            cells.append(blank + text if name in numbers else text + blank)
        yield "  ".join(cells).rstrip()


def shown(text: str) -> str:
    """A text; where it has characters that would steer a terminal, with those escaped."""
    return text if text.isprintable() else json.dumps(text)


def moment(seconds: float) -> str:
    """A time in UTC, to the minute."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def write(command: BaseCommand, as_json: bool, value: Any, lines: Iterable[str]) -> None:
    """Print a value as JSON, or lines instead."""
    if as_json:
        command.stdout.write(json.dumps(value, indent=2))
        return
    for line in lines:
        command.stdout.write(line)


def _width(text: str) -> int:
    """How many columns a text takes."""
    return sum(
        0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1
        for character in text
    )
