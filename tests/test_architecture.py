import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_imports_keep_to_the_contracts_in_pyproject() -> None:
    # In a process of its own: import-linter takes over the logging of the one that it runs in.
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    result = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
