"""What callers are told of their own limits; `own_limits_site.py` is the site."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser, Group, User
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.utils import timezone
from rest_framework.authtoken.models import Token

from django_slidinglimit import allowances, inventory
from django_slidinglimit.api import OwnLimits
from django_slidinglimit.core.stores import StoreError
from django_slidinglimit.models import Override, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import DjangoAssertNumQueries, Settings
    from redis import Redis

    from example_project.server import EmbeddedServer

pytestmark = pytest.mark.django_db

SITE = "tests.own_limits_site"
JSON = "/limits/json/"
DOCUMENT = Path(__file__).parents[1] / "docs" / "own-limits.md"
PATIENT = {"RULES_POLL": 0, "TIMEOUT": 5}  # a busy machine is no outage


@pytest.fixture(autouse=True)
def site() -> Iterator[None]:
    with override_settings(ROOT_URLCONF=SITE, SLIDINGLIMIT=PATIENT):
        yield


def told(client: Client, path: str = JSON, **meta: Any) -> dict[str, dict[str, Any]]:
    """What a caller is told, by the rule's name."""
    response = client.get(path, **meta)
    assert response.status_code == 200
    found: dict[str, dict[str, Any]] = {}
    for limit in response.json()["limits"]:
        assert limit["name"] not in found
        found[limit["name"]] = limit
    return found


def figures(limit: dict[str, Any]) -> tuple[int, int, int]:
    return limit["limit"], limit["used"], limit["remaining"]


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def as_alice(alice: User, client: Client) -> Client:
    client.force_login(alice)
    return client


# What is told


def test_a_visitor_is_told_of_every_limit_on_its_address(client: Client) -> None:
    found = told(client)
    assert {name: (limit["limit"], limit["window"]) for name, limit in found.items()} == {
        "anon": (50, 3600),
        "burst": (6, 60),
        "export": (10, 60),
        "files": (30, 60),
        "files.write": (2, 60),
        "forms": (8, 60),
        "notes": (4, 60),
        "plan": (4, 60),
        "report": (3, 60),
        "tags": (3, 60),
    }
    assert {limit["counted_by"] for limit in found.values()} == {"ip"}


def test_each_limit_is_told_with_these_fields(client: Client) -> None:
    client.get("/report/")
    limit = told(client)["report"]
    assert 60 < limit.pop("reset") <= 120
    assert limit == {
        "name": "report",
        "resource": "report",
        "methods": [],
        "counted_by": "ip",
        "limit": 3,
        "window": 60,
        "used": 1,
        "remaining": 2,
        "retry_after": 0,
        "override": None,
        "until": None,
    }


def test_the_figures_are_those_of_the_response_fields(client: Client) -> None:
    for _ in range(2):
        response = client.get("/api/files/")
    limit = told(client)["burst"]
    assert limit["limit"] == int(response["X-RateLimit-Limit"]) == 6
    assert limit["remaining"] == int(response["X-RateLimit-Remaining"]) == 4
    assert int(response["X-RateLimit-Reset"]) - 30 <= limit["reset"]
    assert limit["reset"] <= int(response["X-RateLimit-Reset"])
    fields = dict(re.findall(r'"([\w.]+)";r=(\d+)', response["RateLimit"]))
    assert {name: int(left) for name, left in fields.items()} == {
        name: limit["remaining"]
        for name, limit in told(client).items()
        if name in ("anon", "burst", "files")
    }


def test_one_who_has_used_all_is_told_the_wait(client: Client) -> None:
    for _ in range(3):
        client.get("/report/short/")
    refused = client.get("/report/short/")
    limit = told(client)["report"]
    assert figures(limit) == (3, 3, 0)
    assert 0 < limit["retry_after"] <= int(refused["Retry-After"])


def test_nothing_is_ever_admitted_under_a_limit_of_0(client: Client) -> None:
    Rule.objects.create(name="closed", scope="report", rate="0/min")
    limit = told(client)["closed"]
    assert (figures(limit), limit["retry_after"]) == ((0, 0, 0), None)


