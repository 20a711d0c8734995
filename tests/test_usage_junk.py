"""What others wrote under the recorder's keys breaks no page and no command."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.urls import reverse

from django_slidinglimit.core.decisions import Client, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.usage import hour, listed, minutes, sets, trace
from django_slidinglimit.usage.layout import limited_member, rule_field
from tests.recorded import minute_now, record

if TYPE_CHECKING:
    from django.test import Client as Browser
    from redis import Redis

pytestmark = pytest.mark.django_db

LIST = Rule("c1", Rate(10, 60_000), "list")
KEY, OTHER = Client("key", "77"), Client("key", "78")
FIELD = rule_field(LIST)
MEMBER = '["key","77"]'
REFUSED = limited_member(FIELD, KEY)
DEEP = "[" * 100_000
PROCESS = '[99999999999999, {"token": "%s", "obeyed_ms": %s, "breaker_open": 0}]'
PAGES = {
    "changelist": {},
    "client": KEY._asdict(),
    "rule": {"rule": FIELD},
}

Junk = dict[Any, Any]

HASHES: dict[str, tuple[str, Junk]] = {
    "rules": (
        "rules",
        {"junk": "x", b"\xff": b"\xff", FIELD: b"\xff", f"{FIELD}:more": "x", "c2:1": "x"},
    ),
    "words for counts": ("counts", {f"{FIELD}:allowed": "abc", f"{FIELD}:refused": "nan"}),
    "great counts": ("counts", {f"{FIELD}:allowed": "9" * 5000, f"{FIELD}:refused": "1e400"}),
    "less than nothing": ("counts", {f"{FIELD}:allowed": "-5", f"{FIELD}:would": "-7"}),
    "counts of nothing": ("counts", {b"\xff:allowed": "1", "allowed": "1", ":allowed": "1"}),
}
SETS: dict[str, tuple[str, Junk]] = {
    **{
        f"{kind} {score}": (f"{kind}:{FIELD}", {MEMBER: score})
        for kind in ("top", "asked", "over")
        for score in (float("inf"), float("-inf"), 1e300, -5.5)
    },
    "members": (
        f"top:{FIELD}",
        dict.fromkeys(
            ("", "junk", "{}", "[1,2]", '["a"]', '["key",', DEEP, b"\xff", '["\\ud800","x"]'), 1e9
        ),
    ),
    "users": (f"top:{FIELD}", {'["user","\\u0000"]': 1e9, f'["user","{"9" * 30}"]': 1e9}),
    "limited": (
        "limited",
        dict.fromkeys(
            ("junk", "[]", '["a","b","c"]', DEEP, b"\xff", f'["{FIELD}","\\ud800","x"]'), 99
        ),
    ),
    "limited infinitely": ("limited", {REFUSED: float("inf")}),
    **{
        f"since {score}": ("since", {REFUSED: score})
        for score in (float("inf"), float("-inf"), -1e15, 1e15)
    },
    "links": (
        "links",
        {f"{MEMBER} {other}": 0 for other in ("junk", "[", "[1]", '["\\ud800","x"]')},
    ),
    "links of no letters": ("links", {f"{MEMBER} ".encode() + b"\xff": 0}),
}


def looks(browser: Browser) -> list[str]:
    """All pages, as they come when nothing is kept in the process; and the commands."""
    for kept in (minutes, sets, trace, listed):
        kept.forget()
    pages = []
    for name, query in PAGES.items():
        url = reverse(f"admin:django_slidinglimit_usage_{name}")
        response = browser.get(url, {**query, "fragment": "1"})
        assert response.status_code == 200
        pages.append(response.content.decode())
    call_command("slidinglimit", "top", stdout=StringIO())
    call_command("slidinglimit", "top", "--limited", stdout=StringIO())
    call_command("slidinglimit", "client", *KEY, stdout=StringIO())
    hour.sources(lambda _rule: True)
    hour.clients_over(LIST)
    hour.seen([LIST])
    return pages


@pytest.mark.parametrize("ago", [0, 3], ids=["now", "before"])
@pytest.mark.parametrize("junk", [*HASHES, *SETS])
def test_junk_in_a_minute_hides_no_other_client(
    admin_client: Browser, redis_client: Redis, junk: str, ago: int
) -> None:
    record(LIST, KEY, 12, ago=ago)
    record(LIST, OTHER, 12, ago=ago)
    base = f"sl:usage:{{{minute_now() - ago}}}:"
    if junk in HASHES:
        kind, written = HASHES[junk]
        redis_client.hset(base + kind, mapping=written)
    else:
        kind, written = SETS[junk]
        redis_client.zadd(base + kind, written)
    for page in looks(admin_client):
        assert "Redis does not answer" not in page
    rule_page = looks(admin_client)[-1]  # what is over is kept by now
    assert "kind=key&amp;identity=78" in rule_page


@pytest.mark.parametrize(
    ("key", "junk"),
    [
        ("processes", {"a": "b", "h:1:x": "[1]", "h:2:x": "[1e400, {}]", "h:3:x": DEEP}),
        ("processes", {"h:1:x": PROCESS % ("\\ud800", 1), b"\xff:6:z": "[1,2]"}),
        ("processes", {"h:1:x": PROCESS % ("t", "1e400"), "h:2:x": PROCESS % ("t", "9" * 400)}),
        ("dropped", {FIELD: "junk", b"\xff": "1"}),
    ],
)
def test_junk_beside_the_minutes_breaks_nothing(
    admin_client: Browser, redis_client: Redis, key: str, junk: Junk
) -> None:
    record(LIST, KEY, 12)
    redis_client.hset(f"sl:usage:{key}", mapping=junk)
    for page in looks(admin_client):
        assert "Redis does not answer" not in page


@pytest.mark.parametrize("kind", ["rules", "limited", f"top:{FIELD}", "links", "seen"])
def test_where_a_key_is_of_another_type_the_pages_say_what_failed(
    admin_client: Browser, redis_client: Redis, kind: str
) -> None:
    record(LIST, KEY, 12)
    key = f"sl:usage:{{{minute_now()}}}:{kind}"
    redis_client.delete(key)
    redis_client.set(key, "x")
    for kept in (minutes, sets, trace, listed):
        kept.forget()
    for name, query in PAGES.items():
        url = reverse(f"admin:django_slidinglimit_usage_{name}")
        assert admin_client.get(url, query).status_code == 200
