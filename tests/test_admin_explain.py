"""The page "Which rules apply?", and what the rules' list and form know of the code."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import TYPE_CHECKING, Any, cast

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client as Browser
from django.test import override_settings
from django.urls import reverse
from django.utils import timezone

from django_slidinglimit.core.decisions import Client
from django_slidinglimit.explanation import Explanation, Question, explain
from django_slidinglimit.models import Override, Rule
from tests.operators import staff
from tests.throttled_api import commands, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis
    from rest_framework.response import Response

pytestmark = pytest.mark.django_db

SITE = "tests.scoped_site"
URL = "/admin/django_slidinglimit/rule/explain/"


@pytest.fixture(autouse=True)
def site() -> Iterator[None]:
    rates = {"DEFAULT_THROTTLE_RATES": {"site.declared": None}}
    patient = {"RULES_POLL": 0, "TIMEOUT": 10}  # a busy machine is no outage
    with override_settings(ROOT_URLCONF=SITE, REST_FRAMEWORK=rates, SLIDINGLIMIT=patient):
        yield


def rule(name: str, rate: str = "9/min", **fields: Any) -> Rule:
    return Rule.objects.create(name=name, rate=rate, **fields)


def ask(path: str, method: str = "GET", **question: Any) -> Explanation:
    return explain(Question(path, method, **{"address": "192.0.2.1"} | question))


def applying(told: Explanation) -> dict[str, str]:
    return {line.rule.name: str(line.rule.rate) for line in told.applying}


def why(told: Explanation, name: str) -> str:
    [line] = [line for line in told.applying if line.rule.name == name]
    return line.why


def passed(told: Explanation) -> dict[str, str]:
    return {line.name: line.why for line in told.passed}


class TestExplanation:
    @pytest.mark.parametrize(
        ("path", "method", "limits"),
        [
            ("/api/v1/files/", "GET", {"site.list": "30/min"}),
            ("/api/v1/files/", "HEAD", {"site.list": "30/min"}),
            ("/api/v1/files/", "POST", {"site.write": "1/min"}),
            ("/api/v1/files/upload/", "POST", {"site.upload": "2/min"}),
            ("/api/v1/files/later/", "GET", {"site.burst": "3/min"}),
            ("/api/v1/files/decorated/", "GET", {"site.action": "6/min"}),
            ("/api/v1/plain/", "GET", {f"{SITE}.Nameless": "4/min"}),
            ("/api/v1/ruled/7/", "GET", {}),
            ("/api/v1/function/", "GET", {"site.function": "5/min", "site.burst": "3/min"}),
            ("/login/", "POST", {"site.login": "5/min", "site.login.soft": "9/min"}),
            ("/login/", "GET", {"site.login.soft": "9/min"}),
            ("/bare/", "GET", {}),
            ("/reports/", "POST", {"site.class": "50/day", f"{SITE}.Reports.post": "7/min"}),
            ("/nowhere/", "GET", {}),
            ("api/v1/plain/?page=2", "GET", {f"{SITE}.Nameless": "4/min"}),
            ("https://example.org/api/v1/plain/?q=süß", "GET", {f"{SITE}.Nameless": "4/min"}),
            ("/%61pi/v1/plain/", "GET", {f"{SITE}.Nameless": "4/min"}),
            ("/日本/", "GET", {}),
            ("//[", "GET", {}),
        ],
    )
    def test_the_codes_own_limits_are_found(
        self, path: str, method: str, limits: dict[str, str]
    ) -> None:
        told = ask(path, method)
        assert applying(told) == limits
        assert told.problems == []

    @pytest.mark.parametrize(
        "path", ["/api/v1/files/", "/api/v1/function/", "/api/v1/ruled/7/", "/api/v1/plain/"]
    )
    def test_it_says_what_a_request_then_meets(self, path: str) -> None:
        rule("Everywhere", path="*")
        rule("Wide", path="api/*", rate="8/min")
        rule("Named", path="api:ruled", rate="7/h", key="ip")
        rule("List", scope="site.list", rate="6/min", key="user_or_ip")
        rule("Burst", scope="site.burst", rate="6/min", methods="POST")
        rule("Function", scope="site.function", rate="6/min", key="global")
        rule("Off", scope="site.list", mode="off")
        response = Browser().get(path, REMOTE_ADDR="192.0.2.1")
        assert response.status_code == 200
        met = dict(counted(cast("Response", response)))
        assert met
        assert set(applying(ask(path))) == set(met)

    def test_nothing_is_counted(self, redis_client: Redis) -> None:
        rule("Everywhere", path="*", rate="1/min")
        assert commands(redis_client, lambda: [ask("/api/v1/files/") for _ in range(3)]) == 0
        assert Browser().get("/api/v1/files/").status_code == 200

    def test_a_rule_replaces_the_codes_rate(self) -> None:
        rule("Mine", scope="site.list", rate="6/min")
        told = ask("/api/v1/files/")
        assert applying(told) == {"Mine": "6/min"}
        assert why(told, "Mine") == "It replaces the code's rate, 30/min."
        [line] = told.applying
        assert line.where == [f"{SITE}.Scoped"]
        assert passed(told) == {f"the code's rate at {SITE}.Scoped": "Replaced by Mine."}

    def test_no_override_makes_up_for_an_identity_that_a_rule_insists_on(self) -> None:
        rule("Insists", scope="site.list", key="header:x-api-key", no_identity="refuse")
        Override.objects.create(effect="exempt")
        [line] = [line for line in ask("/api/v1/files/").applying if line.rule.name == "Insists"]
        assert line.refuses
        assert not line.exempt
        assert Browser().get("/api/v1/files/").status_code == 429

    def test_a_rule_of_another_key_adds(self) -> None:
        rule("All", scope="site.list", rate="6/min", key="global")
        told = ask("/api/v1/files/")
        assert applying(told) == {"site.list": "30/min", "All": "6/min"}
        assert "adds a limit" in why(told, "All")

    def test_a_rule_observes_beside(self) -> None:
        rule("Tried", scope="site.list", rate="6/min", mode="observe")
        told = ask("/api/v1/files/")
        assert applying(told) == {"site.list": "30/min", "Tried": "6/min"}
        assert "observes" in why(told, "Tried")

    def test_a_narrower_path_takes_the_place_of_a_wider_one(self) -> None:
        rule("Wide", path="api/*")
        rule("Narrow", path="api:ruled")
        told = ask("/api/v1/ruled/7/")
        assert applying(told) == {"Narrow": "9/min"}
        assert passed(told) == {"Wide": "Narrow takes its place: api:ruled is narrower."}
        [line] = told.applying
        assert line.where == ["api:ruled ← django_slidinglimit.throttling.RuleThrottle"]

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"path": "api/*", "mode": "off"}, "It is off."),
            ({"scope": "site.burst", "mode": "off"}, "It is off."),
            ({"path": "api/*", "methods": "POST"}, "It is for other methods: POST."),
            ({"scope": "site.burst", "rate": "5/fortnight"}, "It is left out: "),
            ({"path": "api/*"}, "No throttle of the view is a RuleThrottle"),
            ({"path": "api/*", "rate": "5/fortnight"}, "It is left out: "),
        ],
    )
    def test_it_says_why_a_rule_does_not_apply(self, fields: dict[str, str], reason: str) -> None:
        rule("Not", **fields)
        rule("Elsewhere", scope="site.upload")
        rule("Elsewhere", path="other/*")
        told = ask("/api/v1/function/")
        assert list(passed(told)) == ["Not"]
        assert passed(told)["Not"].startswith(reason)

    def test_clients_outside_the_share(self) -> None:
        rule("Some", scope="site.list", rate="6/min", share=50)
        found = [applying(ask("/api/v1/files/", address=f"192.0.2.{i}")) for i in range(20)]
        assert {"Some": "6/min"} in found
        assert {"site.list": "30/min"} in found
        outside = found.index({"site.list": "30/min"})
        told = ask("/api/v1/files/", address=f"192.0.2.{outside}")
        assert passed(told) == {"Some": "It is enforced for 50% of clients, and not for this one."}

    def test_who_is_counted(self) -> None:
        user = User.objects.create_user("alice")
        told = ask("/api/v1/files/", user=user)
        assert [line.client for line in told.applying] == [Client("user", str(user.pk))]
        told = ask("/api/v1/files/", address="2001:db8::1")
        assert [line.client for line in told.applying] == [Client("ip", "2001:db8::/64")]

    @pytest.mark.parametrize("kind", ["header:x-api-key", "get:x"])
    def test_a_client_of_another_kind(self, kind: str) -> None:
        client = Client(kind, "0123456789abcdef~cdef")
        row = rule("By kind", scope="site.login.soft", key=kind)
        Override.objects.create(rule=row, kind=kind, identity=client.identity, effect="exempt")
        told = ask("/login/", client=client)
        [line] = [line for line in told.applying if line.pk == row.pk]
        assert line.client == client
        assert line.exempt
        [line] = [line for line in ask("/login/").applying if line.pk == row.pk]
        assert line.client == Client(kind, "")
        assert not line.exempt

    @pytest.mark.parametrize(
        ("no_identity", "exempt", "refuses"),
        [("together", False, False), ("allow", None, None), ("refuse", False, True)],
    )
    def test_a_request_without_identity(
        self, no_identity: str, exempt: bool | None, refuses: bool | None
    ) -> None:
        rule("By key", scope="site.burst", key="header:x-api-key", no_identity=no_identity)
        found = [line for line in ask("/api/v1/function/").applying if line.key.startswith("h")]
        assert [(line.exempt, line.refuses) for line in found] == [
            (bool(exempt) or no_identity == "allow", bool(refuses))
        ]

    def test_the_override_that_wins(self) -> None:
        group = Group.objects.create(name="partners")
        user = User.objects.create_user("alice")
        user.groups.add(group)
        Override.objects.create(effect="exempt")
        won = Override.objects.create(group=group, effect="rate", rate="99/min")
        [line] = ask("/api/v1/files/", user=user).applying
        assert line.override is not None
        assert line.override.pk == won.pk
        assert str(line.rule.rate) == "99/min"
        assert not line.exempt
        [line] = ask("/api/v1/files/").applying
        assert line.exempt

    def test_a_rule_asked_at_several_places_is_told_once(self) -> None:
        rule("Twice", scope="site.class", rate="6/min")
        [line] = ask("/reports/").applying
        assert line.rule.name == "Twice"

    def test_what_the_projects_code_raises_is_told(self) -> None:
        with override_settings(SLIDINGLIMIT={"KEYS": {"bad": f"{__name__}.bad"}, "RULES_POLL": 0}):
            rule("Bad", scope="site.burst", key="bad")
            told = ask("/api/v1/function/")
        assert [text for text in told.problems if "not today" in text]
        assert "site.function" in applying(told)


def bad(group: str, request: object) -> str:
    raise RuntimeError("not today")


def page(browser: Browser, **query: str) -> str:
    response = browser.get(URL, {"method": "GET", **query} if query else {})
    assert response.status_code == 200
    return re.sub(r"\s+", " ", unescape(re.sub("<[^>]+>", " ", response.content.decode())))


class TestPage:
    def test_the_list_leads_to_it_and_the_form_is_there(self, admin_client: Browser) -> None:
        assert (
            f'href="{URL}"' in admin_client.get("/admin/django_slidinglimit/rule/").content.decode()
        )
        assert "Which rules apply?" in page(admin_client)

    def test_it_takes_the_permission_to_view_rules(self) -> None:
        assert staff("view_usage").get(URL).status_code == 403
        User.objects.all().delete()
        assert staff("view_rule").get(URL, {"path": "/login/", "method": "GET"}).status_code == 200
        assert Browser().get(URL).status_code == 302

    def test_a_reason_is_for_those_who_may_see_overrides(self) -> None:
        rule("Files", scope="site.list", rate="6/min")
        Override.objects.create(effect="exempt", reason="a friend")
        for permissions, told in ((["view_rule"], False), (["view_rule", "view_override"], True)):
            User.objects.all().delete()
            response = staff(*permissions).get(URL, {"path": "/api/v1/files/", "method": "GET"})
            assert "An override holds:" in response.content.decode()
            assert ("a friend" in response.content.decode()) is told

    def test_it_tells_the_view_the_rules_and_why(self, admin_client: Browser) -> None:
        row = rule("Files", scope="site.list", rate="6/min")
        rule("Off", path="api/*", mode="off")
        user = User.objects.create_user("alice")
        soon = timezone.now() + timedelta(days=1)
        Override.objects.create(
            kind="user", identity=str(user.pk), effect="block", reason="abuse", expires=soon
        )
        shown = page(admin_client, path="/api/v1/files/", user="alice")
        for text in (
            f"leads to {SITE}.Files.create,list ,",
            "name is api:files-list .",
            "Files 6/min",
            "refuses it",
            "user alice",
            "It replaces the code's rate, 30/min.",
            "An override holds: block for user",
            "(abuse), until",
            "Off 9/min It is off.",
        ):
            assert text in shown
        link = reverse("admin:django_slidinglimit_rule_change", args=[row.pk])
        assert (
            link
            in admin_client.get(URL, {"path": "/api/v1/files/", "method": "GET"}).content.decode()
        )

    def test_a_path_that_leads_nowhere(self, admin_client: Browser) -> None:
        shown = page(admin_client, path="/nowhere/")
        assert "leads to no view" in shown
        assert "No rule applies" in shown

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ({"user": "nobody"}, "There is no user 'nobody'."),
            ({"user": "9" * 30}, "There is no user"),
            ({"address": "here"}, "'here' is no address."),
            ({"kind": "user_or_ip", "identity": "1"}, "Name the kind of client"),
            ({"kind": "user", "identity": "77"}, "There is no user '77'."),
            ({"method": "FETCH"}, "FETCH is not one of the available choices"),
        ],
    )
    def test_what_is_wrong_is_told_by_field(
        self, admin_client: Browser, query: dict[str, str], message: str
    ) -> None:
        shown = page(admin_client, path="/login/", **query)
        assert message in shown
        assert "leads to" not in shown

    @pytest.mark.parametrize("by", ["name", "key", "kind"])
    def test_a_user_is_found(self, admin_client: Browser, by: str) -> None:
        user = User.objects.create_user("alice")
        query = {
            "name": {"user": "alice"},
            "key": {"user": str(user.pk)},
            "kind": {"kind": "user", "identity": str(user.pk)},
        }[by]
        assert "user alice" in page(admin_client, path="/api/v1/files/", **query)

    def test_an_address_by_kind_counts_as_the_address(self, admin_client: Browser) -> None:
        query = {"kind": "ip", "identity": "2001:db8::/64"}
        assert "ip 2001:db8::/64" in page(admin_client, path="/api/v1/files/", **query)

    def test_odd_texts_are_shown_as_they_are(self, admin_client: Browser) -> None:
        rule("<b>x</b>", scope="site.list", rate="6/min")
        response = admin_client.get(URL, {"path": '/"><script>/', "method": "GET"})
        assert b"<script>/" not in response.content
        response = admin_client.get(URL, {"path": "/api/v1/files/", "method": "GET"})
        assert b"<b>x</b>" not in response.content


class TestKnown:
    def test_the_form_offers_scopes_with_where_they_are_used(self, admin_client: Browser) -> None:
        form = admin_client.get("/admin/django_slidinglimit/rule/add/").content.decode()
        [offered] = re.findall('<datalist id="sl-known-scope">(.*?)</datalist>', form)
        assert '<option value="site.list">' in offered
        assert 'list="sl-known-scope"' in form
        assert f"<code>site.burst</code> Burst on {SITE}.Files.later, Burst on" in form
        [offered] = re.findall('<datalist id="sl-known-path">(.*?)</datalist>', form)
        assert '<option value="api:ruled">' in offered

    def test_the_list_marks_rules_for_nothing_and_rules_that_say_the_same(
        self, admin_client: Browser
    ) -> None:
        rule("Lost", scope="site.nowhere")
        rule("One", scope="site.list")
        rule("Two", scope="site.list", rate="7/min")
        rule("Fine", scope="site.burst")
        rule("Off", scope="site.upload", mode="off")
        shown = admin_client.get("/admin/django_slidinglimit/rule/").content.decode()
        assert re.findall('<span class="sl-mark">(.*?)</span>', shown) == [
            "nothing in the code is known to have it",
            "says the same as Two (7/min)",
            "says the same as One (9/min)",
        ]

    def test_the_list_names_scopes_without_a_limit(self, admin_client: Browser) -> None:
        shown = admin_client.get("/admin/django_slidinglimit/rule/").content.decode()
        assert "rule/add/?scope=site.declared" in shown
        rule("Mine", scope="site.declared")
        shown = admin_client.get("/admin/django_slidinglimit/rule/").content.decode()
        assert "rule/add/?scope=site.declared" not in shown

    def test_who_may_not_add_rules_gets_no_link_to_add_one(self) -> None:
        shown = staff("view_rule").get("/admin/django_slidinglimit/rule/").content.decode()
        assert "site.declared" in shown
        assert "rule/add/" not in shown
