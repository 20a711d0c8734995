"""The preview of a rule: on its form, and on a page of its own."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser
from django.test import override_settings
from django.urls import reverse

from django_slidinglimit.core.decisions import Client
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.models import Override, Rule
from django_slidinglimit.places import code_rule
from django_slidinglimit.rules import compile_rule
from django_slidinglimit.usage import minutes
from tests.operators import staff
from tests.recorded import record

pytestmark = pytest.mark.django_db

ADD = reverse("admin:django_slidinglimit_rule_add")
PREVIEW = reverse("admin:django_slidinglimit_rule_preview")
FORM = {"name": "Search", "scope": "search", "rate": "5/min", "mode": "enforce", "share": "100"}
CODE = code_rule("search", "user", frozenset(), Rate(100, 60_000))
MARIA, PAUL = Client("user", "77"), Client("user", "78")


def of_row(row: Rule) -> str:
    return reverse("admin:django_slidinglimit_rule_preview", args=[row.pk])


def preview(browser: Browser, url: str = PREVIEW, **form: str) -> str:
    response = browser.post(f"{url}?fragment=1", {**FORM, **form})
    assert response.status_code == 200
    return text_of(response)


def text_of(response: Any) -> str:
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", response.content.decode())))


def test_it_tells_what_the_rate_would_have_refused_of_whom(admin_client: Browser) -> None:
    row = Rule.objects.create(name="Search", scope="search", rate="100/min")
    record(compile_rule(row).rule, MARIA, 1200, ago=5)
    record(compile_rule(row).rule, PAUL, 3, ago=5)
    page = preview(admin_client, of_row(row))
    assert (
        "5/min would have refused 1,195 of 1,203 requests of the last hour (99%), from 1 of 2 "
        "clients." in page
    )
    assert "user 77 1,200 1,200 1,195" in page
    assert "has counted nothing" not in page
    row.refresh_from_db()
    assert row.rate == "100/min"


def test_a_new_rule_is_tried_on_what_the_code_counted_and_says_so(admin_client: Browser) -> None:
    record(CODE, MARIA, 8)
    page = preview(admin_client, methods="POST")
    assert "would have refused 3 of 8 requests" in page
    assert "has counted nothing there yet: the traffic is what search (100/min) counted." in page
    assert "Requests of all methods" in page
    assert not Rule.objects.exists()


def test_where_minutes_are_too_coarse_it_says_so_and_gives_a_range(admin_client: Browser) -> None:
    record(CODE, MARIA, 40)
    page = preview(admin_client, rate="5/10s")
    assert "would have refused 10 to 35 of 40 requests of the last hour (25% to 88%)" in page
    assert "too coarse for a window of 10 s" in page
    record(CODE, PAUL, 4, ago=8)
    record(CODE, PAUL, 4, ago=7)
    minutes.forget()  # what is over is kept as it was read
    page = preview(admin_client, rate="5/min")
    assert "by when within their minutes the requests came" in page
    assert "too coarse" not in page


def test_the_ten_most_affected_stand_first_and_the_others_in_the_chart(
    admin_client: Browser,
) -> None:
    for number in range(45):
        record(CODE, Client("user", str(1000 + number)), 1 + number)
    response = admin_client.post(f"{PREVIEW}?fragment=1", FORM)
    affected, drawn = re.findall(r"<table.*?</table>", response.content.decode(), re.DOTALL)
    assert re.findall(r"<bdi>(\d+)</bdi>", affected) == [str(1044 - n) for n in range(10)]
    assert len(re.findall(r"<bdi>", drawn)) == 40
    assert "of the 40 busiest clients" in text_of(response)


def test_the_chart_has_a_title_a_description_and_its_numbers_in_a_table(
    admin_client: Browser,
) -> None:
    record(CODE, MARIA, 9)
    record(CODE, PAUL, 2)
    page = admin_client.post(PREVIEW, FORM).content.decode()
    title, described = re.findall(r'aria-labelledby="(\S+) (\S+)"', page)[0]
    assert f'<title id="{title}">Clients and the limit of 5/min</title>' in page
    assert re.search(rf'<desc id="{described}">5/min would have refused 4 of 11', page)
    assert re.findall(r'<rect class="sl-(\w+)" .* height="([\d.]+)"', page) == [
        ("over", "90.0"),
        ("within", "20.0"),
    ]
    assert 'd="M0 50.0H1000"' in page
    assert "style=" not in page
    assert "<script>" not in page


@override_settings(USE_THOUSAND_SEPARATOR=True, LANGUAGE_CODE="de")
def test_the_chart_is_drawn_with_plain_numbers_in_any_language(admin_client: Browser) -> None:
    record(CODE, MARIA, 1001)
    record(CODE, PAUL, 333)
    page = admin_client.post(f"{PREVIEW}?fragment=1", {**FORM, "rate": "3000/min"}).content.decode()
    drawn = re.findall(r' (?:x|y|width|height)="([^"]*)"', page)
    assert len(drawn) == 8
    assert all(re.fullmatch(r"\d+(\.\d+)?", number) for number in drawn)
    assert "1.001" in page


def test_without_recorded_traffic_it_says_so(admin_client: Browser) -> None:
    assert "Nothing is recorded yet of what this rule would count" in preview(admin_client)
    with override_settings(SLIDINGLIMIT={"RULES_POLL": 0, "USAGE": False}):
        page = preview(admin_client)
    assert 'because the setting SLIDINGLIMIT["USAGE"] is False' in page


def test_who_is_left_out_and_that_an_observing_rule_refuses_nothing_is_said(
    admin_client: Browser,
) -> None:
    row = Rule.objects.create(name="Search", scope="search", rate="100/min", share=40)
    for client in (MARIA, PAUL):
        record(compile_rule(row).rule, client, 9)
    Override.objects.create(rule=row, kind="user", identity="78", effect="rate", rate="99/min")
    page = preview(admin_client, of_row(row), mode="observe", methods="GET")
    assert "from 1 of 1 clients" in page
    assert "1 client that has an override is left out." in page
    assert "The traffic is that of the methods that the rule had so far." in page
    assert "The rule has counted 40% of clients so far" in page
    assert "While the rule only observes, it refuses nothing of this." in page


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rate": "10/month"}, "'month' in '10/month' is not a unit"),
        ({"rate": ""}, "'' is not a rate"),
        ({"scope": ""}, "Give either a scope or a path."),
        ({"path": "api/*"}, "Give either a scope or a path."),
        ({"scope": "", "path": "a*b"}, "* may stand only at the end"),
        ({"key": "nobody"}, "'nobody' is not a key"),
        ({"mode": ""}, "is not a valid"),
        ({"share": "most"}, "invalid literal"),
        ({"scope": "", "path": "<int:a>/" * 26}, "path: at most 200 characters"),
    ],
)
def test_a_rule_that_makes_no_sense_has_none_and_the_part_is_named(
    admin_client: Browser, wrong: dict[str, str], message: str
) -> None:
    page = preview(admin_client, **wrong)
    assert "There is no preview of this rule:" in page
    assert message in page


def test_a_saved_row_that_makes_no_sense_can_be_mended_and_previewed(admin_client: Browser) -> None:
    row = Rule.objects.create(name="Search", scope="search", rate="5/fortnight")
    record(CODE, MARIA, 8)
    assert "would have refused 3 of 8" in preview(admin_client, of_row(row))


@override_settings(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
        }
    }
)
def test_with_redis_away_it_says_that(admin_client: Browser) -> None:
    assert "Redis does not answer" in preview(admin_client)


def test_clients_are_told_to_those_who_may_see_usage_and_named_if_they_may_see_users() -> None:
    browser = staff("add_rule", "view_user", "view_usage")
    maria = User.objects.create_user("maria")
    record(CODE, Client("user", str(maria.pk)), 8)
    page = browser.post(PREVIEW, FORM).content.decode()
    assert "<bdi>maria</bdi></a>" in page
    page = staff("add_rule", "view_usage").post(PREVIEW, FORM).content.decode()
    assert "maria" not in page
    assert f"<bdi>{maria.pk}</bdi>" in page
    page = preview(staff("add_rule"))
    assert "would have refused" in page
    assert "takes the permission to view usage" in page
    assert str(maria.pk) not in page.partition("would have refused")[2]


def test_it_is_for_those_who_may_write_rules() -> None:
    row = Rule.objects.create(name="Search", scope="search", rate="100/min")
    adds = staff("add_rule")
    assert adds.post(PREVIEW, FORM).status_code == 200
    assert adds.post(of_row(row), FORM).status_code == 403
    assert PREVIEW in adds.get(ADD).content.decode()
    changes = staff("view_rule", "change_rule")
    assert changes.post(PREVIEW, FORM).status_code == 403
    assert changes.post(of_row(row), FORM).status_code == 200
    form = reverse("admin:django_slidinglimit_rule_change", args=[row.pk])
    assert of_row(row) in changes.get(form).content.decode()
    looks = staff("view_rule", "view_usage")
    for url in (PREVIEW, of_row(row)):
        assert looks.post(url, FORM).status_code == 403
        assert Browser().post(url, FORM).status_code == 302
    assert of_row(row) not in looks.get(form).content.decode()


def test_it_is_a_post_with_a_token_for_a_row_that_there_is(
    admin_client: Browser, admin_user: User
) -> None:
    assert admin_client.get(PREVIEW).status_code == 405
    gone = reverse("admin:django_slidinglimit_rule_preview", args=[404])
    assert admin_client.post(gone, FORM).status_code == 404
    browser = Browser(enforce_csrf_checks=True)
    browser.force_login(admin_user)
    assert browser.post(PREVIEW, FORM).status_code == 403


def test_the_page_is_whole_and_the_fragment_is_not(admin_client: Browser) -> None:
    whole = admin_client.post(PREVIEW, FORM)
    part = admin_client.post(f"{PREVIEW}?fragment=1", FORM)
    assert b"<html" in whole.content
    assert b"<html" not in part.content
    for response in (whole, part):
        assert "no-store" in response["Cache-Control"]
