from __future__ import annotations

import logging
import time
import uuid
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import ImproperlyConfigured
from django.test import RequestFactory, override_settings
from hypothesis import given
from hypothesis import strategies as st

from django_slidinglimit import addresses, clients, limiter, models
from django_slidinglimit.addresses import address_of, parse_address
from django_slidinglimit.clients import by_address
from django_slidinglimit.core.decisions import Client
from django_slidinglimit.usage import recorder

from .core.examples import thorough

if TYPE_CHECKING:
    from django.http import HttpRequest
    from pytest_django import Settings
    from redis import Redis

SECRET = "sk-live-0123456789abcdefWXYZ"
TRUSTING = ["10.0.0.0/8", "fd00::/8"]


def get(peer: str | None = "192.0.2.7", forwarded: str | None = None, **meta: str) -> HttpRequest:
    """A request from a peer, with an X-Forwarded-For header or none."""
    request = RequestFactory().get("/", **meta)  # type: ignore[arg-type]
    if peer is None:
        del request.META["REMOTE_ADDR"]
    else:
        request.META["REMOTE_ADDR"] = peer
    if forwarded is not None:
        request.META["HTTP_X_FORWARDED_FOR"] = forwarded
    request.user = AnonymousUser()
    return request


def find(key: Any, request: HttpRequest, group: str = "api") -> Client | None:
    return clients.key(key).find(group, request)


def ip(request: HttpRequest) -> str | None:
    client = find("ip", request)
    assert client is None or client.kind == "ip"
    return client and client.identity


def trust(settings: Settings, *proxies: str, **others: Any) -> None:
    settings.SLIDINGLIMIT = {"RULES_POLL": 0, "TRUSTED_PROXIES": list(proxies), **others}


# Addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.7", "192.0.2.7"),
        (" 192.0.2.7\t", "192.0.2.7"),
        ("192.0.2.7:443", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("2001:DB8:0:0::7", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("[2001:db8::7]:443", "2001:db8::7"),
        ("fe80::7%eth0", "fe80::7"),
        ("[fe80::7%25eth0]:443", "fe80::7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:c000:207", "192.0.2.7"),
        ("[::ffff:192.0.2.7]:443", "192.0.2.7"),
        ("::ffff:0.0.0.0", "0.0.0.0"),
        ("::1", "::1"),
    ],
)
def test_an_address_is_read_without_port_brackets_zone_and_mapping(text: str, address: str) -> None:
    assert str(parse_address(text)) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ",", "unknown", "localhost", "_hidden", "192.0.2", "192.0.2.256", "192.0.2.7.1"),
        *("192.0.2.07", "0xC0000207", "3221225991", "192.0.2.7/32", "192.0.2.7 8.8.8.8", "-1.2.3"),
        *("2001:db8::7/64", "2001:db8:::7", ":::::::", "12345::", "g::1", "1:2:3:4:5:6:7:8:9"),
        *("::ffff:192.0.2.7:443", "[]", "[", "]", "[192.0.2", ":80", "%eth0", '"::1"', "for=::1"),
        *("192.0.2.7\0", "\0", "192.0.2.\udcff", "\ud800", "é"),
        # Digits that are not ASCII.
        *(
            "192.0.2.\u0667",
            "\uff1192.0.2.7",
            "2001:db8::\uff17",
            "\u00b2.0.2.7",
            "::ffff:192.0.2.\u0667",
        ),
        *("1" * 100_000, "1." * 50_000, ":" * 100_000, "::1" * 30_000, "[" * 100_000),
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_what_is_no_address_is_none(text: str) -> None:
    assert parse_address(text) is None
    assert ip(get(peer=text)) is None


def test_addresses_that_are_kept_for_the_next_time_are_short() -> None:
    before = addresses._parse.cache_info().currsize
    for number in range(100):
        parse_address(f"{number}" + "x" * 1000)
    assert addresses._parse.cache_info().currsize == before


