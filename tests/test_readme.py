"""The README's quick start and docs/testing.md, typed into a new project as a reader would."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from .smoke import PATIENCE, family, still_there
from .test_docs import DOCS, ROOT, blocks

if TYPE_CHECKING:
    from pathlib import Path

    from example_project.server import EmbeddedServer

# What a reader has besides: an API of one view.
API = """
from rest_framework.decorators import api_view
from rest_framework.response import Response


@api_view(["GET"])
def ping(request):
    return Response("pong")
"""
ROUTE = """
from shop.views import ping

urlpatterns += [path("ping/", ping)]
"""
# In place of the reader's own Redis.
SERVER = """
CACHES["limits"]["LOCATION"] = {url!r}
"""
DRIVE = """
import json
from django.test import Client

for path, times in (("/report/", 11), ("/ping/", 21)):
    print(json.dumps([Client(SERVER_NAME="localhost").get(path).status_code for _ in range(times)]))
"""


@pytest.fixture
def project(tmp_path: Path, redis_server: EmbeddedServer) -> Path:
    run(tmp_path, "-m", "django", "startproject", "shop", ".")
    for page in (ROOT / "README.md", DOCS / "testing.md"):
        for block in blocks(page):
            label, _, code = block.partition("\n")
            write(tmp_path, label.removeprefix("# "), code)
    write(tmp_path, "shop/settings.py", SERVER.format(url=redis_server.url))
    write(tmp_path, "shop/views.py", API)
    write(tmp_path, "shop/urls.py", ROUTE)
    return tmp_path


def write(project: Path, path: str, code: str) -> None:
    """Add to a file."""
    assert re.fullmatch(r"shop/\w+\.py", path), f"A block names no file first: {path}"
    with (project / path).open("a") as file:
        file.write(f"\n{code}")


def run(project: Path, *arguments: str) -> str:
    """Run Python there; gives what it prints, and fails with it."""
    ours = ("DJANGO_", "SLIDINGLIMIT_", "REDIS_URL", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    result = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=project,
        env=kept | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_the_quick_start_limits_views(project: Path) -> None:
    assert "no issues" in run(project, "manage.py", "check")
    run(project, "manage.py", "migrate")
    said = run(project, "manage.py", "shell", "-v", "0", "-c", DRIVE)
    report, ping = re.findall(r"(?m)^\[.*\]$", said)
    assert json.loads(report) == [200] * 10 + [429]
    assert json.loads(ping) == [200] * 20 + [429]


def test_the_tests_of_a_project_pass(project: Path) -> None:
    assert "Ran 3 tests" in run(project, "manage.py", "test")
    arguments = ("-m", "pytest", "-p", "no:valkey", "--ds", "shop.settings", "shop/test_report.py")
    assert "1 passed" in run(project, *arguments)


@pytest.mark.wheel
def test_one_line_sets_up_and_runs_the_demo(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    [line] = (block for block in blocks(ROOT / "README.md", "sh") if "manage.py demo" in block)
    with subprocess.Popen(
        ["/bin/sh", "-c", f"{line.rstrip()} --port 0"],
        cwd=clone,
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        said = []
        for said_now in process.stdout:
            said.append(said_now)
            if "Ctrl-C" in said_now:
                break
        members = family(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.read() == "Stopped.\n", "".join(said)
        process.wait(PATIENCE)
    assert not still_there(members)