def test_a_user_is_told_of_its_own(as_alice: Client) -> None:
    Client().get("/api/files/")
    found = told(as_alice)
    assert "anon" not in found
    assert found["burst"]["counted_by"] == "user"
    assert figures(found["burst"]) == (6, 0, 6)
    assert figures(found["plan"]) == (7, 0, 7)
    assert found["report"]["counted_by"] == "ip"


def test_the_view_of_rest_framework_knows_whom_it_has_authenticated(
    client: Client, alice: User
) -> None:
    header: Any = {"HTTP_AUTHORIZATION": f"Token {Token.objects.create(user=alice).key}"}
    client.get("/api/files/", **header)
    found = told(client, "/limits/token/", **header)
    assert figures(found["burst"]) == (6, 1, 5)
    assert found["burst"]["counted_by"] == "user"
    assert told(client, **header)["burst"]["counted_by"] == "ip"
    assert told(client, "/limits/token/")["burst"]["counted_by"] == "ip"


def test_both_views_say_the_same(as_alice: Client) -> None:
    until = timezone.now() + timedelta(hours=1)
    Override.objects.create(kind="ip", identity="127.0.0.1", effect="block", expires=until)
    plain, api = (as_alice.get(path) for path in (JSON, "/limits/api/?format=json"))
    assert json.dumps(plain.json(), sort_keys=True) == json.dumps(api.json(), sort_keys=True)


def test_an_ipv6_address_counts_as_its_network(client: Client) -> None:
    client.get("/report/", REMOTE_ADDR="2001:db8::1")
    assert figures(told(client, REMOTE_ADDR="2001:db8::ffff")["report"]) == (3, 1, 2)
    assert figures(told(client, REMOTE_ADDR="2001:db8:1::1")["report"]) == (3, 0, 3)