def test_ipv6_is_counted_by_its_network_and_ipv4_by_its_address(settings: Settings) -> None:
    assert ip(get("2001:db8:1:2:3:4:5:6")) == "2001:db8:1:2::/64"
    assert ip(get("2001:db8:1:2:ffff::")) == "2001:db8:1:2::/64"
    assert ip(get("2001:db8:1:3::")) == "2001:db8:1:3::/64"
    assert ip(get("::ffff:192.0.2.7")) == ip(get("192.0.2.7")) == "192.0.2.7"
    assert ip(get("::ffff:192.0.2.8")) == "192.0.2.8"
    trust(settings, IPV6_PREFIX=48)
    assert ip(get("2001:db8:1:2:3:4:5:6")) == "2001:db8:1::/48"
    trust(settings, IPV6_PREFIX=128)
    assert ip(get("2001:db8::1")) == "2001:db8::1/128"


# Who is asking through proxies


@pytest.mark.parametrize(
    "forwarded", ["198.51.100.1", "10.0.0.1", "rubbish", "", ",", "a" * 10_000]
)
def test_without_trusted_proxies_the_forwarded_header_is_ignored(forwarded: str) -> None:
    assert ip(get("192.0.2.7", forwarded)) == "192.0.2.7"
    assert ip(get("10.0.0.1", forwarded)) == "10.0.0.1"
    assert ip(get("", forwarded)) is None


@pytest.mark.parametrize("forwarded", ["198.51.100.1", "10.0.0.1", "rubbish"])
def test_who_is_no_trusted_proxy_cannot_forge_an_address(
    settings: Settings, forwarded: str
) -> None:
    trust(settings, *TRUSTING)
    assert ip(get("192.0.2.7", forwarded)) == "192.0.2.7"
    assert ip(get("2001:db8::7", forwarded)) == "2001:db8::/64"


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        (None, "10.0.0.1"),
        ("", "10.0.0.1"),
        (" , ,", "10.0.0.1"),
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7:5000", "192.0.2.7"),
        ("[2001:db8::7]:5000", "2001:db8::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        # What the client wrote stands to the left of what the first proxy of ours added.
        ("198.51.100.1, 192.0.2.7", "192.0.2.7"),
        ("10.9.9.9, 192.0.2.7", "192.0.2.7"),
        ("rubbish, 192.0.2.7", "192.0.2.7"),
        ("192.0.2.7, 10.0.0.2", "192.0.2.7"),
        ("198.51.100.1, 192.0.2.7, 10.0.0.2, fd00::2, ::ffff:10.0.0.3", "192.0.2.7"),
        # Several header lines are joined with a comma; a line may be empty.
        ("198.51.100.1,192.0.2.7,10.0.0.2", "192.0.2.7"),
        (",192.0.2.7", "192.0.2.7"),
        ("192.0.2.7,", "192.0.2.7"),
        ("198.51.100.1, , 192.0.2.7 ,, 10.0.0.2, ", "192.0.2.7"),
        # All are ours: the first of them asks for itself.
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("fd00::3, 10.0.0.2", "fd00::/64"),
        # A proxy of ours wrote something that is no address: what is left of it proves nothing.
        ("unknown", None),
        ("198.51.100.1, unknown", None),
        ("198.51.100.1, unknown, 10.0.0.2", None),
    ],
)
def test_behind_trusted_proxies_the_rightmost_address_that_is_none_of_them_counts(
    settings: Settings, forwarded: str | None, address: str | None
) -> None:
    trust(settings, *TRUSTING)
    assert ip(get("10.0.0.1", forwarded)) == address
    assert ip(get("::ffff:10.0.0.1", forwarded)) == address


def test_a_trusted_network_written_as_ipv4_mapped_is_the_ipv4_network(
    settings: Settings,
) -> None:
    trust(settings, "::ffff:10.0.0.0/104")
    assert ip(get("10.255.0.1", "192.0.2.7")) == "192.0.2.7"
    assert ip(get("::ffff:10.255.0.1", "192.0.2.7")) == "192.0.2.7"
    assert ip(get("11.0.0.1", "192.0.2.7")) == "11.0.0.1"


