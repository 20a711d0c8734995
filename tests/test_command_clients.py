"""`manage.py slidinglimit top|client|reset|block|unblock`."""

from __future__ import annotations

import io
import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import RequestFactory, override_settings
from django.utils import timezone

from django_slidinglimit import limiter, rules
from django_slidinglimit.core.decisions import Client, Hit, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.models import Override
from django_slidinglimit.models import Rule as Row
from django_slidinglimit.usage import recorder
from tests.odd import ODD
from tests.recorded import ask

from .worker import Worker

pytestmark = pytest.mark.django_db

LIST = Rule("c1", Rate(10, 3_600_000), "list")
HOME = Client("ip", "192.0.2.1")
MOST = Client("ip", "192.0.2.2")


def run(*args: object) -> str:
    out = io.StringIO()
    call_command("slidinglimit", *map(str, args), stdout=out, stderr=out)
    return out.getvalue()


def parsed(*args: object) -> Any:
    return json.loads(run(*args, "--json"))


def admitted(address: str = "192.0.2.1") -> bool:
    request = RequestFactory().get("/", REMOTE_ADDR=address)
    return limiter.check(request, "search", key="ip").allowed


@pytest.fixture
def search() -> Row:
    return Row.objects.create(name="Search", scope="search", rate="10/h", key="ip")


def compiled(row: Row) -> Rule:
    return rules.compile_rule(row).rule


def test_top_lists_who_uses_most_first(search: Row) -> None:
    ask(LIST, HOME, 3)
    ask(LIST, MOST, 12)
    ask(compiled(search), HOME, 8)
    head, *lines = run("top").splitlines()
    assert head.split()[:4] == ["RULE", "RATE", "CLIENT", "STATE"]
    assert [line.split()[:5] for line in lines] == [
        ["list", "10/h", "ip", "192.0.2.2", "limited"],
        ["Search", "10/h", "ip", "192.0.2.1", "near"],
        ["list", "10/h", "ip", "192.0.2.1", "ok"],
    ]
    assert re.search(r"limited\s+10\s+10\s+0\s+2\s+\d+ s$", lines[0])
    assert len({line.index("192.0.2") for line in lines}) == 1  # aligned
    found = parsed("top", "--count", 1)["clients"]
    assert [(line["client"]["identity"], line["used"]) for line in found] == [("192.0.2.2", 10)]


def test_top_of_one_rule_and_of_the_limited_alone(search: Row) -> None:
    ask(LIST, MOST, 12)
    ask(compiled(search), HOME, 8)
    found = parsed("top", "--rule", "Search")["clients"]
    assert [line["rule"] for line in found] == ["Search"]
    [limited] = parsed("top", "--limited")["clients"]
    assert (limited["client"], limited["refused"]) == (MOST._asdict(), 2)
    assert 0 <= timezone.now().timestamp() - limited["since"] < 60
    assert run("top", "--limited", "--rule", "Search") == "Nobody was refused in the last minute.\n"
    with pytest.raises(CommandError, match="No rule 'Serach' was asked"):
        run("top", "--rule", "Serach")


def test_without_traffic_top_says_so() -> None:
    assert run("top") == "Nobody asked lately.\n"
    assert parsed("top") == {"clients": []}


def test_everything_about_one_client_is_told(search: Row) -> None:
    Override.objects.create(kind="ip", identity="192.0.2.1", rule=search, effect="rate", rate="9/h")
    Override.objects.create(kind="ip", identity="192.0.2.1", effect="exempt")
    limiter.take([Hit(compiled(search), HOME), Hit(LIST, Client("user", "77"))])
    recorder.flush()
    told = run("client", "ip", "192.0.2.1")
    assert told.startswith("ip 192.0.2.1\nUnder every rule without another override: exempt, ")
    assert "Seen in one request with it: user 77" in told
    assert re.search(r"Search +9/h +ip 192.0.2.1 +ok +1 +9 +8 +0 +now +9/h", told)
    found = parsed("client", "ip", "192.0.2.1")
    assert found["others"] == [{"kind": "user", "identity": "77"}]
    assert found["override"]["effect"] == "exempt"
    [line] = found["rules"]
    assert (line["rule"], line["used"], sum(line["within"])) == ("Search", 1, 1)
    assert "No rule has counted it" in run("client", "ip", "192.0.2.9")


