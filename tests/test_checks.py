from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.checks import Error as CheckError
from django.test import override_settings
from django.urls import clear_url_caches, include, path
from rest_framework.decorators import action
from rest_framework.request import Request  # noqa: TC002
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.throttling import ScopedRateThrottle as TheirScopedRateThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_slidinglimit import checks, decorators
from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.models import Rule
from django_slidinglimit.throttling import RuleThrottle, ScopedRateThrottle, UserRateThrottle

REDIS = "django_redis.cache.RedisCache"


def alias(location: Any, backend: str = REDIS, **options: Any) -> dict[str, Any]:
    return {"BACKEND": backend, "LOCATION": location, "OPTIONS": options}


# An alias of its own for limits: nothing to warn of.
GOOD = {"default": alias("redis://redis/0"), "limits": alias("redis://redis/1")}


@pytest.fixture(autouse=True)
def no_own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests' decorators are none of ours."""
    monkeypatch.setattr(decorators, "own_keys", set())


def found(caches: dict[str, Any] = GOOD, **parts: Any) -> list[CheckMessage]:
    """What the checks say of such settings."""
    with override_settings(CACHES=caches, SLIDINGLIMIT={"CACHE": "limits"} | parts):
        messages = run_checks(tags=["slidinglimit"], databases=[])
    # Other tests' throttles are none of ours.
    return [message for message in messages if message.id != "slidinglimit.W030"]


def ids(messages: list[CheckMessage]) -> list[str]:
    assert all(message.hint for message in messages)
    return sorted(str(message.id).removeprefix("slidinglimit.") for message in messages)


def key(group: str, request: object) -> str:
    return "one"


no_key = "not callable"


def test_says_nothing_of_good_settings() -> None:
    assert found() == []
    assert found(KEYS={"tenant": "tests.test_checks.key"}, TRUSTED_PROXIES=["10.0.0.0/8"]) == []


@pytest.mark.parametrize(
    ("number", "part", "value"),
    [
        ("E002", "CACHE", "nowhere"),
        ("E003", "PREFIX", "{sl}"),
        ("E004", "TIMEOUT", 0),
        ("E005", "BUCKETS", 0),
        ("E006", "TRUSTED_PROXIES", ["10.0.0.1/8"]),
        ("E007", "FORWARDED_HEADER", "Forwarded"),
        ("E008", "IPV6_PREFIX", 0),
        ("E009", "KEYS", {"tenant": "tests.test_checks.missing"}),
        ("E009", "KEYS", {"tenant": "tests.nowhere.key"}),
        ("E009", "KEYS", {"tenant": "tests.test_checks.no_key"}),
        ("E009", "KEYS", {"user": "tests.test_checks.key"}),
        ("E009", "KEYS", {"get:x": "tests.test_checks.key"}),
        ("E010", "HEADERS", ["retry-after"]),
        ("E011", "RESET", "date"),
        ("E012", "RULES_POLL", -1),
        ("E013", "USAGE", 1),
        ("E014", "BUCKET", 1),
        ("E017", "USAGE_KEEP", 59),
        ("E018", "USAGE_MEMORY", 1),
        ("E019", "USAGE_HASHED", None),
        ("E020", "USAGE_POLL", 0.5),
    ],
)
def test_a_wrong_part_has_an_error_of_its_own(number: str, part: str, value: Any) -> None:
    [message] = found(**{part: value})
    assert ids([message]) == [number]
    assert isinstance(message, CheckError)
    assert message.msg.startswith(f"SLIDINGLIMIT[{part!r}]: ")


def test_a_setting_that_is_no_dict_has_an_error_of_its_own() -> None:
    with override_settings(SLIDINGLIMIT="limits"):
        [message] = checks.check_setting()
    assert ids([message]) == ["E001"]


def test_every_wrong_part_is_told_at_once() -> None:
    messages = found(
        CACHE="nowhere", TIMEOUT=0, RESET="date", BUCKET=1, KEYS={"ip": "a.b", "x": "c.d"}
    )
    assert ids(messages) == ["E002", "E004", "E009", "E009", "E009", "E011", "E014"]