def test_the_forwarded_header_has_the_name_that_the_setting_gives(
    settings: Settings,
) -> None:
    trust(settings, *TRUSTING, FORWARDED_HEADER="x-real-ip")
    assert ip(get("10.0.0.1", "198.51.100.1", HTTP_X_REAL_IP="192.0.2.7")) == "192.0.2.7"
    assert ip(get("10.0.0.1", "198.51.100.1")) == "10.0.0.1"


@pytest.mark.parametrize("peer", ["", None, "unix:"])
def test_a_peer_on_a_unix_socket_is_trusted_only_if_the_setting_says_so(
    settings: Settings, peer: str | None
) -> None:
    trust(settings, *TRUSTING)
    assert ip(get(peer, "192.0.2.7")) is None
    trust(settings, *TRUSTING, "unix:")
    assert ip(get(peer, "198.51.100.1, 192.0.2.7, 10.0.0.2")) == "192.0.2.7"
    assert ip(get(peer, "10.0.0.2")) == "10.0.0.2"
    assert ip(get(peer)) is None
    assert ip(get("192.0.2.7", "198.51.100.1")) == "192.0.2.7"
    trust(settings, "unix:")
    assert ip(get(peer, "192.0.2.7, 10.0.0.2")) == "10.0.0.2"


@pytest.mark.parametrize(
    "forwarded",
    [
        "10.0.0.1," * 10_000,
        ",".join(f"10.0.{n // 256}.{n % 256}" for n in range(9_000)),
        "," * 100_000,
        " " * 100_000,
        "x" * 100_000,
        "1.1.1.1:" * 12_000,
        "[" * 100_000,
        "%" * 100_000,
        "fd00::1%" + "z" * 100_000,
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_a_long_header_costs_no_more_than_its_length(settings: Settings, forwarded: str) -> None:
    trust(settings, *TRUSTING)
    request = get("10.0.0.1", forwarded)
    begun = time.process_time()
    address_of(request)
    assert time.process_time() - begun < 1  # seconds; quadratic time takes minutes


def test_all_addresses_of_one_request_are_read_alike_wherever_they_stand(
    settings: Settings,
) -> None:
    trust(settings, *TRUSTING)
    for written in ("192.0.2.7", "192.0.2.7:1", "::ffff:192.0.2.7", "[::ffff:192.0.2.7]:1"):
        assert ip(get(written)) == ip(get("10.0.0.1", written)) == "192.0.2.7"


anything = st.one_of(st.text(), st.text("0123456789abcdef:.,[]% \t", max_size=60))


@thorough
@given(anything)
def test_nothing_that_a_client_writes_changes_what_our_proxies_add(written: str) -> None:
    trusting = {"RULES_POLL": 0, "TRUSTED_PROXIES": TRUSTING}
    with override_settings(SLIDINGLIMIT=trusting):
        assert ip(get("10.0.0.1", f"{written},192.0.2.7, 10.0.0.2")) == "192.0.2.7"
        for request in (get("10.0.0.1", written), get(written), get(written, written)):
            client = find("ip", request)
            assert client is None or len(client.identity) < 50


# Keys by name


def test_the_user_is_known_by_primary_key_and_no_anonymous_one_is_a_user() -> None:
    request = get()
    assert find("user", request) is None
    request.user = User(pk=42, username="ada")
    assert find("user", request) == Client("user", "42")
    key = uuid.uuid4()
    request.user = SimpleNamespace(is_authenticated=True, pk=key)  # type: ignore[assignment]
    assert find("user", request) == Client("user", str(key))


@pytest.mark.parametrize("pk", [None, ""])
def test_a_user_without_a_primary_key_has_no_identity(pk: str | None) -> None:
    request = get()
    request.user = SimpleNamespace(is_authenticated=True, pk=pk)  # type: ignore[assignment]
    assert find("user", request) is None
    assert find("user_or_ip", request) == Client("ip", "192.0.2.7")


def test_a_user_whose_primary_key_is_0_is_a_user() -> None:
    request = get()
    request.user = User(pk=0)
    assert find("user", request) == Client("user", "0")


def test_a_request_that_nobody_authenticated_has_no_user() -> None:
    request = get()
    del request.user
    assert find("user", request) is None
    request.user = None  # type: ignore[assignment]  # as DRF with UNAUTHENTICATED_USER = None
    assert find("user", request) is None


def test_user_or_ip_is_the_user_and_else_the_address() -> None:
    request = get("2001:db8::7")
    assert find("user_or_ip", request) == Client("ip", "2001:db8::/64")
    request.user = User(pk=42)
    assert find("user_or_ip", request) == Client("user", "42")
    assert find("user_or_ip", get("rubbish")) is None


def test_global_is_one_client() -> None:
    assert find("global", get()) == find("global", get("")) == Client("global", "")


def test_a_header_is_found_however_its_name_is_written() -> None:
    request = get(HTTP_X_API_KEY=SECRET)
    names = ("header:X-Api-Key", "header:x-api-key", "header: X-API-KEY ")
    assert {clients.key(name).name for name in names} == {"header:x-api-key"}
    found = {find(name, request) for name in names}
    assert len(found) == 1
    assert None not in found
    assert find("header:x-api-key", get()) is None
    assert find("header:x-api-key", get(HTTP_X_API_KEY="")) is None
    assert find("header:content-type", get(CONTENT_TYPE="text/plain")) is not None


def test_the_query_and_a_form_are_found_by_field() -> None:
    request = RequestFactory().post("/?token=in-the-query", {"token": "in-the-form"})
    query, form = find("get:token", request), find("post:token", request)
    assert query is not None
    assert form is not None
    assert (query.kind, form.kind) == ("get:token", "post:token")
    assert query.identity != form.identity
    assert find("get:Token", request) is None
    assert find("post:other", request) is None
    assert find("get:token", RequestFactory().get("/?token=")) is None
    assert find("post:token", RequestFactory().post("/", b"{}", "application/json")) is None


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "usr", "IP", "ip ", "header", "header:", "header: ", "get:", ":x", "cookie:x"),
        *("Header:x", "user:ip", "x:y:z", "api key", "\0"),
    ],
)
def test_an_unknown_key_is_refused_and_the_known_ones_are_told(name: str) -> None:
    for refuse in (clients.key, clients.named):
        with pytest.raises(ImproperlyConfigured) as info:
            refuse(name)
        assert repr(name) in str(info.value)
        for known in (*clients.BUILT_IN, *clients.PREFIXES, 'SLIDINGLIMIT["KEYS"]'):
            assert known in str(info.value)


