from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.test import RequestFactory
from django.utils import timezone

from django_slidinglimit import addresses, limiter
from django_slidinglimit.core.decisions import Client
from django_slidinglimit.models import Override, Rule
from django_slidinglimit.overrides import Override as Compiled
from django_slidinglimit.overrides import Overrides, Target
from django_slidinglimit.rules import compile_rule

if TYPE_CHECKING:
    from django.http import HttpRequest

pytestmark = pytest.mark.django_db

ALICE = Client("user", "1")
V4, V6 = Client("ip", "192.0.2.7"), Client("ip", "2001:db8::/64")


def get(address: str = "192.0.2.7", user: User | None = None, api_key: str = "") -> HttpRequest:
    request = RequestFactory(REMOTE_ADDR=address).get("/", headers={"x-api-key": api_key})
    request.user = user or AnonymousUser()
    return request


def admitted(request: HttpRequest, asked: int = 9, **place: Any) -> int:
    place = {"scope": "api", "key": "ip", "rate": "3/min"} | place
    return sum(limiter.check(request, **place).allowed for _ in range(asked))


def override(**fields: Any) -> Override:
    row = Override(**fields)
    row.full_clean()
    row.save()
    return row


def client(client: Client, pk: int, **fields: Any) -> tuple[Target, Compiled]:
    return Target(client=client), Compiled(pk, **({"rule": None, "effect": "exempt"} | fields))


class TestWinner:
    def test_nobody_is_an_exception_where_there_is_none(self) -> None:
        assert Overrides().winner("d1", ALICE) is None

    def test_a_client_over_a_group_over_a_network_over_everyone(self) -> None:
        network = Target(network=addresses.parse_network("192.0.2.0/24"))
        levels = [
            (Target(client=V4), Compiled(1, None, "rate")),
            (network, Compiled(2, "d1", "exempt")),
            (Target(), Compiled(3, "d1", "block")),
        ]
        assert winner_of(levels, V4) == 1
        assert winner_of(levels[1:], V4) == 2
        assert winner_of(levels[2:], V4) == 3
        of_group = [
            (Target(client=ALICE), Compiled(1, None, "rate")),
            (Target(group=7), Compiled(2, "d1", "exempt")),
            (Target(), Compiled(3, "d1", "block")),
        ]
        assert winner_of(of_group, ALICE, {7}) == 1
        assert winner_of(of_group[1:], ALICE, {7}) == 2
        assert winner_of(of_group[1:], ALICE, {8}) == 3

    def test_the_longest_prefix_over_shorter_ones(self) -> None:
        entries = [
            (Target(network=addresses.parse_network(text)), Compiled(pk, None, "exempt"))
            for pk, text in enumerate(
                (
                    "0.0.0.0/0",
                    "192.0.0.0/8",
                    "192.0.2.7/32",
                    "192.0.2.8/32",
                    "::/0",
                    "2001:db8::/32",
                )
            )
        ]
        assert winner_of(entries, V4) == 2
        assert winner_of(entries, Client("ip", "192.0.2.9")) == 1
        assert winner_of(entries, Client("ip", "10.0.0.1")) == 0
        assert winner_of(entries, V6) == 5
        assert winner_of(entries, Client("ip", "2001:db9::/64")) == 4
        assert winner_of(entries, Client("ip", "a name of the project's own")) is None
        assert winner_of(entries, Client("ip", "")) is None

    def test_one_rule_over_all_then_block_over_exempt_over_rate_then_the_newer(self) -> None:
        one = [client(ALICE, 1, rule="d1", effect="rate"), client(ALICE, 2, effect="block")]
        assert winner_of(one, ALICE) == 1
        assert winner_of(one, ALICE, rule="d2") == 2
        equal = [client(ALICE, pk, effect=e) for pk, e in enumerate(("rate", "exempt", "block"))]
        assert winner_of(equal, ALICE) == 2
        assert winner_of(equal[:2], ALICE) == 1
        assert winner_of([client(ALICE, 1), client(ALICE, 2)], ALICE) == 2

    @pytest.mark.parametrize(
        "target",
        [Target(), Target(group=7), Target(network=addresses.parse_network("192.0.2.0/24"))],
        ids=["everyone", "group", "network"],
    )
    def test_one_rule_over_all_at_each_level(self, target: Target) -> None:
        entries = [
            (target, Compiled(1, None, "block")),
            (target, Compiled(2, "d1", "rate")),
            (target, Compiled(3, "d2", "exempt")),
        ]
        whom = V4 if target.network else ALICE
        for rule, pk in (("d1", 2), ("d2", 3), ("d3", 1)):
            assert winner_of(entries, whom, {7}, rule) == pk

    def test_an_expired_one_leaves_the_field_to_the_next(self) -> None:
        past, soon = time.time() - 1, time.time() + 60
        entries = [client(ALICE, 1, expires=past), client(ALICE, 2, effect="rate", expires=soon)]
        assert winner_of(entries, ALICE) == 2

    def test_groups_are_asked_once_a_user(self) -> None:
        asked: list[str] = []

        def groups_of(identity: str) -> frozenset[int]:
            asked.append(identity)
            return frozenset({7})

        entries = [(Target(group=7), Compiled(1, None, "exempt"))]
        overrides = Overrides().changed((), entries, groups_of)
        for _ in range(3):
            overrides.winner("d1", ALICE)
        overrides.winner("d1", V4)
        assert asked == ["1"]