def test_a_header_is_an_identity_and_its_absence_none(client: Client) -> None:
    """Nor is a cost asked for, whose callable here raises."""
    assert "keyed" not in told(client)
    found = told(client, HTTP_X_API_KEY="a long and secret key")["keyed"]
    assert (found["counted_by"], figures(found)) == ("header:x-api-key", (5, 0, 5))
    assert "secret" not in client.get(JSON, HTTP_X_API_KEY="a long and secret key").text


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-www-form-urlencoded", "username=bob"),
        ("application/json", '{"username": "bob"}'),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_is_sent_along_speaks_for_nobody(
    method: str, kind: str, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    by_body = {"login", "name", "sent"}
    request = RequestFactory().generic(method, "/", body, content_type=kind)
    assert not request.POST or request.POST["username"] == "bob"
    assert {limit.name for limit in allowances.of(request).limits} & by_body == set()
    unread = RequestFactory().generic(method, "/", body, content_type=kind)
    assert {limit.name for limit in allowances.of(unread).limits} & by_body == set()
    assert unread.body == body.encode()
    assert "ParseError" not in caplog.text


def test_without_an_address_there_is_nothing_to_tell(client: Client) -> None:
    assert told(client, REMOTE_ADDR="") == {}


def test_soft_limits_and_observing_rules_are_not_told(client: Client) -> None:
    Rule.objects.create(name="secret", scope="report", rate="1/min", mode="observe")
    Rule.objects.create(name="secret too", path="/api/*", rate="1/min", mode="observe")
    Rule.objects.create(name="off", scope="forms", rate="1/min", mode="off")
    found = told(client)
    assert found.keys() & {"soft", "secret", "secret too", "off"} == set()
    assert found["report"]["limit"] == 3


# Rules


def test_a_rule_takes_the_place_of_the_codes_rate(client: Client) -> None:
    rule = Rule.objects.create(name="less", scope="report", rate="2/min")
    client.get("/report/")
    found = told(client)
    assert "report" not in found
    assert figures(found["less"]) == (2, 1, 1)
    assert found["less"]["resource"] == "report"
    rule.delete()
    assert "less" not in told(client)


def test_a_rule_of_some_methods_stands_beside_the_codes_rate(client: Client) -> None:
    Rule.objects.create(name="posts", scope="free", rate="2/min", methods="POST")
    Rule.objects.create(name="writing", scope="report", rate="1/min", methods="POST")
    found = told(client)
    assert found["posts"]["methods"] == ["POST"]
    assert found["report"]["limit"] == 3
    assert found["writing"]["limit"] == 1


def test_a_rule_for_other_methods_than_a_views_is_not_told(client: Client) -> None:
    Rule.objects.create(name="never", scope="forms", rate="2/min", methods="GET")
    assert "never" not in told(client)


def test_a_rule_of_another_kind_of_client_adds_a_limit(as_alice: Client) -> None:
    Rule.objects.create(name="each user", scope="report", rate="2/min", key="user")
    Rule.objects.create(name="everyone", scope="report", rate="9/min", key="global")
    Client(REMOTE_ADDR="192.0.2.1").get("/report/")
    found = told(as_alice)
    assert found["report"]["limit"] == 3
    assert (found["each user"]["counted_by"], figures(found["each user"])) == ("user", (2, 0, 2))
    assert (found["everyone"]["counted_by"], figures(found["everyone"])) == ("global", (9, 1, 8))


def test_rules_of_paths_are_told_where_a_view_heeds_them(client: Client) -> None:
    for name, path in {
        "beginning": "/api/*",
        "whole": "/api/files/",
        "view": "files-list",
        "converter": "api/<slug:what>/",
        "elsewhere": "/report/*",
        "another": "/api/file/",
        "below": "/api/files/5*",
        "no view": "report",
    }.items():
        Rule.objects.create(name=name, path=path, rate="9/min")
    response = client.get("/api/files/")
    found = told(client)
    assert found.keys() >= {"beginning", "whole", "view", "converter"}
    assert found.keys() & {"elsewhere", "another", "below", "no view"} == set()
    assert '"whole";r=8' in response["RateLimit"]
    assert figures(found["whole"]) == (9, 1, 8)
    assert figures(found["beginning"]) == (9, 0, 9)  # a narrower one took its place there
    assert found["beginning"]["resource"] == "/api/*"


def test_a_rule_enforced_for_a_share_is_told_to_that_share(client: Client) -> None:
    Rule.objects.create(name="trial", scope="report", rate="2/min", share=50)
    for n in range(16):
        found = told(client, REMOTE_ADDR=f"192.0.2.{n}")
        response = client.get("/report/", REMOTE_ADDR=f"192.0.2.{n}")
        assert ("trial" in found) is ('"trial"' in response["RateLimit"])


# Overrides


def override(effect: str, **fields: Any) -> Override:
    return Override.objects.create(effect=effect, **fields)


def test_another_rate_is_told_with_its_end(as_alice: Client, alice: User) -> None:
    until = timezone.now() + timedelta(hours=1)
    override("rate", rate="600/min", kind="user", identity=str(alice.pk), expires=until)
    limit = told(as_alice)["burst"]
    assert (figures(limit), limit["override"]) == ((600, 0, 600), "rate")
    assert 0 <= (datetime.fromisoformat(limit["until"]) - until).total_seconds() < 1


def test_a_blocked_client_is_told_until_when(client: Client) -> None:
    until = timezone.now() + timedelta(hours=1)
    override("block", network="192.0.2.0/24", expires=until)
    limit = told(client, REMOTE_ADDR="192.0.2.1")["report"]
    assert (figures(limit), limit["override"]) == ((3, 0, 0), "block")
    assert 3500 < limit["retry_after"] <= 3600
    assert 0 <= (datetime.fromisoformat(limit["until"]) - until).total_seconds() < 1
    assert told(client)["report"]["override"] is None


def test_a_block_without_an_end_never_ends(client: Client) -> None:
    override("block")
    limit = told(client)["report"]
    assert [limit[name] for name in ("retry_after", "reset", "until")] == [None] * 3


def test_an_exempt_client_is_told_so(as_alice: Client, alice: User) -> None:
    group = Group.objects.create(name="partners")
    alice.groups.add(group)
    override("exempt", group=group)
    as_alice.get("/api/files/")
    limit = told(as_alice)["burst"]
    assert (figures(limit), limit["override"], limit["retry_after"]) == ((6, 0, 6), "exempt", 0)


# What it costs


def counters(redis_client: Redis) -> dict[Any, Any]:
    return {key: redis_client.dump(key) for key in redis_client.keys()}  # noqa: SIM118


@pytest.mark.parametrize("path", [JSON, "/limits/api/", "/limits/"])
def test_asking_counts_nothing(as_alice: Client, redis_client: Redis, path: str) -> None:
    as_alice.get("/api/files/")
    as_alice.get("/report/")
    before = counters(redis_client)
    assert before
    found = told(as_alice)
    for _ in range(5):
        response = as_alice.get(path)
        assert response.status_code == 200
        assert response["Cache-Control"] == "no-store"
        assert "RateLimit" not in response
    assert counters(redis_client) == before
    assert [figures(limit) for limit in told(as_alice).values()] == [
        figures(limit) for limit in found.values()
    ]


@pytest.mark.parametrize("path", [JSON, "/limits/api/", "/limits/"])
def test_asking_is_one_round_trip(as_alice: Client, redis_client: Redis, path: str) -> None:
    as_alice.get(path)
    redis_client.config_resetstat()
    as_alice.get(path)
    stats: Any = redis_client.info("commandstats")
    calls = {name: count["calls"] for name, count in stats.items()}
    inner = ("cmdstat_config|resetstat", "cmdstat_info", "cmdstat_hmget", "cmdstat_time")
    assert {name: calls[name] for name in calls if name not in inner} == {"cmdstat_evalsha": 1}


@pytest.mark.django_db(transaction=True)
def test_a_visitor_costs_no_database_query_and_a_user_those_of_signing_in(
    alice: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    signed_in, visitor = Client(), Client()
    signed_in.force_login(alice)
    with override_settings(SLIDINGLIMIT={"TIMEOUT": 5}):
        told(visitor)  # loads the rules
        with django_assert_num_queries(0):
            told(visitor)
            told(visitor, "/limits/api/")
        with django_assert_num_queries(2):  # session and user
            told(signed_in)


def test_the_site_is_surveyed_once_and_anew_when_its_addresses_change(client: Client) -> None:
    told(client)
    before = inventory.current()
    told(client)
    assert inventory.current() is before
    with override_settings(ROOT_URLCONF="tests.scoped_site"):
        assert "the throttles of tests.scoped_site.Plain" in names()
    assert "report" in told(client)
    assert "the throttles of tests.scoped_site.Plain" not in names()


def names(method: str = "GET") -> list[str]:
    return [source.name for source in inventory.current().sources if source.method == method]


def test_views_alike_are_asked_once() -> None:
    found = [each for each in names() if each.startswith("the throttles")]
    assert found == [
        "the throttles of tests.own_limits_site.Files.create,list",
        "the throttles of tests.own_limits_site.Notes.create,list",
        "the throttles of tests.own_limits_site.Tags.create,list",
        "the throttles of tests.own_limits_site.Names.create,list",
        "the throttles of tests.own_limits_site.Branches.list",
    ]


def test_throttles_for_all_views_do_not_count_who_asks() -> None:
    """REST framework reads the setting as it is imported, for classes that say nothing."""
    assert vars(OwnLimits)["throttle_classes"] == ()


def test_at_most_so_many_are_told_and_how_many_are_not(client: Client) -> None:
    before = told(client).keys()
    Rule.objects.bulk_create(
        [Rule(name=f"{n}", path="/api/*", rate=f"5/{n}s") for n in range(1, allowances.MOST + 1)]
    )
    found = client.get(JSON).json()
    assert len(found["limits"]) == allowances.MOST
    assert found["left_out"] == len(before)
    assert {limit["name"] for limit in found["limits"]} > before  # rules of paths are told last


# When something is amiss


def test_a_throttle_that_cannot_be_asked_is_told_of_once(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert "branch" not in told(client)
    said = [record.getMessage() for record in caplog.records]
    assert "Branches" in said[0]
    assert "KeyError: 'branch'" in said[0]
    assert len(said) == len(set(said))


def raising(group: str, request: Any) -> str:
    raise LookupError("no tenant")


def test_a_rule_whose_key_fails_is_told_of_once(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    Rule.objects.create(name="by tenant", path="/api/*", rate="5/min", key="tenant")
    with override_settings(SLIDINGLIMIT={**PATIENT, "KEYS": {"tenant": f"{__name__}.raising"}}):
        for _ in range(2):
            assert "burst" in told(client)
    assert len([r for r in caplog.records if "no tenant" in r.getMessage()]) == 1


# Where it runs

WITHOUT_REST_FRAMEWORK = """
import sys

sys.modules["rest_framework"] = None  # cannot be imported

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="only for this test",
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": sys.argv[1]}},
    INSTALLED_APPS=[
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "django_slidinglimit",
    ],
    SLIDINGLIMIT={"RULES_POLL": 0, "TIMEOUT": 5},
)
django.setup()

from django.core.management import call_command
from django.http import HttpResponse
from django.test import Client
from django.urls import include, path

from django_slidinglimit.decorators import ratelimit


@ratelimit("report", key="ip", rate="5/min")
def report(request):
    return HttpResponse("fine")


urlpatterns = [path("report/", report), path("limits/", include("django_slidinglimit.urls"))]
call_command("migrate", verbosity=0)
Client().get("/report/")
[limit] = Client().get("/limits/json/").json()["limits"]
print(limit["name"], limit["remaining"], Client().get("/limits/api/").status_code)
"""


def test_a_project_without_rest_framework_has_the_plain_view(redis_server: EmbeddedServer) -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT_REST_FRAMEWORK, redis_server.url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (result.stdout, result.returncode) == ("report 4 404\n", 0), result.stderr


@pytest.mark.django_db(transaction=True)
def test_it_is_served_through_asgi_too() -> None:
    async def ask() -> Any:
        return (await AsyncClient().get(JSON)).json()

    found = async_to_sync(ask)()["limits"]
    assert "report" in [limit["name"] for limit in found]


@pytest.fixture
def away(settings: Settings) -> None:
    settings.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
        }
    }


@pytest.mark.parametrize("path", [JSON, "/limits/api/"])
def test_while_redis_is_away_the_answer_is_503(client: Client, away: None, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 503
    assert response["Cache-Control"] == "no-store"
    assert int(response["Retry-After"]) >= 1
    assert "cannot be told now" in response.json()["detail"]


def test_while_redis_is_away_the_page_says_so(as_alice: Client, away: None) -> None:
    response = as_alice.get("/limits/")
    assert response.status_code == 503
    assert "cannot be told now" in response.text
    assert "<table" not in response.text


def test_without_the_views_it_is_an_error_of_the_store(away: None) -> None:
    request = RequestFactory().get("/")
    request.user = AnonymousUser()
    with pytest.raises(StoreError):
        allowances.of(request)


# The page


def test_the_page_asks_visitors_to_sign_in(client: Client) -> None:
    response = client.get("/limits/")
    assert response.status_code == 302
    assert response["Location"] == "/accounts/login/?next=/limits/"
    assert response["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", [JSON, "/limits/api/", "/limits/"])
def test_the_views_only_answer_reading(as_alice: Client, path: str) -> None:
    assert as_alice.post(path).status_code == 405
    assert as_alice.head(path).status_code == 200


def test_the_page_shows_each_limit_in_words(as_alice: Client, alice: User) -> None:
    for _ in range(3):
        as_alice.get("/report/")
    override("exempt", rule=Rule.objects.create(name="plan", scope="plan", rate="7/h"))
    until = timezone.now() + timedelta(days=2)
    override("block", kind="user", identity=str(alice.pk), expires=until)
    page = " ".join(as_alice.get("/limits/").text.split())
    for text in ("Signed in as alice", "3 in 60 seconds", "Used up. Free in", "7 in 60 minutes"):
        assert text in page
    for text in ("Blocked", "Not limited", "until ", "no limit", "by address", "by user"):
        assert text in page


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><b', "{{ 7 }}", "é🎈\x00\u202e"])
def test_the_page_escapes_names(as_alice: Client, name: str) -> None:
    if "\x00" in name:
        name = name.replace("\x00", "")
    Rule.objects.create(name=name, scope="report", rate="5/min")
    page = as_alice.get("/limits/").text
    assert "<script>alert" not in page
    assert '"><b' not in page
    assert told(as_alice)[name]["limit"] == 5


# The document


def blocks(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", DOCUMENT.read_text())


@pytest.fixture
def examples() -> Any:
    """All that the document's examples define, and the addresses of all of them."""
    names: dict[str, Any] = {"__name__": "shop.urls"}
    urls: list[Any] = []
    for block in blocks("python"):
        names["urlpatterns"] = []
        exec(compile(block, str(DOCUMENT), "exec"), names)
        urls = [*names["urlpatterns"], *urls]  # later ones stand before what they take the place of
    site = ModuleType("shop_urls")
    vars(site).update(names, urlpatterns=urls)
    with override_settings(ROOT_URLCONF=site):
        yield site


def test_the_documents_addresses_are_served(as_alice: Client, examples: Any) -> None:
    for path in ("/limits/", JSON, "/limits/api/"):
        assert as_alice.get(path).status_code == 200


def test_the_document_tells_every_field(client: Client) -> None:
    shown = json.loads(blocks("json")[0])
    real = client.get(JSON).json()
    assert shown.keys() == real.keys()
    assert shown["limits"][0].keys() == real["limits"][0].keys()
    rows = re.findall(r"(?m)^\| ((?:`\w+`(?:, )?)+) \|", DOCUMENT.read_text())
    told_of = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert told_of == {*allowances.Allowance._fields, "left_out"}


def test_the_documents_answer_while_redis_is_away(client: Client, away: None) -> None:
    assert client.get(JSON).json() == json.loads(blocks("json")[1])


def test_the_documents_limits_on_the_views_count(as_alice: Client, examples: Any) -> None:
    response = as_alice.get(JSON)
    assert response["RateLimit-Policy"] == '"limits";q=60;w=60'
    assert as_alice.get("/limits/api/")["RateLimit-Policy"] == '"limits-api";q=60;w=60'
    assert figures(told(as_alice)["limits"]) == (60, 2, 58)
    assert figures(told(as_alice)["limits-api"]) == (60, 1, 59)


def test_the_documents_question_from_code(client: Client, examples: Any) -> None:
    with override_settings(ROOT_URLCONF=SITE):
        request = client.get(JSON).wsgi_request
        assert examples.may_export(request)
        client.get("/export/")
        assert not examples.may_export(request)


def test_the_page_stands_in_the_sites_own(
    as_alice: Client, settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "django_slidinglimit"
    folder.mkdir()
    (folder / "base.html").write_text(*blocks("django"))
    (tmp_path / "base.html").write_text(
        "<html><head><title>{% block title %}{% endblock %}</title>"
        "{% block extra_head %}{% endblock %}</head>"
        "<body><nav>Ours</nav>{% block content %}{% endblock %}</body></html>"
    )
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [str(tmp_path)]}]
    page = as_alice.get("/limits/").text
    assert "<title>Your limits</title>" in page
    assert "<nav>Ours</nav>" in page
    assert "own_limits.css" in page
    assert "<h1>Your limits</h1>" in page