@pytest.mark.parametrize("given", [None, 7, [], {}, b"ip"])
def test_what_is_no_name_and_no_callable_is_no_key(given: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="is not a key"):
        clients.key(given)


# The project's own keys


def tenant(group: str, request: HttpRequest) -> Any:
    return f"{group}/{request.headers.get('X-Tenant')}"


TENANT = f"{__name__}.tenant"
NO_FUNCTION = "text"


class ByTenant:
    def __call__(self, group: str, request: HttpRequest) -> str:
        return tenant(group, request)  # type: ignore[no-any-return]

    def method(self, group: str, request: HttpRequest) -> str:
        return tenant(group, request)  # type: ignore[no-any-return]


def test_a_callable_gets_the_group_and_the_request() -> None:
    request = get(HTTP_X_TENANT="acme")
    assert find(tenant, request, "search") == Client(TENANT, "search/acme")
    assert find(ByTenant(), request) == Client(f"{__name__}.ByTenant", "api/acme")
    assert find(ByTenant().method, request) == Client(f"{__name__}.ByTenant.method", "api/acme")
    assert find(partial(tenant), request) == Client("functools.partial", "api/acme")


def test_a_coroutine_function_is_no_key() -> None:
    async def own(group: str, request: HttpRequest) -> str:
        return "someone"

    with pytest.raises(ImproperlyConfigured, match="must be a plain function"):
        clients.key(own)


