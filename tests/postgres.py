"""A temporary PostgreSQL cluster: `python -m tests.postgres python -m pytest` tests on it."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob

USER = "postgres"
SERVER_OPTIONS = "-c listen_addresses='' -c fsync=off -c unix_socket_directories={folder}"


@contextmanager
def temporary_cluster() -> Iterator[dict[str, str]]:
    """Run a cluster on a Unix socket in a temporary folder and remove it at the end.

    Yields:
        The environment variables with which `tests.settings` reaches it.
    """
    with tempfile.TemporaryDirectory(prefix="sl-pg-") as folder:
        if os.getuid() == 0:
            shutil.chown(folder, USER, USER)
        data, log = f"{folder}/data", f"{folder}/log"
        _run("initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync")
        options = SERVER_OPTIONS.format(folder=folder)
        _run("pg_ctl", "-D", data, "-l", log, "-o", options, "--wait", "start")
        try:
            yield {"SLIDINGLIMIT_TEST_POSTGRES": "1", "PGHOST": folder, "PGUSER": USER}
        finally:
            _run("pg_ctl", "-D", data, "-m", "immediate", "--wait", "stop")


def _run(program: str, *args: str) -> None:
    # Debian keeps the programs off PATH, and PostgreSQL refuses to run as root.
    folders = sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True)
    path = shutil.which(program, path=os.pathsep.join([os.environ["PATH"], *folders]))
    if path is None:
        raise FileNotFoundError(f"{program} not found: install PostgreSQL (apt install postgresql)")
    root = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    command = [*(root if os.getuid() == 0 else []), path, *args]
    # The server inherits its output, so not a pipe that would never end.
    subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    with temporary_cluster() as variables:
        sys.exit(subprocess.run(sys.argv[1:], env=os.environ | variables).returncode)
