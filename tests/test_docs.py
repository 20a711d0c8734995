"""README.md and docs/: what they show runs, and does what is said beside it.

`test_readme.py` builds a project of the README and docs/testing.md, `test_drf_docs.py` runs
docs/drf.md.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.test import AsyncRequestFactory, RequestFactory
from redis import Redis

from django_slidinglimit import clients, conf, connections, exchange, limiter
from django_slidinglimit.checks import PARTS, UNKNOWN
from django_slidinglimit.core.decisions import Answer, Client, Decision, Hit
from django_slidinglimit.core.decisions import Rule as CompiledRule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.window import Reading, retry_after, verdict
from django_slidinglimit.headers import fields
from django_slidinglimit.keeper import publish
from django_slidinglimit.models import Override, Rule
from django_slidinglimit.usage import busiest, client, hour, overview, recorder
from django_slidinglimit.usage.busiest import Wanted
from django_slidinglimit.usage.housekeeping import Housekeeper
from example_project.server import EmbeddedServer
from tests.recorded import minute_now

if TYPE_CHECKING:
    from pytest_django import Settings

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def blocks(page: Path, language: str = "python") -> list[str]:
    """The code of a page's fenced blocks."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", page.read_text())


def run(name: str) -> Any:
    """All that the Python blocks of a page define, in the order of the page."""
    names: dict[str, Any] = {"__name__": "shop.views"}
    for block in blocks(DOCS / name):
        exec(compile(block, name, "exec"), names)
    assert len(names) > 2, f"{name} shows nothing"
    return SimpleNamespace(**names)


def statuses(
    view: Any, times: int, *, path: str = "/", method: str = "GET", user: Any = None, **meta: Any
) -> list[int]:
    """The status codes of so many requests."""
    found = []
    for _ in range(times):
        request = RequestFactory().generic(method, path, **meta)
        request.user = user or AnonymousUser()
        found.append(view(request).status_code)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).is_file()] == []


def test_every_page_is_linked_from_the_readme() -> None:
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", PAGES[0].read_text()))
    assert linked == {page.name for page in PAGES[1:]}


# settings.md, and the table of the README


def test_the_readme_tells_every_setting_and_its_default() -> None:
    table = re.findall(r"^\| `([A-Z_0-9]+)` \| `(.*?)` \|", PAGES[0].read_text(), re.MULTILINE)
    defaults = {name: eval(default) for name, default in table}
    assert defaults.pop("TRUSTED_PROXIES") == []
    assert defaults.pop("HEADERS") == list(conf.HEADER_FAMILIES)
    known = {name: getattr(conf.Conf(), name) for name in conf.Conf.__slots__}
    for held_otherwise in ("TRUSTED_PROXIES", "TRUST_UNIX_SOCKET", "HEADERS"):
        del known[held_otherwise]
    assert defaults == known


def test_settings_tells_every_setting_with_an_example_that_is_accepted(settings: Settings) -> None:
    text = (DOCS / "settings.md").read_text()
    sections = re.split(r"^## ", text.partition("## System checks")[0], flags=re.MULTILINE)[1:]
    told = []
    for section in sections:
        [example] = re.findall(r"(?ms)^```python\n(.*?)^```$", section)
        names: dict[str, Any] = {}
        exec(example, names)
        part = section.partition("\n")[0]
        assert part in names["SLIDINGLIMIT"]
        settings.CACHES = names.get("CACHES", settings.CACHES)
        settings.SLIDINGLIMIT = names["SLIDINGLIMIT"]
        conf.read()
        connections.redis_store()
        told.append(part)
    assert told == [name for name in conf.Conf.__slots__ if name != "TRUST_UNIX_SOCKET"]


def test_settings_tells_every_system_check() -> None:
    code = "".join(
        (ROOT / "django_slidinglimit" / f"{m}.py").read_text() for m in ("checks", "throttled")
    )
    known = {*re.findall(r"slidinglimit\.([EW]\d+)", code), UNKNOWN[0]}
    known |= {number for number, _ in PARTS.values()}
    text = (DOCS / "settings.md").read_text()
    told = set(re.findall(r"slidinglimit\.([EW]\d+)", text))
    for first, last, row in re.findall(r"`slidinglimit.E(\d+)` to `E(\d+)` \| (.*)", text):
        parts = [part for part in re.findall(r"`([A-Z_0-9]+)`", row) if part in PARTS]
        numbers = [PARTS[part][0] for part in parts]
        assert numbers == [f"E{n:03}" for n in range(int(first), int(last) + 1)]
        told.update(numbers)
    assert told == known


# rules.md