def test_a_key_whose_module_fails_in_its_own_way_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_key.py").write_text("raise RuntimeError('not today')")
    monkeypatch.syspath_prepend(tmp_path)
    [message] = found(KEYS={"tenant": "failing_key.key"})
    assert ids([message]) == ["E009"]
    assert "not today" in message.msg


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (alias("", "django.core.cache.backends.locmem.LocMemCache"), "locmem.LocMemCache"),
        (alias("", "django.core.cache.backends.dummy.DummyCache"), "dummy.DummyCache"),
        (alias("redis://x", "django.core.cache.backends.redis.RedisCache"), "redis.RedisCache"),
        (alias("redis://x", "nowhere.Cache"), "nowhere"),
        (alias(""), "Missing connections string"),
        (alias("http://x"), "must specify"),
        (
            alias(["redis://x", "redis://y"], CLIENT_CLASS="django_redis.client.ShardClient"),
            "ShardClient",
        ),
        (alias("redis://x", CONNECTION_FACTORY="nowhere.Factory"), "nowhere"),
        (alias("redis://x") | {"KEY_PREFIX": "{x}"}, "braces"),
    ],
)
def test_a_cache_that_cannot_count_for_all_processes_is_an_error(
    limits: dict[str, Any], told: str
) -> None:
    messages = found({"default": alias("redis://redis"), "limits": limits})
    assert ids(messages) == ["E002"]
    assert "'limits'" in messages[0].msg
    assert told in messages[0].msg


@pytest.mark.parametrize(
    ("other", "limits"),
    [
        ("redis://redis/1", "redis://redis/1"),
        ("redis://redis:6379/0", "redis://redis"),
        ("redis://:secret@localhost/1", "redis://127.0.0.1:6379?db=1"),
        ("redis://redis/1,redis://replica/1", ["redis://redis/1", "redis://other/1"]),
        ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
    ],
)
@pytest.mark.parametrize("backend", [REDIS, "django.core.cache.backends.redis.RedisCache"])
def test_warns_of_a_database_that_another_cache_may_clear(
    other: Any, limits: Any, backend: str
) -> None:
    caches = GOOD | {"other": alias(other, backend), "limits": alias(limits)}
    [message] = found(caches)
    assert ids([message]) == ["W001"]
    assert "'other'" in message.msg


@pytest.mark.parametrize(
    ("other", "limits"),
    [
        (alias("redis://redis/0"), alias("redis://redis/1")),
        (alias("redis://redis/1"), alias("redis://redis2/1")),
        (alias("redis://redis:6380/1"), alias("redis://redis/1")),
        (alias("redis://redis", CONNECTION_POOL_KWARGS={"db": 2}), alias("redis://redis")),
        (alias("unix:///run/redis.sock?db=1"), alias("unix:///run/redis.sock?db=2")),
        (alias("", "django.core.cache.backends.locmem.LocMemCache"), alias("redis://redis/1")),
    ],
)
def test_does_not_warn_of_a_database_of_its_own(
    other: dict[str, Any], limits: dict[str, Any]
) -> None:
    assert found({"default": other, "limits": limits}) == []


def test_warns_of_the_default_cache_which_projects_clear() -> None:
    [message] = found({"default": alias("redis://redis/1")}, CACHE="default")
    assert ids([message]) == ["W001"]


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0"])
def test_warns_when_everybody_is_a_trusted_proxy(network: str) -> None:
    [message] = found(TRUSTED_PROXIES=["10.0.0.0/8", network])
    assert ids([message]) == ["W002"]
    assert repr(network) in message.msg


def test_a_key_that_a_decorator_names_and_that_cannot_be_imported_is_an_error() -> None:
    ratelimit("a", key="tests.test_checks.key")
    assert found() == []
    ratelimit("a", key="tests.test_checks.missing")
    [message] = found()
    assert ids([message]) == ["E015"]
    assert "tests.test_checks.missing" in message.msg


def test_warns_of_throttle_rates_that_would_raise() -> None:
    rates = {"a": "10/month", "b": "10/min", "c": None, "d": "10/5m"}
    with override_settings(REST_FRAMEWORK={"DEFAULT_THROTTLE_RATES": rates}):
        [message] = found()
    assert ids([message]) == ["W003"]
    assert "['a']" in message.msg
    assert "write it as" in message.msg


