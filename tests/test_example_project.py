"""The example project: its limits, and that it is set up without a complaint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user_model
from rest_framework.authtoken.models import Token

from django_slidinglimit.models import Rule
from example_project import samples
from example_project import settings as example

if TYPE_CHECKING:
    from django.test import Client
    from pytest_django import Settings

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parents[1]
ITEM = {"name": "Tray", "price": "12.00"}


@pytest.fixture(autouse=True)
def served_here(settings: Settings) -> None:
    """Serve the example's addresses under its limits, with this session's Redis."""
    settings.ROOT_URLCONF = example.ROOT_URLCONF
    settings.REST_FRAMEWORK = example.REST_FRAMEWORK
    settings.SLIDINGLIMIT = {**example.SLIDINGLIMIT, "CACHE": "default", "RULES_POLL": 0}
    settings.LOGIN_URL = example.LOGIN_URL
    settings.LOGIN_REDIRECT_URL = example.LOGIN_REDIRECT_URL


@pytest.fixture
def as_alice() -> dict[str, str]:
    """What alice's requests are known by."""
    alice = get_user_model()._default_manager.create_user("alice", password="wonderland")
    return {"Authorization": f"Token {Token.objects.create(user=alice).key}"}


def statuses(client: Client, path: str, count: int, **headers: str) -> list[int]:
    return [client.get(path, headers=headers).status_code for _ in range(count)]


def sign_in(client: Client, name: str, password: str = "wrong", address: str = "::1") -> int:
    form = {"username": name, "password": password}
    return client.post("/login/", form, REMOTE_ADDR=address).status_code


def test_the_list_has_a_limit_for_each_client(client: Client, as_alice: dict[str, str]) -> None:
    assert statuses(client, "/api/items/", 61) == [200] * 60 + [429]
    assert client.get("/api/items/").headers["Retry-After"]
    assert statuses(client, "/api/items/", 1, **as_alice) == [200]


def test_the_search_finds_and_has_a_limit_of_its_own(client: Client) -> None:
    samples.install()
    Rule.objects.all().delete()
    assert statuses(client, "/api/items/", 61)[-1] == 429
    found = client.get("/api/items/search/?q=te")
    assert [item["name"] for item in found.json()] == ["Notebook", "Teapot"]
    assert found.headers["X-RateLimit-Limit"] == "60"
    assert found.headers["X-RateLimit-Remaining"] == "59"


def test_who_writes_signs_in_and_has_a_limit_of_its_own(
    client: Client, as_alice: dict[str, str]
) -> None:
    refused = client.post("/api/items/", ITEM)
    written = client.post("/api/items/", ITEM, headers=as_alice)
    assert refused.status_code == 401
    assert written.status_code == 201
    assert written.headers["X-RateLimit-Limit"] == "10"
    assert client.get(f"/api/items/{written.json()['id']}/").json()["price"] == "12.00"


def test_the_samples_leave_alice_free_and_stop_the_attacker(client: Client) -> None:
    alice, _bob, attacker = (dict(caller.headers) for caller in samples.install())
    assert statuses(client, "/api/items/", 31, **attacker) == [200] * 30 + [429]
    assert statuses(client, "/api/items/search/", 11, **attacker) == [200] * 11
    one = client.get("/api/items/", headers=alice)
    assert one.status_code == 200
    assert one.headers["RateLimit-Policy"] == (
        '"Item list";q=30;w=60, "API, by the hour";q=2000;w=3600'
    )


def test_the_login_page_stops_many_tries_from_one_address(client: Client) -> None:
    assert [client.get("/login/").status_code for _ in range(6)] == [200] * 6
    assert [sign_in(client, f"user{n}") for n in range(6)] == [200] * 5 + [429]
    assert sign_in(client, "user0", address="2001:db8::1") == 200


def test_the_login_page_stops_many_tries_at_one_name(client: Client) -> None:
    tries = [sign_in(client, "alice", address=f"192.0.2.{n}") for n in range(21)]
    assert tries == [200] * 20 + [429]
    assert sign_in(client, "bob", address="192.0.2.20") == 200


def test_the_login_page_lets_people_in(client: Client, as_alice: dict[str, str]) -> None:
    assert sign_in(client, "alice", "wonderland") == 302
    assert client.get("/api/items/").wsgi_request.user.is_authenticated
    assert client.get("/", follow=True).status_code == 200


def test_the_settings_and_the_application_are_in_order() -> None:
    code = "from example_project.wsgi import application; import manage"
    for command in (["manage.py", "check"], ["-c", code]):
        result = subprocess.run(
            [sys.executable, "-W", "error", *command],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name[:6] != "DJANGO"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert "WARNINGS" not in result.stderr


def test_callers_are_told_their_limits(client: Client) -> None:
    alice, _bob, _attacker = (dict(caller.headers) for caller in samples.install())
    client.get("/api/items/", headers=alice)
    assert client.get("/limits/", follow=True).redirect_chain == [("/login/?next=/limits/", 302)]
    client.force_login(get_user_model()._default_manager.get(username="alice"))
    told = {
        limit["name"]: (limit["counted_by"], limit["used"])
        for limit in client.get("/limits/api/").json()["limits"]
    }
    assert told["Item list"] == ("user", 1)
    assert told["login"] == ("ip", 0)
    assert "Item list" in client.get("/limits/").text
