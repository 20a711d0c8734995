"""The overrides in the admin, and what the usage pages tell of them."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import AnonymousUser, Group, User
from django.test import Client as Browser
from django.test import RequestFactory
from django.urls import reverse
from django.utils import timezone

from django_slidinglimit import clients, limiter
from django_slidinglimit.core.decisions import Client
from django_slidinglimit.models import Override, Rule
from django_slidinglimit.usage import recorder
from tests.odd import ODD
from tests.operators import staff

if TYPE_CHECKING:
    from pytest_django import DjangoAssertNumQueries, Settings

pytestmark = pytest.mark.django_db

LIST = reverse("admin:django_slidinglimit_override_changelist")
ADD = reverse("admin:django_slidinglimit_override_add")
OVERVIEW = reverse("admin:django_slidinglimit_usage_changelist")
RULE_PAGE = re.escape(reverse("admin:django_slidinglimit_usage_rule"))
CLIENT = reverse("admin:django_slidinglimit_usage_client")
MARIA = {"target": "client", "kind": "user", "identity": "maria"}
BLOCK = {"effect": "block"}


@pytest.fixture
def maria() -> User:
    # PostgreSQL's sequence goes on from test to test, and must not come to it.
    return User.objects.create_user("maria", pk=770077)


def text_of(response: Any) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", response.content.decode())))


def rule_page(browser: Browser, limit: int) -> str:
    """What the usage of the rule with this limit a minute says; the overview leads to it."""
    overview = browser.get(OVERVIEW).content.decode()
    [url, *_] = [
        unescape(re.findall(f'href="({RULE_PAGE}[^"]*)', row)[0])
        for row in overview.split("</tr>")
        if f"{limit}/min" in row
    ]
    return text_of(browser.get(url))


def add(browser: Browser, **fields: Any) -> Override:
    """Fill in the form and save it."""
    response = browser.post(ADD, fields)
    assert response.status_code == 302, response.context["errors"]
    return Override.objects.latest("pk")


def errors(browser: Browser, **fields: Any) -> dict[str, list[str]]:
    """What the form says against it."""
    response = browser.post(ADD, fields)
    assert response.status_code == 200
    assert not Override.objects.exists()
    found: dict[str, list[str]] = response.context["adminform"].form.errors
    return found


def change_page(row: Override) -> str:
    return reverse("admin:django_slidinglimit_override_change", args=[row.pk])


def filled_in(response: Any) -> dict[str, Any]:
    form = response.context["adminform"].form
    return {bound.name: bound.value() for bound in form}


def ask(scope: str = "api", rate: str = "3/min", *, times: int = 1, **who: Any) -> int:
    """Send requests; how many are admitted."""
    key = who.get("key", "user")
    request = RequestFactory(REMOTE_ADDR=who.get("address", "192.0.2.7")).get("/")
    request.user = who.get("user") or AnonymousUser()
    admitted = sum(limiter.check(request, scope, key=key, rate=rate).allowed for _ in range(times))
    recorder.flush()
    return admitted


class TestForm:
    def test_an_override_is_made_for_a_user_by_name_and_by_whom_is_kept(
        self, admin_client: Browser, admin_user: User, maria: User
    ) -> None:
        row = add(admin_client, **MARIA, effect="rate", rate="5/min", reason="migration")
        assert (row.kind, row.identity, row.rate) == ("user", "770077", "5/min")
        assert row.created_by == admin_user
        assert ask(times=9, user=maria) == 5

    def test_a_primary_key_is_taken_as_well(self, admin_client: Browser, maria: User) -> None:
        row = add(admin_client, **{**MARIA, "identity": " 770077 "}, **BLOCK)
        assert row.identity == "770077"

    def test_an_unknown_user_is_refused(self, admin_client: Browser) -> None:
        for identity in ("nobody", "9999", "9" * 30):
            found = errors(admin_client, **{**MARIA, "identity": identity}, **BLOCK)
            told = f"There is no user with the name or the primary key {identity}."
            assert found == {"identity": [told]}

    def test_a_name_that_is_anothers_primary_key_is_not_guessed_at(
        self, admin_client: Browser, maria: User
    ) -> None:
        User.objects.create_user("770077", pk=780078)
        [told] = errors(admin_client, **{**MARIA, "identity": "770077"}, **BLOCK)["identity"]
        assert "primary key of the one, which is 780078, or the name of the other" in told
        assert add(admin_client, **{**MARIA, "identity": "780078"}, **BLOCK).identity == "780078"
        assert add(admin_client, **MARIA, **BLOCK).identity == "770077"

    def test_an_override_of_a_user_who_is_gone_can_still_be_edited(
        self, admin_client: Browser
    ) -> None:
        row = Override.objects.create(kind="user", identity="404", effect="block")
        form = filled_in(admin_client.get(change_page(row)))
        data = {k: v for k, v in form.items() if v is not None} | {"reason": "gone"}
        assert admin_client.post(change_page(row), data).status_code == 302
        row.refresh_from_db()
        assert (row.identity, row.reason) == ("404", "gone")

    @pytest.mark.parametrize(
        ("fields", "kept"),
        [
            ({"kind": "ip", "identity": "2001:db8::1"}, Client("ip", "2001:db8::/64")),
            ({"kind": "ip", "identity": "192.0.2.7"}, Client("ip", "192.0.2.7")),
            ({"kind": "global", "identity": ""}, Client("global", "")),
            ({"target": "nobody", "kind": "user", "identity": "x"}, Client("user", "")),
            ({"target": "network", "network": "192.0.2.9/24"}, Client("", "")),
            ({"target": "everyone", "kind": "ip", "identity": "x"}, Client("", "")),
        ],
    )
    def test_only_what_the_choice_asks_for_is_kept(
        self, admin_client: Browser, fields: dict[str, str], kept: Client
    ) -> None:
        row = add(admin_client, **{"target": "client", "rate": "no rate", **fields}, **BLOCK)
        assert Client(row.kind, row.identity) == kept
        assert row.network == ("192.0.2.0/24" if "network" in fields else "")
        assert (row.group, row.rate) == (None, "")

    def test_a_group(self, admin_client: Browser, maria: User) -> None:
        group = Group.objects.create(name="partners")
        maria.groups.add(group)
        row = add(admin_client, target="group", group=group.pk, kind="user", **BLOCK)
        assert (row.group, row.kind) == (group, "")
        assert ask(user=maria) == 0

    def test_an_api_key_is_kept_as_a_digest_only(self, admin_client: Browser) -> None:
        secret = "a-long-secret-9f31"
        row = add(admin_client, target="client", kind="header:X-API-Key", identity=secret, **BLOCK)
        assert row.identity == clients.concealed("header:x-api-key", secret).identity
        admin_client.post(reverse("admin:django_slidinglimit_override_delete", args=[row.pk]))
        kept = [(e.change_message, e.object_repr) for e in LogEntry.objects.all()]
        assert kept
        assert secret not in str(kept)
        assert "…9f31" in text_of(admin_client.get(LIST))

    @pytest.mark.parametrize(
        ("fields", "field", "told"),
        [
            ({"target": ""}, "target", "required"),
            ({"kind": ""}, "kind", "Say which one."),
            ({"identity": ""}, "identity", "Say which one."),
            ({"target": "group"}, "group", "Say which one."),
            ({"target": "network"}, "network", "Say which one."),
            ({"target": "nobody", "kind": ""}, "kind", "Say which one."),
            ({"kind": "user_or_ip"}, "kind", "such as user, ip or header:x-api-key"),
            ({"kind": "header:"}, "kind", "such as user, ip or header:x-api-key"),
            ({"kind": "ip", "identity": "10.0.0.0/8"}, "identity", "write an address"),
            ({"target": "network", "network": "10.0.0"}, "network", "such as 192.0.2.0/24"),
            ({"effect": ""}, "effect", "required"),
            ({"effect": "rate"}, "rate", "such as 500/min"),
            ({"effect": "rate", "rate": "5/month"}, "rate", "is not a unit"),
            ({"expires_0": "2020-01-01", "expires_1": "00:00"}, "expires", "in the past"),
        ],
    )
    def test_what_is_wrong_is_told_at_its_field(
        self, admin_client: Browser, maria: User, fields: dict[str, str], field: str, told: str
    ) -> None:
        found = errors(admin_client, **{**MARIA, **BLOCK, **fields})
        assert list(found) == [field]
        assert told in str(found[field])

    def test_the_form_says_what_to_know(self, admin_client: Browser) -> None:
        page = text_of(admin_client.get(ADD))
        assert "another window (1000/h for 20/min) the override counts in counters of its own" in (
            page
        )
        assert "a fresh allowance" in page
        assert "of IPv6 its /64 is counted" in page
        assert "of which only a digest is kept" in page
        assert "one client over a group over a network" in page
        assert b"header:&lt;name&gt;" in admin_client.get(ADD).content

    def test_the_form_is_filled_in_by_its_address(self, admin_client: Browser) -> None:
        rule = Rule.objects.create(name="Search", scope="search", rate="5/min")
        query = {"kind": "ip", "identity": "2001:db8::/64", "rule": str(rule.pk)}
        form = filled_in(admin_client.get(ADD, query))
        assert (form["target"], form["kind"], form["identity"]) == (
            ("client", "ip", "2001:db8::/64")
        )
        assert form["rule"] == str(rule.pk)
        assert filled_in(admin_client.get(ADD, {"kind": "user"}))["target"] == "nobody"
        assert filled_in(admin_client.get(ADD))["target"] is None

    def test_kinds_are_proposed(self, admin_client: Browser) -> None:
        Rule.objects.create(name="Search", scope="search", rate="5/min", key="header:x-api-key")
        page = admin_client.get(ADD).content.decode()
        proposed = re.findall(r'<option value="([^"]*)"></option>', page)
        assert proposed == ["global", "header:x-api-key", "ip", "user"]

    def test_a_kind_that_nothing_counts_and_a_block_of_everyone_are_doubted(
        self, admin_client: Browser
    ) -> None:
        data = {"target": "client", "kind": "users", "identity": "7", **BLOCK}
        told = text_of(admin_client.post(ADD, data, follow=True))
        assert "No key is known that counts clients of the kind users." in told
        told = text_of(admin_client.post(ADD, {"target": "everyone", **BLOCK}, follow=True))
        assert "This refuses every request under every rule." in told


class TestList:
    def test_it_tells_whom_what_and_until_when(
        self, admin_client: Browser, admin_user: User, maria: User
    ) -> None:
        rule = Rule.objects.create(name="Search", scope="search", rate="5/min")
        group = Group.objects.create(name="partners")
        past = timezone.now() - timedelta(hours=1)
        Override.objects.create(
            kind="user", identity="770077", rule=rule, effect="rate", rate="9/min"
        )
        Override.objects.create(group=group, effect="exempt", created_by=admin_user)
        Override.objects.create(network="192.0.2.0/24", effect="block", expires=past)
        Override.objects.create(effect="rate", rate="1/min", reason="all out")
        page = text_of(admin_client.get(LIST))
        assert re.search("user maria Search 9/min never", page)
        assert re.search("group partners all rules exempt never - admin", page)
        assert re.search(r"network 192.0.2.0/24 all rules blocked [^-]*expired", page)
        assert re.search("everyone all rules 1/min never all out", page)

    def test_a_user_is_named_to_those_who_may_see_users(self, maria: User) -> None:
        Override.objects.create(kind="user", identity="770077", effect="block")
        page = text_of(staff("view_override").get(LIST))
        assert "user 770077" in page
        assert "maria" not in page

    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ({"for": "client"}, ["maria"]),
            ({"for": "group"}, ["group"]),
            ({"for": "network"}, ["network"]),
            ({"for": "everyone"}, ["everyone"]),
            ({"state": "now"}, ["everyone", "group", "maria"]),
            ({"state": "expired"}, ["network"]),
            ({"effect__exact": "block"}, ["group"]),
            ({"q": "maria"}, ["maria"]),
            ({"q": "2001:db8::7"}, []),
            ({"q": "192.0.2"}, ["network"]),
            ({"q": "partners"}, ["group"]),
            ({"q": "everyone"}, ["everyone"]),
        ],
    )
    def test_it_is_filtered_and_searched(
        self, admin_client: Browser, maria: User, query: dict[str, str], found: list[str]
    ) -> None:
        past = timezone.now() - timedelta(hours=1)
        group = Group.objects.create(name="partners")
        Override.objects.create(kind="user", identity="770077", effect="exempt", reason="maria")
        Override.objects.create(group=group, effect="block", reason="group")
        Override.objects.create(
            network="192.0.2.0/24", effect="exempt", expires=past, reason="network"
        )
        Override.objects.create(effect="rate", rate="1/min", reason="everyone")
        rows = admin_client.get(LIST, query).context["cl"].result_list
        assert sorted(row.reason for row in rows) == found

    def test_an_address_is_found_by_the_network_that_is_counted(
        self, admin_client: Browser
    ) -> None:
        row = Override.objects.create(kind="ip", identity="2001:db8::/64", effect="block")
        found = admin_client.get(LIST, {"q": "2001:db8::7"}).context["cl"].result_list
        assert list(found) == [row]

    def test_it_works_without_time_zones(self, admin_client: Browser, settings: Settings) -> None:
        settings.USE_TZ = False
        row = Override.objects.create(effect="block", expires=timezone.now() - timedelta(hours=1))
        assert "expired" in text_of(admin_client.get(LIST))
        later = {"expires_0": "2126-01-01", "expires_1": "00:00"}
        data = {k: v for k, v in filled_in(admin_client.get(change_page(row))).items() if v}
        assert admin_client.post(change_page(row), data | later).status_code == 302
        url = reverse("admin:django_slidinglimit_override_history", args=[row.pk])
        assert "Jan. 1, 2126, midnight" in text_of(admin_client.get(url))

    def test_it_takes_no_query_a_row(
        self,
        admin_client: Browser,
        maria: User,
        django_assert_max_num_queries: DjangoAssertNumQueries,
    ) -> None:
        group = Group.objects.create(name="partners")
        for _ in range(30):
            Override.objects.create(group=group, effect="block")
            Override.objects.create(kind="user", identity="770077", effect="block")
        admin_client.get(LIST)
        with django_assert_max_num_queries(20):
            admin_client.get(LIST)

    def test_selected_ones_are_ended(self, admin_client: Browser) -> None:
        one = Override.objects.create(kind="ip", identity="192.0.2.7", effect="block")
        past = timezone.now() - timedelta(hours=1)
        old = Override.objects.create(effect="block", expires=past)
        assert ask(key="ip") == 0
        data = {"action": "end", "_selected_action": [one.pk, old.pk]}
        assert "1 override has ended." in text_of(admin_client.post(LIST, data, follow=True))
        assert ask(key="ip") == 1
        assert "expires: blank →" in LogEntry.objects.get().get_change_message()
        old.refresh_from_db()
        assert old.expires == past

    def test_one_can_be_deleted_and_stays_in_the_log(self, admin_client: Browser) -> None:
        row = Override.objects.create(effect="block")
        url = reverse("admin:django_slidinglimit_override_delete", args=[row.pk])
        admin_client.post(url, {"post": "yes"})
        assert not Override.objects.exists()
        assert LogEntry.objects.get().get_change_message() == (
            "Deleted override “block for everyone”."
        )


class TestUsagePages:
    def test_a_limit_is_the_one_that_the_override_sets(
        self, admin_client: Browser, maria: User
    ) -> None:
        rule = Rule.objects.create(name="Search", scope="api", rate="2/min")
        ask(user=maria, times=2)
        until = timezone.now() + timedelta(days=1)
        row = Override.objects.create(
            rule=rule,
            kind="user",
            identity="770077",
            effect="rate",
            rate="8/min",
            expires=until,
            reason="migration",
        )
        ask(user=maria)
        page = admin_client.get(CLIENT, {"kind": "user", "identity": "770077"})
        assert re.search(r"Search 8/min instead of 2/min enforced", text_of(page))
        assert "3 now: 3 of 8 , 5 left ." in text_of(page)
        assert re.search("override 8/min for user 770077 , until .* .migration. ", text_of(page))
        assert change_page(row) in page.content.decode()
        assert "user maria ok override 3 of 8 5 now" in rule_page(admin_client, 2)

    def test_another_window_is_read_from_counters_of_its_own(
        self, admin_client: Browser, maria: User
    ) -> None:
        Rule.objects.create(name="Search", scope="api", rate="2/min")
        ask(user=maria, times=2)
        Override.objects.create(kind="user", identity="770077", effect="rate", rate="100/d")
        ask(user=maria)
        page = text_of(admin_client.get(CLIENT, {"kind": "user", "identity": "770077"}))
        assert "1 of 100" in page
        assert "of 2 " not in page

    def test_a_client_of_a_rule_in_code_stays_with_its_rule(
        self, admin_client: Browser, maria: User
    ) -> None:
        ask(user=User.objects.create_user("otto"))
        ask(user=maria)
        row = Override.objects.create(kind="user", identity="770077", effect="rate", rate="8/min")
        ask(user=maria)
        page = rule_page(admin_client, 3)
        assert "3/min set in code" in page
        assert "1 to 2 of 2 clients" in page
        assert "user maria ok override 2 of 8 6 now" in page
        page = text_of(admin_client.get(CLIENT, {"kind": "user", "identity": "770077"}))
        assert page.count("2 of 8") == 1
        assert "8/min instead of 3/min" in page
        row.delete()
        assert "2 of 3" in rule_page(admin_client, 3)

    @pytest.mark.parametrize(
        ("effect", "state", "words", "row"),
        [
            ("block", "blocked", "Every request is refused, whatever is left", "2 of 3 0 never"),
            (
                "exempt",
                "exempt",
                "Requests are neither counted nor refused.",
                "2 of 3 no limit now",
            ),
        ],
    )
    def test_a_block_and_an_exemption_are_told_in_words(
        self, admin_client: Browser, maria: User, effect: str, state: str, words: str, row: str
    ) -> None:
        ask(user=maria, times=2)
        Override.objects.create(kind="user", identity="770077", effect=effect)
        page = text_of(admin_client.get(CLIENT, {"kind": "user", "identity": "770077"}))
        assert f"{state} " in page
        assert words in page
        assert "2 of" not in page
        assert f"user maria {state} {row}" in rule_page(admin_client, 3)

    def test_an_override_shows_before_anything_is_counted(self, admin_client: Browser) -> None:
        rule = Rule.objects.create(name="Search", scope="api", rate="2/min", key="ip")
        Rule.objects.create(name="By user", scope="api", rate="2/min", key="user")
        Override.objects.create(rule=rule, network="192.0.2.0/24", effect="block")
        Override.objects.create(effect="exempt", reason="all in")
        page = text_of(admin_client.get(CLIENT, {"kind": "ip", "identity": "192.0.2.7"}))
        assert "Under every rule without another override: override exempt for everyone" in page
        assert "Search 2/min enforced blocked" in page
        assert "By user" not in page
        assert "No rule has counted this client" not in page

    def test_a_block_under_a_rule_that_observes_refuses_nothing(
        self, admin_client: Browser, maria: User
    ) -> None:
        rule = Rule.objects.create(name="Search", scope="api", rate="2/min", mode="observe")
        Override.objects.create(rule=rule, kind="user", identity="770077", effect="block")
        assert ask(user=maria, times=3) == 3
        page = text_of(admin_client.get(CLIENT, {"kind": "user", "identity": "770077"}))
        assert "The rule only observes: it refuses none of them." in page
        assert "Every request is refused" not in page

    def test_an_override_is_one_link_away(self, admin_client: Browser, maria: User) -> None:
        Rule.objects.create(name="Search", scope="api", rate="2/min")
        ask(user=maria)
        page = admin_client.get(CLIENT, {"kind": "user", "identity": "770077"}).content.decode()
        links = [unescape(url) for url in re.findall(rf'href="({ADD}\?[^"]*)"', page)]
        assert len(links) == 1
        form = filled_in(admin_client.get(links[0]))
        assert (form["kind"], form["identity"]) == ("user", "770077")
        data = {**form, "effect": "block", "expires_0": "", "expires_1": ""}
        data = {name: value for name, value in data.items() if value is not None}
        admin_client.post(ADD, data)
        assert ask(user=maria) == 0

    @pytest.mark.parametrize("client", ODD, ids=ascii)
    def test_a_link_is_offered_only_where_it_leads_to_this_very_client(
        self, admin_client: Browser, client: Client
    ) -> None:
        query = {part: text.encode(errors="replace") for part, text in client._asdict().items()}
        page = admin_client.get(CLIENT, query).content.decode()
        links = re.findall(rf'href="({ADD}\?[^"]*)"', page)
        if client.identity.isprintable() and len(client.identity) <= clients.LONGEST:
            assert len(links) == 1
        for link in links:
            form = filled_in(admin_client.get(unescape(link)))
            fields = {name: form[name] or "" for name in ("target", "kind", "identity")}
            row = add(admin_client, **fields, **BLOCK)
            assert Client(row.kind, row.identity) == Client(*(t.decode() for t in query.values()))

    def test_the_page_tells_a_reason_to_those_who_may_see_overrides(self, maria: User) -> None:
        Override.objects.create(kind="user", identity="770077", effect="block", reason="abuse of X")
        query = {"kind": "user", "identity": "770077"}
        page = staff("view_usage").get(CLIENT, query)
        assert "block for user 770077" in text_of(page)
        assert "abuse of X" not in text_of(page)
        assert ADD not in page.content.decode()
        User.objects.get(username="staff").delete()
        page = staff("view_usage", "view_override").get(CLIENT, query)
        assert "abuse of X" in text_of(page)


class TestPermissions:
    def test_who_may_only_look_sees_the_row_and_every_post_is_refused(self) -> None:
        row = Override.objects.create(kind="ip", identity="192.0.2.7", effect="block")
        browser = staff("view_override", "view_usage", "view_rule")
        page = browser.get(change_page(row))
        assert "192.0.2.7" in text_of(page)
        for absent in (b"_save", b'name="target"', b'name="seen"', b'<input type="radio'):
            assert absent not in page.content
        assert b'name="action"' not in browser.get(LIST).content
        data = {"target": "everyone", **BLOCK}
        for url in (
            ADD,
            change_page(row),
            reverse("admin:django_slidinglimit_override_delete", args=[row.pk]),
            reverse("admin:django_slidinglimit_override_restore", args=[row.pk]),
        ):
            assert browser.post(url, data).status_code == 403, url
        for action in ("end", "delete_selected"):
            data = {"action": action, "_selected_action": str(row.pk)}
            assert browser.post(LIST, data).status_code == 403
        row.refresh_from_db()
        assert (row.effect, row.expires) == ("block", None)
        assert Override.objects.count() == 1

    def test_usage_rules_and_overrides_are_separate(self) -> None:
        browser = staff("change_rule", "view_usage")
        assert browser.get(LIST).status_code == 403
        assert browser.post(ADD, {"target": "everyone", **BLOCK}).status_code == 403
        User.objects.all().delete()
        browser = staff("add_override", "change_override")
        assert browser.get(LIST).status_code == 200
        assert browser.get(OVERVIEW).status_code == 403
        url = reverse("admin:django_slidinglimit_rule_changelist")
        assert browser.get(url).status_code == 403


def test_the_example_of_the_docs_blocks_an_address_for_an_hour() -> None:
    page = Path(__file__).parents[1] / "docs" / "overrides.md"
    [example] = re.findall(r"(?ms)^```python\n(.*?)^```$", page.read_text())
    names: dict[str, Any] = {}
    exec(example, names)
    names["block_for_an_hour"]("::ffff:192.0.2.7")
    assert ask(key="ip") == 0
    assert ask(key="ip", address="192.0.2.8") == 1


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2030-01-02T03:04", 'value="2030-01-02"'),
        ("2030-01-02T18:04:05Z", 'value="2030-01-02"'),
        ("soon", 'name="expires_0"'),
        ("2030-13-45T03:04", 'name="expires_0"'),
    ],
)
def test_an_end_in_the_address_is_filled_in_if_it_is_a_time(
    admin_client: Browser, given: str, shown: str
) -> None:
    response = admin_client.get(ADD, {"expires": given})
    assert response.status_code == 200
    assert shown in response.content.decode()