def test_a_dotted_path_in_code_is_the_callable() -> None:
    request = get(HTTP_X_TENANT="acme")
    assert find(TENANT, request) == find(tenant, request)


@pytest.mark.parametrize("path", ["tests.nowhere.key", f"{__name__}.nothing", ".x", "..x", "a..b"])
def test_a_path_that_leads_nowhere_is_told(path: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="cannot be imported"):
        clients.key(path)


def test_a_path_to_something_else_is_told() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"is no callable \(group, request\)"):
        clients.key(f"{__name__}.NO_FUNCTION")


def test_a_module_that_fails_as_it_is_imported_is_told(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_key_module.py").write_text("{}['absent']\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImproperlyConfigured, match="cannot be imported: 'absent'"):
        clients.key("failing_key_module.key")


@pytest.mark.parametrize("name", ["tenant", "by.tenant"])
def test_a_registered_name_works_in_code_and_in_rules(settings: Settings, name: str) -> None:
    settings.SLIDINGLIMIT = {"KEYS": {name: TENANT}}
    request = get(HTTP_X_TENANT="acme")
    for key in (clients.key(name), clients.named(name)):
        assert key.name == name
        assert key.find("api", request) == Client(name, "api/acme")


@pytest.mark.parametrize("path", [TENANT, "os.system", "tests.test_clients.ByTenant"])
def test_a_database_rule_cannot_name_a_free_dotted_path(settings: Settings, path: str) -> None:
    settings.SLIDINGLIMIT = {"KEYS": {"tenant": TENANT}}
    with pytest.raises(ImproperlyConfigured, match="is not a key"):
        clients.named(path)
    rule = models.Rule(name="r", scope="s", rate="1/s", key=path)
    with pytest.raises(Exception, match="is not a key"):
        rule.full_clean(validate_constraints=False)


@pytest.mark.parametrize("found", [None, ""])
def test_a_callable_that_finds_nothing_found_no_identity(found: str | None) -> None:
    assert find(lambda group, request: found, get()) is None


@pytest.mark.parametrize("found", [0, 7, uuid.UUID(int=7)])
def test_what_a_callable_finds_is_counted_as_text(found: Any) -> None:
    client = find(lambda group, request: found, get())
    assert client is not None
    assert client.identity == str(found)


def test_a_callable_may_name_the_client_itself() -> None:
    assert find(lambda g, r: Client("plan", "gold"), get()) == Client("plan", "gold")
    assert find(lambda g, r: Client("plan", 7), get()) == Client("plan", "7")  # type: ignore[arg-type]
    long = find(lambda g, r: Client("plan", "x" * 10_000), get())
    assert long is not None
    assert len(long.identity) == clients.LONGEST


def test_two_lambdas_of_one_place_are_two_keys() -> None:
    first = clients.key(lambda group, request: request.GET.get("a"))
    other = clients.key(lambda group, request: request.GET.get("b"))
    assert first.name != other.name
    assert len({k.find("api", RequestFactory().get("/?a=1&b=1")) for k in (first, other)}) == 2


# Identities


@pytest.mark.parametrize("length", [1, 127, 128, 129, 1000, 100_000])
def test_an_identity_is_bounded_and_stays_itself(length: int) -> None:
    first, other = (find(lambda g, r, e=e: "x" * (length - 1) + e, get()) for e in "ab")
    assert first is not None
    assert other is not None
    assert first != other
    assert len(first.identity) == min(length, clients.LONGEST)
    again = find(lambda g, r: "x" * (length - 1) + "a", get())
    assert again is not None
    assert again.identity == first.identity