class Mistyped(APIView):
    throttle_classes: Any = (ScopedRateThrottle,)
    throttle_scope = "serach"


class Files(ViewSet):
    throttle_classes = (ScopedRateThrottle,)
    throttle_scope = ""

    @action(detail=False, throttle_scope="uplaod")
    def upload(self, request: Request) -> Response:
        return Response()


class OnlyRules(Mistyped):
    throttle_classes = (RuleThrottle,)


class ByItsOwn(Mistyped):
    throttle_classes = (type("Own", (UserRateThrottle,), {"scope": "undeclared"}),)
    throttle_scope = ""


class Theirs(Mistyped):
    throttle_classes = (TheirScopedRateThrottle,)


class Right(Mistyped):
    throttle_classes = (
        type("Own", (ScopedRateThrottle,), {"THROTTLE_RATES": {"serach": None}}),
        RuleThrottle,
    )


class Unread(Mistyped):
    throttle_classes = (UserRateThrottle,)


class Dynamic(Unread):
    def get_throttles(self) -> Any:
        return [ScopedRateThrottle()]


urlpatterns: list[Any] = []
RATES = {"DEFAULT_THROTTLE_RATES": {"user": "9/min"}}


def found_of(*views: Any) -> list[CheckMessage]:
    """What the checks say of views deep in the URLs."""
    urlpatterns[:] = [path("<int:n>/", include([path("x/", view) for view in views]))]
    clear_url_caches()
    with override_settings(ROOT_URLCONF=__name__, REST_FRAMEWORK=RATES):
        return found()


@pytest.mark.parametrize(
    ("view", "names"),
    [
        (Mistyped.as_view(), ["Mistyped", "serach"]),
        (Files.as_view({"get": "upload"}, throttle_scope="uplaod"), ["Files.upload", "uplaod"]),
        (OnlyRules.as_view(), ["OnlyRules", "serach"]),
        (ByItsOwn.as_view(), ["ByItsOwn", "undeclared"]),
        (Theirs.as_view(), ["Theirs", "serach"]),
        (Right.as_view(throttle_classes=[ScopedRateThrottle]), ["Right", "serach"]),
    ],
)
def test_a_throttle_scope_that_is_not_declared_is_an_error(view: Any, names: list[str]) -> None:
    [message] = found_of(view)
    assert ids([message]) == ["E016"]
    assert isinstance(message, CheckError)
    assert [name for name in names if name not in message.msg] == []


def test_routers_actions_are_looked_at() -> None:
    router = SimpleRouter()
    router.register("files", Files, basename="files")
    [url] = router.urls
    [message] = found_of(url.callback)
    assert ids([message]) == ["E016"]
    assert "uplaod" in message.msg


def test_a_declared_scope_is_no_error() -> None:
    assert found_of(Right.as_view(), Dynamic.as_view(), Mistyped.as_view(throttle_scope="")) == []
    assert found_of(Mistyped.as_view(throttle_scope="user")) == []


def test_warns_of_a_throttle_scope_that_no_throttle_reads() -> None:
    [message] = found_of(Unread.as_view())
    assert ids([message]) == ["W004"]
    assert "'serach'" in message.msg


def found_in_database(databases: list[str] | None = None) -> list[CheckMessage]:
    """What `check --database` says of the rules."""
    wanted = {"REST_FRAMEWORK": {"DEFAULT_THROTTLE_RATES": {"user": "9/min", "later": None}}}
    with override_settings(ROOT_URLCONF="tests.urls", **wanted):
        messages = run_checks(tags=["slidinglimit"], databases=databases or ["default"])
    return [m for m in messages if m.id in {f"slidinglimit.W00{n}" for n in (5, 6, 7)}]