@pytest.mark.parametrize(
    ("rule", "admitted"),
    [
        (None, {"address": 5, "name": 5}),
        ({"rate": "3/min"}, {"address": 3, "name": 3}),
        ({"rate": "3/min", "key": "ip"}, {"address": 3, "name": 3}),
        ({"rate": "3/min", "key": "post:username", "methods": "POST"}, {"address": 5, "name": 3}),
        ({"rate": "3/min", "methods": "POST"}, {"address": 5, "name": 3}),
        ({"rate": "3/min", "mode": "observe"}, {"address": 5, "name": 5}),
        ({"rate": "3/min", "mode": "off"}, {"address": 5, "name": 5}),
    ],
)
def test_rules_replace_and_add(rule: dict[str, str] | None, admitted: dict[str, int]) -> None:
    page = run("rules.md")
    if rule:
        Rule.objects.create(name="rule", scope="login", **rule)
    by_address = statuses(page.sign_in, 6, REMOTE_ADDR="192.0.2.1")
    one_name = RequestFactory().post("/", {"username": "alice"}, REMOTE_ADDR="192.0.2.2")
    by_name = [page.sign_in(one_name).status_code for _ in range(6)]
    assert by_address.count(200) == admitted["address"]
    assert by_name.count(200) == admitted["name"]


def test_rules_from_code_are_rules() -> None:
    run("rules.md")
    assert Rule.objects.get().mode == Rule.Mode.OBSERVE


def test_a_rule_keeps_its_counters_within_the_same_window() -> None:
    rule = Rule.objects.create(name="rule", scope="kept", rate="3/min")
    request = RequestFactory().get("/")
    ask = partial(limiter.check, request, "kept")
    assert [ask().allowed for _ in range(3)] == [True] * 3
    for rate, allowed in (("2/min", False), ("3/h", True)):
        rule.rate = rate
        rule.save()
        assert ask().allowed is allowed


# decorators.md


@pytest.fixture
def views(settings: Settings) -> Any:
    settings.SLIDINGLIMIT = {"RULES_POLL": 0}
    return run("decorators.md")


def test_posts_to_the_login_are_counted_alone(views: Any) -> None:
    assert statuses(views.sign_in, 6) == [200] * 6
    assert statuses(views.sign_in, 6, method="POST") == [200] * 5 + [429]


def test_several_limits_are_decided_together(views: Any) -> None:
    assert statuses(views.send, 11) == [200] * 10 + [429]
    left = limiter.peek(RequestFactory().get("/"), "send-all", key="global", rate="1000/min")
    [answer] = left.answers
    assert answer.verdict.remaining == 990


def test_a_soft_limit_is_told_to_the_view(views: Any) -> None:
    request = RequestFactory().get("/")
    answers = [views.search(request).content for _ in range(31)]
    assert answers == [b"Fresh results."] * 30 + [b"Results of the last hour."]


def test_rates_and_costs_may_depend_on_the_request(views: Any) -> None:
    three = "/?id=1&id=2"
    assert statuses(views.export, 21, path=three) == [200] * 20 + [429]
    assert statuses(views.export, 21, path=three, user=User(pk=1)) == [200] * 21


def test_classes_are_limited(views: Any) -> None:
    assert statuses(views.Reports.as_view(), 11) == [200] * 10 + [429]
    assert statuses(views.Uploads.as_view(), 6, method="POST") == [200] * 5 + [429]


def test_drf_views_are_limited(views: Any) -> None:
    assert statuses(views.quote, 31) == [200] * 30 + [429]
    assert statuses(views.Quotes.as_view(), 31) == [200] * 30 + [429]


@pytest.mark.django_db(transaction=True)
def test_coroutines_are_limited(views: Any) -> None:
    async def ask() -> int:
        status: int = (await views.stream(AsyncRequestFactory().get("/"))).status_code
        return status

    async def ask_all() -> list[int]:
        return [await ask() for _ in range(101)]

    assert asyncio.run(ask_all()) == [200] * 100 + [429]


def test_views_may_ask_look_and_forget(views: Any) -> None:
    assert statuses(views.order, 11) == [200] * 10 + [429]
    assert views.orders_left(RequestFactory().get("/")).content == b"0"
    assert statuses(views.forgive, 1) == [200]
    assert views.orders_left(RequestFactory().get("/")).content == b"10"


# clients.md


def test_a_callable_tells_tenants_apart() -> None:
    page = run("clients.md")
    request = RequestFactory().get("/", headers={"Host": "a.example.com"})
    key = clients.key(page.tenant)
    assert key.find("any", request) == Client("shop.views.tenant", "a")


def test_the_examples_of_proxies_and_keys_are_accepted(settings: Settings) -> None:
    examples = [block for block in blocks(DOCS / "clients.md") if "SLIDINGLIMIT" in block]
    found = []
    for example in examples:
        names: dict[str, Any] = {}
        exec(example, names)
        settings.SLIDINGLIMIT = names["SLIDINGLIMIT"]
        found.append(conf.read())
    keys, proxies = found
    assert keys.KEYS == {"tenant": "shop.limits.tenant"}
    assert list(proxies.TRUSTED_PROXIES) == [ip_network("10.0.0.0/8")]


# headers.md