def test_one_client_is_reset_on_all_rules_or_on_one(search: Row) -> None:
    ask(LIST, HOME, 3)
    ask(compiled(search), HOME, 10)
    told = run("reset", "ip", "192.0.2.1", "--rule", "Search")
    assert told == "ip 192.0.2.1 starts afresh on Search.\n"
    left = {line["rule"]: line["used"] for line in parsed("client", "ip", "192.0.2.1")["rules"]}
    assert left == {"Search": 0, "list": 3}
    assert set(parsed("reset", "ip", "192.0.2.1")["rules"]) == {"Search", "list"}
    assert run("reset", "ip", "192.0.2.9") == "Nothing is counted of ip 192.0.2.9.\n"


def test_who_is_blocked_is_refused_until_it_ends_or_is_unblocked(search: Row) -> None:
    told = run("block", "ip", "192.0.2.1", "--for", "2h", "--reason", "abuse")
    assert re.fullmatch(
        r"ip 192\.0\.2\.1 is blocked on all rules until \d{4}-\d\d-\d\d \d\d:\d\d UTC\.\n", told
    )
    row = Override.objects.get()
    assert (row.effect, row.rule, row.reason) == ("block", None, "abuse")
    assert row.expires
    assert 7100 < (row.expires - timezone.now()).total_seconds() <= 7200
    assert not admitted()
    assert admitted("192.0.2.2")
    assert run("unblock", "ip", "192.0.2.1") == "ip 192.0.2.1 is not blocked any more.\n"
    assert admitted()
    assert "No block of its own holds" in run("unblock", "ip", "192.0.2.1")


def test_a_block_on_one_rule_leaves_the_others(search: Row) -> None:
    [made] = parsed("block", "ip", "192.0.2.1", "--for", "10m", "--rule", "Search")["overrides"]
    assert (made["rule"], made["effect"], made["ended"]) == ("Search", "block", False)
    assert not admitted()
    request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1")
    assert limiter.check(request, "other", key="ip", rate="5/h").allowed


def test_identities_are_read_as_they_are_counted(search: Row) -> None:
    run("block", "ip", "2001:db8::7", "--for", "1h")
    run("block", "header:X-API-Key", "a secret of twenty-four!", "--for", "1h")
    alice = User.objects.create_user("alice")
    run("block", "user", "alice", "--for", "1h")
    rows = dict(Override.objects.values_list("kind", "identity"))
    assert rows["ip"] == "2001:db8::/64"
    assert "secret" not in rows["header:x-api-key"]
    assert rows["user"] == str(alice.pk)
    with pytest.raises(CommandError, match="no user 'alcie', and no primary key looks so"):
        run("block", "user", "alcie", "--for", "1h")
    told = run("block", "user", "99999", "--for", "1h")
    assert told.startswith("There is no user '99999': taken as a primary key.\n")
    User.objects.create_user(str(alice.pk))
    with pytest.raises(CommandError, match="is the name of one user and the primary key of"):
        run("client", "user", alice.pk)


@pytest.mark.parametrize("written", ["7", "07", "\N{ARABIC-INDIC DIGIT SEVEN}", "maria"])
def test_a_user_is_found_however_the_key_is_written(written: str) -> None:
    User.objects.create_user("maria", pk=7)
    run("block", "user", written, "--for", "1h")
    assert Override.objects.get().identity == "7"


def test_a_kind_that_nothing_is_known_to_count_is_told_of() -> None:
    doubt = "No key is known that counts clients of the kind"
    assert run("block", "usr", "7", "--for", "1h").startswith(f"{doubt} 'usr'.\n")
    for kind in ("ip", "header:x-api-key", "key", "plan"):
        with override_settings(SLIDINGLIMIT={"RULES_POLL": 0, "KEYS": {"plan": "a.b"}}):
            assert doubt not in run("client", kind, "192.0.2.1")


