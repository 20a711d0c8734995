"""`python -m tests.benchmarks`: measures on a server and a database of its own, prints a table.

A family of cases is a module with a function `run(sizes)` that yields figures; each finds the
database empty.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from .figures import QUICK, Sizes
from .site import temporary_site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .figures import Figure

FAMILIES = ("lookups", "decisions", "reloads", "propagation")


def main() -> int:
    """Measure; returns 1 if a figure is over its limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("families", nargs="*", metavar="family", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there, too")
    parser.add_argument("--quick", action="store_true", help="so small that it proves nothing")
    args = parser.parse_args()
    if unknown := set(args.families) - set(FAMILIES):
        parser.error(f"no such family: {', '.join(unknown)}")
    sizes = QUICK if args.quick else Sizes()
    with temporary_site():
        about = machine()
        print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
        figures = [
            figure
            for family in FAMILIES
            if family in args.families or not args.families
            for figure in measured(family, sizes)
        ]
    if args.json:
        found = {"machine": about, "sizes": asdict(sizes), "figures": list(map(asdict, figures))}
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(figure.kept for figure in figures) else 1


def measured(family: str, sizes: Sizes) -> list[Figure]:
    """Measure a family on an empty database, and print it."""
    from django.contrib.auth.models import Group

    from django_slidinglimit.models import Override, Rule

    for model in (Override, Rule, Group):
        model.objects.all().delete()
    figures = list(import_module(f"tests.benchmarks.{family}").run(sizes))
    print_table(figures)
    return figures


def print_table(figures: Sequence[Figure]) -> None:
    """A line for each figure; the limit stands in the column of what it limits."""
    print(f"\n{'':66} {'median':>9} {'p99':>9} {'limit':>12}")
    for figure in figures:
        p99 = "" if figure.p99 is None else f"{figure.p99:.2f}"
        limit = "" if figure.limit is None else f"{figure.limits} {figure.limit:g}"
        mark = "" if figure.kept else "  over"
        name = f"{figure.name} ({figure.unit})"
        print(f"{name:66} {figure.median:9.2f} {p99:>9} {limit:>12}{mark}")
    sys.stdout.flush()


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    import django
    import redis

    from django_slidinglimit.usage.server import server

    return {
        "Python": platform.python_version(),
        "Django": django.get_version(),
        "redis-py": redis.__version__,
        "server": server().name,
        "system": platform.platform(terse=True),
        "cores": str(os.cpu_count()),
    }


if __name__ == "__main__":
    sys.exit(main())