@pytest.mark.parametrize(("previous", "shown"), [(0, 0), (100, 1)])
def test_responses_tell_what_is_shown(previous: int, shown: int) -> None:
    reading, cost = Reading(previous, 50, 30_000), 0 if previous == 0 else 1
    rate = Rate.parse("100/min")
    hit = Hit(CompiledRule("r", rate, name="burst"), Client("ip", "192.0.2.1"), cost)
    told = fields(Decision((Answer(hit, verdict(rate, *reading, cost), reading),), 30_000))
    status, *lines = blocks(DOCS / "headers.md", "http")[shown].splitlines()
    assert dict(line.split(": ", 1) for line in lines) == told
    assert ("429" in status) == ("Retry-After" in told)


def test_the_settings_of_headers_are_accepted(settings: Settings) -> None:
    settings.SLIDINGLIMIT = run("headers.md").SLIDINGLIMIT
    assert (conf.read().HEADERS, conf.read().RESET) == (("x-ratelimit",), "epoch")


# failure.md


def test_a_signal_tells_that_redis_is_away_and_back(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    page = run("failure.md")
    server = EmbeddedServer()
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": server.url}}
    settings.SLIDINGLIMIT = {"TIMEOUT": 5, "RULES_POLL": 0}
    request = RequestFactory().get("/")
    assert limiter.check(request, "any", rate="1/min").allowed
    assert capsys.readouterr().out.startswith("Not counted: ")
    with server:
        while connections.store().failure:
            limiter.check(request, "any", rate="1/min")
    assert capsys.readouterr().out == "Rate limits are counted.\n"
    assert page.tell


# algorithm.md


def test_the_figures_of_the_algorithm_are_right() -> None:
    run("algorithm.md")


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_a_stretch_as_long_as_a_window_admits_up_to_2l_minus_1(limit: int) -> None:
    rate = Rate(limit, 1000)
    burst = 0
    while verdict(rate, 0, burst, 999).allowed:
        burst += 1
    later = 0
    for elapsed in range(999):  # the stretch began at 999 of the window before
        while verdict(rate, burst, later, elapsed).allowed:
            later += 1
    assert burst + later == 2 * limit - 1


def test_a_limit_of_1_waits_up_to_two_windows() -> None:
    assert retry_after(Rate.parse("1/min"), Reading(0, 1, 0), 1) == 120_000


# redis.md


def test_the_examples_of_servers_are_accepted(settings: Settings) -> None:
    for example in blocks(DOCS / "redis.md"):
        names: dict[str, Any] = {}
        exec(example, names)
        for name in names.keys() & {"CACHES", "DJANGO_REDIS_CONNECTION_FACTORY"}:
            setattr(settings, name, names[name])
        settings.SLIDINGLIMIT = names["SLIDINGLIMIT"]
        connections.redis_store()
    assert "SENTINELS" in settings.CACHES["limits"]["OPTIONS"]


def test_a_redis_user_with_the_rights_that_are_told_may_do_all(settings: Settings) -> None:
    [line] = [b for b in blocks(DOCS / "redis.md", "redis") if b.startswith("ACL SETUSER")]
    with EmbeddedServer() as server, Redis.from_url(server.url) as admin:
        admin.execute_command(*line.split())
        url = server.url.replace("unix://", "unix://limits:password@").replace("db=0", "db=1")
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": url}}
        settings.SLIDINGLIMIT = {"TIMEOUT": 5}
        request = RequestFactory().get("/")
        with limiter.walk(request):
            assert limiter.check(request, "any", key="ip", rate="2/min").allowed
            assert limiter.check(request, "other", key="ip", rate="2/min").allowed
            assert not limiter.check(request, "none", rate="0/min").allowed  # gives back
        assert limiter.check(request, "any", key="ip", rate="2/min").allowed
        publish()
        recorder.flush()
        Housekeeper().keep(connections.store().store, minute_now() + 1)
        usages = [hour.usage for hour in overview.overview().rules]
        assert {usage.rule.name for usage in usages} == {"any", "other", "none"}
        for usage in usages:
            assert busiest.of_rule(usage.fields[0], Wanted()).usage
        assert client.of_client(Client("ip", "127.0.0.1")).rules
        assert len(hour.sources(lambda _rule: True)) == 3
        assert hour.seen([usages[0].rule])
        assert hour.clients_over(usages[0].rule) == 0
        limiter.reset(request, "any", key="ip", rate="2/min")
        assert connections.store().failure is None
        # The library's own name and version are told where that is allowed.
        assert {entry["object"] for entry in admin.acl_log()} <= {"client|setinfo"}


# exchange.md


def test_the_example_of_a_file_is_imported() -> None:
    Group.objects.create(name="staff")
    [example] = blocks(DOCS / "exchange.md", "json")
    exchange.load(example)
    assert {str(row) for row in Override.objects.all()} == {
        "exempt for group staff",
        "500/min for user 42",
    }
