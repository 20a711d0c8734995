"""`python -m tests.benchmarks`: measures on a server and a database of its own, prints a table.

A family of cases is a module with a function `run(sizes)` that yields figures; each finds the
database and the server empty.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from .figures import QUICK, Sizes
from .site import temporary_site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .figures import Figure

FAMILIES = (
    "doors",
    "peers",
    "refusals",
    "concurrency",
    "recording",
    "server",
    "pages",
    "lookups",
    "decisions",
    "reloads",
    "propagation",
)


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
    """Measure a family on an empty database and an empty server, and print it."""
    import redis
    from django.contrib.auth.models import Group

    from django_slidinglimit.models import Override, Rule

    from .comparison import address

    redis.Redis.from_url(address()).flushall()
    for model in (Override, Rule, Group):
        model.objects.all().delete()
    figures = list(import_module(f"tests.benchmarks.{family}").run(sizes))
    print_table(figures)
    return figures


def print_table(figures: Sequence[Figure]) -> None:
    """A line for each figure; the limit stands in the column of what it limits."""
    print(f"\n{'':66} {'median':>9} {'p99':>9} {'x GET':>6} {'limit':>12}")
    for figure in figures:
        gets = "" if figure.gets is None else f"{figure.gets:.2f}"
        p99 = "" if figure.p99 is None else f"{figure.p99:.2f}"
        limit = "" if figure.limit is None else f"{figure.limits} {figure.limit:g}"
        mark = "" if figure.kept else "  over"
        name = f"{figure.name} ({figure.unit})" if figure.unit else figure.name
        print(f"{name:66} {figure.median:9.2f} {p99:>9} {gets:>6} {limit:>12}{mark}")
    sys.stdout.flush()


# Packages that the figures depend on, those of the extra `bench` included.
PACKAGES = (
    *("Django", "djangorestframework", "django-redis", "redis", "hiredis"),
    *("django-ratelimit", "django-smart-ratelimit", "limits", "throttled-py"),
)


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    import redis

    from .comparison import address

    server = redis.Redis.from_url(address()).info("server")
    # Valkey calls itself a Redis 7.2.4 first.
    valkey = server.get("valkey_version")
    about = {
        "Python": platform.python_version(),
        "server": f"Valkey {valkey}" if valkey else f"Redis {server['redis_version']}",
        "system": platform.platform(terse=True),
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
    }
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            about[package] = version(package)
    return about


if __name__ == "__main__":
    sys.exit(main())