@pytest.mark.parametrize("kind", ["header:x-api-key", "get:key", "post:key"])
@pytest.mark.parametrize("secret", [SECRET, "short", "1", "x" * 100_000, "\0", "\udcff\ud800" * 9])
def test_a_secret_is_a_digest_and_at_most_its_last_four_characters(kind: str, secret: str) -> None:
    source, field = kind.split(":")
    request = get(HTTP_X_API_KEY=secret)
    request.GET = request.POST = {"key": secret}  # type: ignore[assignment]
    client = find(kind, request)
    assert client is not None
    assert client.kind == kind
    digest, _, tail = client.identity.partition("~")
    assert len(digest) == 16
    assert tail == (secret[-4:] if len(secret) >= 12 else "")
    assert (source, field) == tuple(client.kind.split(":"))


def test_a_digest_belongs_to_this_project() -> None:
    request = get(HTTP_X_API_KEY=SECRET)
    before = find("header:x-api-key", request)
    with override_settings(SECRET_KEY="another"):
        assert find("header:x-api-key", request) != before
    assert find("header:x-api-key", request) == before


def test_kinds_never_collide() -> None:
    """One text under every kind: all are different clients, and none stands for the absent."""
    request = RequestFactory().post("/?k=42", {"k": "42"}, headers={"k": "42"})
    request.META["REMOTE_ADDR"] = "42"
    request.user = User(pk=42)
    own: list[Any] = [lambda g, r: "42", lambda g, r: ""]
    keys: list[Any] = ["user", "global", "header:k", "get:k", "post:k", *own]
    found = [find(key, request) for key in keys]
    absent = [clients.without_identity(clients.key(key).name) for key in [*keys, "ip"]]
    known = [client for client in found if client is not None and client.kind != "global"]
    assert len(set(known)) == len(known) == 5
    assert not set(known) & set(absent)


@pytest.mark.django_db
def test_secrets_never_reach_redis_or_the_log(
    redis_client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    request = RequestFactory().post(f"/?key={SECRET}", {"key": SECRET}, headers={"x-key": SECRET})
    request.user = AnonymousUser()
    for key in ("header:x-key", "get:key", "post:key"):
        for _ in range(3):
            decision = limiter.check(request, "login", key=key, rate="2/min")
        assert not decision.allowed
    recorder.flush()
    stored = b"\n".join(everything(redis_client))
    assert b"header:x-key" in stored
    for form in (SECRET, SECRET[:-4], SECRET[4:]):
        assert form.encode() not in stored
        assert form not in caplog.text
        assert form not in repr(decision)


@pytest.mark.django_db
def test_counters_hold_no_identity_at_all(redis_client: Redis) -> None:
    request = get("203.0.113.77")
    request.user = User(pk=4242424242)
    limiter.check(request, "login", key="user", rate="2/min")
    limiter.check(request, "login", key="ip", rate="2/min")
    counters = list(everything(redis_client))
    assert len(counters) == 2 * 5  # a key; its window's number and the client's field, with values
    assert not [text for text in counters if b"203.0.113" in text or b"4242424242" in text]


def everything(redis: Redis) -> Any:
    """All keys, fields, members and values of the server."""
    for key in redis.scan_iter(count=1000):
        yield key
        match redis.type(key):
            case b"hash":
                yield from (x for pair in redis.hgetall(key).items() for x in pair)
            case b"zset":
                yield from redis.zrange(key, 0, -1)
            case b"string":
                yield redis.get(key)
            case other:
                raise AssertionError(other)


def test_the_shared_bucket_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    name = f"header:{uuid.uuid4()}"
    assert clients.without_identity(name) == Client(name, "")
    for _ in range(9):
        clients.without_identity(name)
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert name in caplog.text
    assert "no_identity" in caplog.text


def test_an_address_that_is_none_is_no_client() -> None:
    assert by_address(None) is None