@pytest.fixture
def no_scopes(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests' decorators are none of ours."""
    monkeypatch.setattr(decorators, "scopes", set())


@pytest.mark.usefixtures("no_scopes")
def test_warns_of_a_rule_for_a_scope_that_nobody_uses() -> None:
    Rule.objects.create(name="l", scope="later", rate="5/min")
    Rule.objects.create(name="Usr", scope="usr", rate="5/min")
    Rule.objects.create(name="View", path="admin:nowhere", rate="5/min")
    Rule.objects.create(name="Index", path="admin:index", rate="5/min")
    messages = found_in_database()
    assert ids(messages) == ["W005", "W005"]
    assert "'usr'" in messages[0].msg
    assert "'admin:nowhere'" in messages[1].msg


@pytest.mark.usefixtures("no_scopes")
def test_warns_of_a_scope_with_neither_a_rule_nor_a_rate() -> None:
    [message] = found_in_database()
    assert ids([message]) == ["W006"]
    assert "'later'" in message.msg
    Rule.objects.create(name="l", scope="later", rate="5/min", mode="observe")
    assert found_in_database() == []


@pytest.mark.usefixtures("no_scopes")
def test_warns_of_rules_that_say_the_same() -> None:
    for name, rate in (("One", "5/min"), ("Two", "7/min"), ("Three", "7/h")):
        Rule.objects.create(name=name, scope="later", rate=rate)
    [message] = found_in_database()
    assert ids([message]) == ["W007"]
    assert "One" in message.msg
    assert "Two" in message.msg
    assert "Three" not in message.msg


def test_rules_of_another_database_are_not_read() -> None:
    assert found_in_database(["other"]) == []


def test_manage_py_check_reads_the_database_only_if_asked_and_bears_one_without_tables(
    tmp_path: Path,
) -> None:
    nothing = "import os\nos.environ.pop('SLIDINGLIMIT_TEST_POSTGRES', None)\n"
    settings = (
        f"{nothing}DATABASES = {{'default': {{'ENGINE': 'django.db.backends.sqlite3',"
        f" 'NAME': {str(tmp_path / 'db')!r}}}}}\nROOT_URLCONF = 'own_urls'"
    )
    (tmp_path / "own_urls.py").write_text(
        "from django.urls import path\n"
        "from django_slidinglimit.decorators import ratelimit\n"
        "@ratelimit('bare')\n"
        "def view(request): ...\n"
        "urlpatterns = [path('', view)]\n"
    )
    check = ("-m", "django", "check", "--database", "default")
    without = run(tmp_path, settings, *check)
    assert "slidinglimit.W00" not in without.stderr.replace("W001", "")
    assert without.returncode == 0
    assert run(tmp_path, settings, "-m", "django", "migrate").returncode == 0
    assert "slidinglimit.W006" in run(tmp_path, settings, *check).stderr
    assert "slidinglimit.W006" not in run(tmp_path, settings, *check[:3]).stderr


def test_nothing_is_connected_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        found(GOOD | {"limits": alias(f"redis://127.0.0.1:{port}/1")})
        with pytest.raises(TimeoutError):
            server.accept()


def run(tmp_path: Path, settings: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python with settings of its own."""
    (tmp_path / "own_settings.py").write_text(f"from tests.settings import *\n{settings}\n")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1])])
    environment = os.environ | {"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "own_settings"}
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )


def test_manage_py_check_really_tells(tmp_path: Path) -> None:
    wrong = run(tmp_path, "SLIDINGLIMIT = {'TIMEOUT': 0}", "-m", "django", "check")
    assert wrong.returncode == 1
    assert "slidinglimit.E004" in wrong.stderr
    right = run(tmp_path, "SLIDINGLIMIT = {}", "-m", "django", "check")
    assert right.returncode == 0


WITHOUT_DRF = """
import sys
sys.modules["rest_framework"] = None
from django.core.management import execute_from_command_line
execute_from_command_line(["django", "check"])
"""


def test_a_project_without_drf_is_checked(tmp_path: Path) -> None:
    settings = (
        "INSTALLED_APPS = [a for a in INSTALLED_APPS if not a.startswith('rest_framework')]\n"
        "ROOT_URLCONF = 'own_urls'\n"
        "SLIDINGLIMIT = {'TIMEOUT': 0}"
    )
    (tmp_path / "own_urls.py").write_text("urlpatterns = []")
    checked = run(tmp_path, settings, "-c", WITHOUT_DRF)
    assert "slidinglimit.E004" in checked.stderr
    assert "Traceback" not in checked.stderr


def test_every_part_has_an_id_and_no_two_the_same() -> None:
    numbers = [number for number, _ in (*checks.PARTS.values(), checks.UNKNOWN)]
    assert sorted(set(numbers)) == sorted(numbers)
