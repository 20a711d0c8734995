"""The benchmarks run; what they measure is for no test to judge."""

import json
import subprocess
import sys
from pathlib import Path

# What the project promises of its speed, whether or not the other limiters are installed.
MUST_HOLD = {
    "Decorator, admitted / redis-py GET",
    "Decorators, 4 rules / 1 rule",
    "This throttle / REST framework's own throttle",
    "Decorator, refused from memory / redis-py GET",
    "Commands a second for one client that is refused",
    "Memory a client, 500 clients, both windows",
    "Server time, a decision / a plain script",
    "Server time, 4 rules / 1",
    "Overview, new to the process, 30 rules and 500 clients",
    "Overview, refreshed, 30 rules and 500 clients",
    "Rule page, new to the process, 30 rules and 500 clients",
    "Rule page, refreshed, 30 rules and 500 clients",
    "Recorder, 1,000 clients in turn",
    "Rules of a scope, ratio",
    "Rules of a path, ratio",
}


def test_the_benchmarks_run_and_write_what_they_print(tmp_path: Path) -> None:
    found = tmp_path / "figures.json"
    command = [sys.executable, "-W", "error", "-m", "tests.benchmarks", "--quick"]
    command += ["--json", str(found)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.returncode in (0, 1)  # 1: a figure is over its limit, as on a busy machine
    written = json.loads(found.read_text())
    figures = {figure["name"]: figure for figure in written["figures"]}
    assert all(name in done.stdout for name in figures)
    assert {name for name, figure in figures.items() if figure["limit"] is not None} >= MUST_HOLD