@pytest.mark.parametrize("client", ODD, ids=ascii)
def test_odd_identities_are_printed_without_steering_the_terminal(client: Client) -> None:
    ask(LIST, client, 12)
    for told in (run("top"), run("top", "--limited")):
        assert all(line.isprintable() for line in told.splitlines())
    [line] = parsed("top")["clients"]
    assert line["client"]["kind"] == client.kind


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["block", "ip", "192.0.2.1"], "--for"),
        (["block", "ip", "192.0.2.1", "--for", "soon"], "'soon' is no time"),
        (["block", "ip", "192.0.2.1", "--for", "0s"], "'0s' is no time"),
        (["block", "ip", "192.0.2.1", "--for", "99999999w"], "is no time that has an end"),
        (["block", "ip", "nobody", "--for", "1h"], "Write an address"),
        (["block", "user_or_ip", "1", "--for", "1h"], "Name the kind of client"),
        (["block", "ip", "192.0.2.1", "--for", "1h", "--rule", "None"], "no rule 'None'"),
        (["block", "ip", "192.0.2.1", "--for", "1h", "--user", "nobody"], "no user 'nobody'"),
        (["top", "--count", "0"], "a whole number from 1"),
        (["client", "ip"], "identity"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_done(args: list[str], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        run(*args)
    assert not Override.objects.exists()


def test_of_rules_of_one_name_the_key_is_asked_for(search: Row) -> None:
    other = Row.objects.create(name="Search", scope="other", rate="5/h")
    with pytest.raises(CommandError, match=f"2 rules are called 'Search': .*d{other.pk}"):
        run("block", "ip", "192.0.2.1", "--for", "1h", "--rule", "Search")
    run("block", "ip", "192.0.2.1", "--for", "1h", "--rule", f"d{other.pk}")
    assert Override.objects.get().rule == other


def test_what_is_done_is_in_the_history_of_who_did_it(search: Row) -> None:
    admin = User.objects.create_superuser("admin")
    ask(compiled(search), HOME)
    run("reset", "ip", "192.0.2.1", "--user", "admin")
    run("block", "ip", "192.0.2.1", "--for", "1h", "--user", "admin")
    assert Override.objects.get().created_by == admin
    run("unblock", "ip", "192.0.2.1", "--user", "admin")
    entries = LogEntry.objects.filter(user=admin).order_by("pk")
    assert [(e.content_type.model, e.action_flag) for e in entries if e.content_type] == [
        ("rule", 2),
        ("override", 1),
        ("override", 2),
    ]


def test_with_redis_away_it_says_so(search: Row) -> None:
    away = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    with override_settings(CACHES={"default": away}):
        for args in (["top"], ["client", "ip", "192.0.2.1"], ["reset", "ip", "192.0.2.1"]):
            with pytest.raises(CommandError, match="Redis does not answer"):
                run(*args)


def allowed_within_a_second(worker: Worker, expected: bool) -> bool:
    """Whether it allows a request, or does not; the last is asked when the second is over."""
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        if worker.ask("admits", "search", "1000/h") is expected:
            return True
        if waited >= 1:
            return False
        time.sleep(0.02)


@pytest.mark.django_db(transaction=True)
def test_a_block_is_obeyed_by_another_process_within_a_second(tmp_path: Path) -> None:
    with Worker.start(tmp_path / "worker.log") as worker:
        assert worker.ask("admits", "search", "1000/h")
        run("block", "ip", "127.0.0.1", "--for", "1h")
        assert allowed_within_a_second(worker, False)
        run("unblock", "ip", "127.0.0.1")
        assert allowed_within_a_second(worker, True)


def test_what_docs_usage_shows_runs(search: Row) -> None:
    ask(compiled(search), Client("ip", "203.0.113.66"), 3)
    text = (Path(__file__).parents[1] / "docs" / "usage.md").read_text()
    lines = re.findall(r"^python manage\.py slidinglimit (.*)$", text, re.MULTILINE)
    done = [run(*shlex.split(line, comments=True)) for line in lines]
    assert len(done) == 7
    assert "203.0.113.66" in done[0]
    assert "starts afresh on Search" in "".join(done)
    assert "is not blocked any more" in done[-1]
    assert Override.objects.get().reason == "scrapes the catalogue"
