import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
from django.http import HttpRequest
from django.template import TemplateDoesNotExist
from django.test import RequestFactory, override_settings
from django.utils import timezone, translation
from rest_framework.exceptions import Throttled
from rest_framework.renderers import BrowsableAPIRenderer, JSONRenderer
from rest_framework.request import Request

from django_slidinglimit import refusal
from django_slidinglimit.core.decisions import Answer, Client, Decision, Hit, Rule, Verdict
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.models import Override
from tests.throttled_api import ALICE, BOB, Limited, call


def refused(*waits: int | None, blocked: bool = False) -> Decision:
    """A decision that refuses for so many milliseconds, by a rule each."""
    hit = Hit(Rule("r", Rate(5, 60_000)), Client("ip", "192.0.2.1"))
    verdicts = [Verdict(False, 5, 0, wait, 0) for wait in waits]
    return Decision(tuple(Answer(hit, v, None, blocked=blocked) for v in verdicts))


def get(accept: str = "*/*") -> HttpRequest:
    return RequestFactory().get("/", headers={"accept": accept})


def templates(**sources: str) -> Any:
    loader = ("django.template.loaders.locmem.Loader", sources)
    return override_settings(
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {
                    "loaders": [loader],
                    "context_processors": ["django.template.context_processors.request"],
                },
            }
        ]
    )


@pytest.fixture(autouse=True)
def no_template() -> Iterator[None]:
    with override_settings(TEMPLATES=[]):
        yield


def test_without_a_template_or_an_engine_a_plain_page_says_when_to_try_again() -> None:
    response = refusal.response(get(), refused(11_001))
    page = response.content.decode()
    assert response.status_code == 429
    assert response["Content-Type"] == "text/html; charset=utf-8"
    assert "<title>Too many requests</title>" in page
    assert "<p>Try again in 12 seconds.</p>" in page
    assert "style" not in page
    assert "script" not in page


def test_the_plain_page_says_so_when_waiting_does_not_help() -> None:
    page = refusal.response(get(), refused(None)).content.decode()
    assert "cannot be admitted, however long you wait" in page
    assert "Try again" not in page


def test_the_plain_page_names_its_language() -> None:
    with translation.override("de"):
        assert '<html lang="de">' in refusal.response(get(), refused(1)).content.decode()
    with translation.override(None):
        assert '<html lang="en">' in refusal.response(get(), refused(1)).content.decode()


def test_the_projects_template_gets_the_decision_the_wait_and_the_request() -> None:
    source = "{{ retry_after }} {{ decision.allowed }} {{ request.path }}"
    with templates(**{"429.html": source}):
        response = refusal.response(get(), refused(11_001))
    assert response.status_code == 429
    assert response.content == b"12 False /"


def test_a_fault_in_the_projects_template_is_not_hidden() -> None:
    with (
        templates(**{"429.html": '{% extends "absent.html" %}'}),
        pytest.raises(TemplateDoesNotExist, match=r"absent\.html"),
    ):
        refusal.response(get(), refused(1))


@pytest.mark.parametrize(
    ("accept", "is_json"),
    [
        ("*/*", False),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", False),
        ("application/json", True),
        ("application/json, text/html;q=0.9", True),
        ("application/json;q=0.5, text/html", False),
        ("image/png", False),
        ("rubbish", False),
    ],
)
def test_who_prefers_json_gets_json(accept: str, is_json: bool) -> None:
    response = refusal.response(get(accept), refused(1))
    assert (response["Content-Type"] == "application/json") is is_json


def test_json_tells_the_wait_in_whole_seconds() -> None:
    for wait, told in ((1, 1), (1000, 1), (11_001, 12), (None, None)):
        response = refusal.response(get("application/json"), refused(wait))
        assert json.loads(response.content) == {
            "detail": "Too many requests.",
            "retry_after": told,
        }


def until(*waits: timedelta) -> tuple[str, set[str]]:
    """What a block of these times is told by, and what it may say as the minute may change."""
    found = refused(*(int(wait / timedelta(milliseconds=1)) for wait in waits), blocked=True)
    before = datetime.now(UTC)
    told = refusal.blocked(found)
    ends = [now + max(waits) + timedelta(seconds=59) for now in (before, datetime.now(UTC))]
    return told, {f"Blocked until {end:%Y-%m-%d %H:%M} UTC." for end in ends}