def winner_of(
    entries: list[tuple[Target, Compiled]],
    client: Client,
    groups: set[int] | None = None,
    rule: str = "d1",
) -> int | None:
    overrides = Overrides().changed((), entries, lambda _: frozenset(groups or ()))
    found = overrides.winner(rule, client)
    return None if found is None else found.pk


class TestEffect:
    def test_another_rate(self) -> None:
        override(kind="ip", identity="192.0.2.7", effect="rate", rate="5/min")
        assert admitted(get()) == 5
        assert admitted(get("192.0.2.8")) == 3

    def test_another_rate_of_one_rule_alone(self) -> None:
        rule = Rule.objects.create(name="r", scope="api", rate="2/min", key="ip")
        Rule.objects.create(name="other", scope="other", rate="2/min", key="ip")
        override(rule=rule, kind="ip", identity="192.0.2.7", effect="rate", rate="5/min")
        assert admitted(get()) == 5
        assert admitted(get(), scope="other") == 2

    def test_exempt_is_not_counted(self) -> None:
        row = override(network="192.0.2.0/24", effect="exempt")
        assert admitted(get()) == 9
        assert not limiter.check(get(), "api", key="ip", rate="3/min").answers
        row.delete()
        assert admitted(get()) == 3

    def test_blocked_until_it_expires(self) -> None:
        soon = timezone.now() + timedelta(seconds=90)
        override(kind="ip", identity="192.0.2.7", effect="block", expires=soon)
        decision = limiter.check(get(), "api", key="ip", rate="3/min")
        assert not decision.allowed
        assert decision.retry_after is not None
        assert 80_000 < decision.retry_after <= 90_000
        assert admitted(get("192.0.2.8")) == 3

    def test_blocked_for_ever_has_no_wait_and_counts_nothing(self) -> None:
        row = override(kind="ip", identity="192.0.2.7", effect="block")
        assert limiter.check(get(), "api", key="ip", rate="3/min").retry_after is None
        assert admitted(get()) == 0
        row.delete()
        assert admitted(get()) == 3

    def test_expiry_takes_effect_without_an_edit(self) -> None:
        soon = timezone.now() + timedelta(seconds=0.3)
        override(kind="ip", identity="192.0.2.7", effect="block", expires=soon)
        assert admitted(get()) == 0
        time.sleep(0.4)
        assert admitted(get()) == 3

    def test_a_group_of_users(self) -> None:
        user = User.objects.create_user("alice")
        group = Group.objects.create(name="partners")
        override(group=group, effect="rate", rate="6/min")
        assert admitted(get(user=user), key="user") == 3
        user.groups.add(group)
        assert admitted(get(user=user), key="user") == 3  # of 6, three were used

    def test_an_api_key_by_what_stands_in_the_header(self) -> None:
        secret = "a secret of twenty-four!"
        row = override(kind="header:X-API-Key", identity=secret, effect="exempt")
        assert secret not in row.identity
        assert admitted(get(api_key=secret), key="header:x-api-key") == 9
        assert admitted(get(api_key="another"), key="header:x-api-key") == 3

    def test_everyone(self) -> None:
        override(effect="block")
        assert admitted(get()) == 0


