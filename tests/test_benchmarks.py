"""The benchmarks run; what they measure is for no test to judge."""

import json
import subprocess
import sys
from pathlib import Path


def test_the_benchmarks_run_and_write_what_they_print(tmp_path: Path) -> None:
    found = tmp_path / "figures.json"
    command = [sys.executable, "-W", "error", "-m", "tests.benchmarks", "--quick"]
    command += ["--json", str(found)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.returncode in (0, 1)  # 1: a figure is over its limit, as on a busy machine
    written = json.loads(found.read_text())
    names = [figure["name"] for figure in written["figures"]]
    assert len(names) > 10
    assert all(name in done.stdout for name in names)