def test_a_block_is_named_with_its_end_and_that_is_never_too_early() -> None:
    for waits in ((timedelta(hours=1),), (timedelta(days=40), timedelta(milliseconds=1))):
        told, expected = until(*waits)
        assert told in expected
    assert refusal.blocked(refused(1000, None, blocked=True)) == "Blocked."
    assert refusal.blocked(refused(1000, None)) == ""


def test_a_blocked_client_is_told_so_in_json_and_on_the_page() -> None:
    decision = refused(3_600_000, blocked=True)
    response = refusal.response(get("application/json"), decision)
    told = json.loads(response.content)["detail"]
    assert told.startswith("Blocked until 2")
    page = refusal.response(get(), decision).content.decode()
    assert "<p>Blocked until 2" in page
    assert "Try again" not in page
    with templates(**{"429.html": "{{ blocked }}"}):
        assert refusal.response(get(), decision).content.startswith(b"Blocked until 2")


def test_what_drf_negotiated_goes_before_accept() -> None:
    request: Any = Request(get("text/html"))
    request.accepted_renderer = JSONRenderer()
    assert refusal.response(request, refused(1))["Content-Type"] == "application/json"
    request = Request(get("application/json"))
    request.accepted_renderer = BrowsableAPIRenderer()
    assert refusal.response(request, refused(1))["Content-Type"].startswith("text/html")


def test_the_projects_template_is_used_under_drf_too() -> None:
    with templates(**{"429.html": "{{ request.path }} {{ retry_after }}"}):
        assert refusal.response(Request(get()), refused(1)).content == b"/ 1"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1, "1 second"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (121, "3 minutes"),
        (7140, "119 minutes"),
        (7141, "2 hours"),
        (47 * 3600, "47 hours"),
        (47 * 3600 + 1, "2 days"),
        (14 * 86400, "14 days"),
    ],
)
def test_a_wait_in_words_is_never_shorter_than_the_wait(seconds: int, words: str) -> None:
    with translation.override("en"):
        assert refusal.in_words(seconds) == words


@pytest.mark.django_db
def test_a_throttled_client_that_is_blocked_is_told_so_but_not_why() -> None:
    soon = timezone.now() + timedelta(hours=1)
    override = Override.objects.create(
        kind="user", identity="42", effect="block", expires=soon, reason="abuse"
    )
    response = call(Limited.as_view(), user=ALICE)
    assert response.status_code == 429
    end = soon + timedelta(seconds=59, microseconds=999_999)
    told = f"Blocked until {end.astimezone(UTC):%Y-%m-%d %H:%M} UTC."
    assert str(response.data["detail"]).startswith(told)
    assert int(response["Retry-After"]) <= 3600
    assert call(Limited.as_view(), user=BOB).status_code == 200
    Override.objects.filter(pk=override.pk).update(expires=None)
    assert call(Limited.as_view(), user=ALICE).data["detail"] == "Blocked."


@pytest.mark.django_db
def test_a_views_own_answer_to_throttling_goes_before_ours() -> None:
    class Own(Limited):
        def throttled(self, request: Request, wait: float | None) -> NoReturn:
            raise Throttled(wait, "Not now.")

    Override.objects.create(kind="user", identity="42", effect="block")
    assert call(Own.as_view(), user=ALICE).data["detail"] == "Not now."


def page(wait_ms: int = 5000) -> str:
    return refusal.response(get(), refused(wait_ms)).content.decode()


def test_a_template_that_is_added_is_found_under_debug_and_else_after_a_restart(
    tmp_path: Path,
) -> None:
    loaders = [("django.template.loaders.filesystem.Loader", [str(tmp_path)])]
    engine = {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "OPTIONS": {"loaders": loaders},
    }
    with override_settings(TEMPLATES=[engine]):
        assert "Try again" in page()
        (tmp_path / "429.html").write_text("our own")
        assert "Try again" in page()
        with override_settings(DEBUG=True):
            assert page() == "our own"
        assert page() == "our own"  # a change of settings is as good as a restart


def test_the_plain_page_is_told_in_each_language_and_of_each_wait() -> None:
    seen = set()
    for language in ("en", "de"):
        with translation.override(language):
            seen |= {page(wait) for wait in (5000, 4999, 300_000)}
            assert f'lang="{language}"' in page()
    assert len(seen) == 4