class TestShare:
    def test_only_the_share_is_under_the_rule_and_the_rest_under_the_code(self) -> None:
        Rule.objects.create(name="r", scope="api", rate="1/min", key="ip", share=30)
        limits = [admitted(get(f"10.0.{i // 250}.{i % 250}"), asked=4) for i in range(200)]
        assert set(limits) == {1, 3}
        assert 30 <= limits.count(1) <= 95

    def test_always_the_same_clients(self) -> None:
        Rule.objects.create(name="r", scope="api", rate="1/min", key="ip", share=50)
        for i in range(20):
            request = get(f"10.0.0.{i}")
            first = limiter.peek(request, "api", key="ip", rate="3/min").answers[0].verdict.limit
            for _ in range(3):
                found = limiter.peek(request, "api", key="ip", rate="3/min").answers[0]
                assert found.verdict.limit == first

    def test_requests_without_identity_are_one_client_in_it_whatever_their_kind(self) -> None:
        for share in range(1, 100, 7):
            row = Rule.objects.create(name="r", scope="api", rate="1/min", share=share)
            rule = compile_rule(row)
            assert rule.enforced_for(None) is rule.enforced_for(Client("header:x-api-key", ""))


class TestRows:
    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            (("ip", "192.0.2.7"), V4),
            (("ip", "::ffff:192.0.2.7"), V4),
            (("ip", "2001:db8::1"), V6),
            (("ip", "2001:db8::/64"), V6),
            (("user", " 1 "), ALICE),
        ],
    )
    def test_identities_are_kept_as_they_are_counted(
        self, given: tuple[str, str], kept: Client
    ) -> None:
        row = override(kind=given[0], identity=given[1], effect="exempt")
        assert Client(row.kind, row.identity) == kept

    def test_a_network_as_wide_as_one_client_is_found(self) -> None:
        override(network="2001:db8::7/64", effect="block")
        assert admitted(get("2001:db8::9")) == 0

    def test_a_digest_from_a_page_stays_what_it_is(self) -> None:
        row = override(kind="header:x-api-key", identity="a secret of mine", effect="exempt")
        again = override(kind=row.kind, identity=row.identity, effect="block")
        assert again.identity == row.identity

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"kind": "ip", "identity": "192.0.2.0/24", "effect": "block"}, "identity"),
            ({"kind": "ip", "identity": "nobody", "effect": "block"}, "identity"),
            ({"kind": "user_or_ip", "identity": "1", "effect": "block"}, "identity"),
            ({"identity": "1", "effect": "block"}, "identity"),
            ({"network": "192.0.2.0/40", "effect": "block"}, "network"),
            ({"network": "2001:db8::7", "effect": "block"}, "network"),
            ({"network": "2001:db8::/65", "effect": "block"}, "network"),
            ({"effect": "block", "expires": datetime.max.replace(tzinfo=UTC)}, "expires"),
            ({"effect": "block", "expires": datetime.min.replace(tzinfo=UTC)}, "expires"),
            ({"effect": "rate", "rate": "many"}, "rate"),
            ({"effect": "rate"}, "__all__"),
            ({"effect": "block", "rate": "5/min"}, "__all__"),
            ({"effect": "block", "network": "192.0.2.0/24", "kind": "user"}, "__all__"),
            ({"effect": "nothing"}, "effect"),
        ],
    )
    def test_what_is_wrong_is_told_by_field(self, fields: dict[str, Any], field: str) -> None:
        with pytest.raises(ValidationError) as raised:
            Override(**fields).full_clean()
        assert list(raised.value.message_dict) == [field]

    def test_the_database_takes_one_target_only(self) -> None:
        with pytest.raises(IntegrityError):
            Override.objects.create(kind="user", identity="1", network="10.0.0.0/8", effect="block")

    def test_an_override_goes_with_its_rule(self) -> None:
        rule = Rule.objects.create(name="r", scope="api", rate="2/min", key="ip")
        override(rule=rule, kind="ip", identity="192.0.2.7", effect="block")
        rule.delete()
        assert not Override.objects.exists()

    def test_a_row_that_does_not_compile_is_left_out(self) -> None:
        override(kind="ip", identity="192.0.2.7", effect="block")
        Override.objects.create(network="nonsense", effect="block")
        assert admitted(get()) == 0
        assert admitted(get("192.0.2.8")) == 3
