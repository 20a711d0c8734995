from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_slidinglimit import conf
from django_slidinglimit.errors import SettingError


def test_without_the_setting_the_defaults_hold() -> None:
    with override_settings():
        del settings.SLIDINGLIMIT
        assert conf.read() == conf.Conf()
        assert conf.read().TIMEOUT == 0.1


def test_an_override_holds_while_it_lasts() -> None:
    before = conf.current()
    with override_settings(SLIDINGLIMIT={"TIMEOUT": 2}):
        assert conf.current().TIMEOUT == 2
        with override_settings(SLIDINGLIMIT={"BUCKETS": 7}):
            assert (conf.current().TIMEOUT, conf.current().BUCKETS) == (0.1, 7)
        assert conf.current().TIMEOUT == 2
    assert conf.current() == before


def test_it_is_read_once_and_kept() -> None:
    assert conf.current() is conf.current()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("CACHE", "limits"),
        ("PREFIX", ""),
        ("TIMEOUT", 0.001),
        ("TIMEOUT", 60),
        ("BUCKETS", 1),
        ("FORWARDED_HEADER", "X-Real-IP"),
        ("IPV6_PREFIX", 128),
        ("KEYS", {"tenant": "project.keys.tenant"}),
        ("HEADERS", ()),
        ("RESET", "epoch"),
        ("RULES_POLL", 0),
        ("USAGE", False),
        ("USAGE_KEEP", 60),
        ("USAGE_KEEP", 86_400),
        ("USAGE_MEMORY", 2**22),
        ("USAGE_HASHED", True),
        ("USAGE_POLL", 1),
        ("USAGE_POLL", 2.5),
    ],
)
def test_a_part_is_taken_as_it_is_written(part: str, value: Any) -> None:
    with override_settings(SLIDINGLIMIT={part: value}):
        assert getattr(conf.current(), part) == value


def test_trusted_proxies_are_networks_and_perhaps_the_unix_socket() -> None:
    proxies = ["10.0.0.0/8", "192.0.2.1", ip_network("2001:db8::/32"), "unix:"]
    with override_settings(SLIDINGLIMIT={"TRUSTED_PROXIES": proxies}):
        networks = [str(network) for network in conf.current().TRUSTED_PROXIES]
        assert networks == ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32"]
        assert conf.current().TRUST_UNIX_SOCKET
    with override_settings(SLIDINGLIMIT={"TRUSTED_PROXIES": ["10.0.0.0/8"]}):
        assert not conf.current().TRUST_UNIX_SOCKET


@pytest.mark.parametrize(
    ("part", "value", "told"),
    [
        ("CACHE", None, "a text"),
        ("CACHE", "", "a text"),
        ("PREFIX", "sl{}:", "without braces"),
        ("PREFIX", None, "without braces"),
        ("TIMEOUT", 0, "from 0.001 to 60"),
        ("TIMEOUT", 61, "from 0.001 to 60"),
        ("TIMEOUT", float("nan"), "from 0.001 to 60"),
        ("TIMEOUT", True, "from 0.001 to 60"),
        ("TIMEOUT", "0.1", "from 0.001 to 60"),
        ("BUCKETS", 0, "from 1 to"),
        ("BUCKETS", 1.5, "from 1 to"),
        ("BUCKETS", True, "from 1 to"),
        ("TRUSTED_PROXIES", "10.0.0.0/8", "a list of networks"),
        ("TRUSTED_PROXIES", ["10.0.0.1/8"], "host bits set"),
        ("TRUSTED_PROXIES", ["proxy.example"], "10.0.0.0/8"),
        ("TRUSTED_PROXIES", [10], "10.0.0.0/8"),
        ("TRUSTED_PROXIES", [None], "10.0.0.0/8"),
        ("FORWARDED_HEADER", "", "a text"),
        ("FORWARDED_HEADER", "forwarded", "X-Forwarded-For"),
        ("FORWARDED_HEADER", "HTTP_X_REAL_IP", "as on the wire"),
        ("IPV6_PREFIX", 0, "from 1 to 128"),
        ("IPV6_PREFIX", 129, "from 1 to 128"),
        ("KEYS", ["tenant"], "a dict of names"),
        ("KEYS", {"header:tenant": "project.keys.tenant"}, "without colons"),
        ("KEYS", {"tenant": len}, "dotted paths"),
        ("KEYS", {"tenant": "tenant"}, "dotted paths"),
        ("HEADERS", "ratelimit", "a list of some of x-ratelimit, ratelimit"),
        ("HEADERS", ["x-rate-limit"], "a list of some of x-ratelimit, ratelimit"),
        ("HEADERS", [["ratelimit"]], "a list of some of x-ratelimit, ratelimit"),
        ("RESET", "date", '"seconds" or "epoch"'),
        ("RULES_POLL", -1, "from 0 to 60"),
        ("USAGE", 1, "True or False"),
        ("TIMEOUTS", 1, "no such part. Known: CACHE, PREFIX, TIMEOUT"),
        (7, 1, "no such part"),
    ],
)
def test_a_wrong_part_is_named_and_what_is_accepted_is_told(
    part: Any, value: Any, told: str
) -> None:
    with (
        override_settings(SLIDINGLIMIT={part: value}),
        pytest.raises(SettingError) as refusal,
    ):
        conf.current()
    assert str(refusal.value).startswith(f"SLIDINGLIMIT[{part!r}]: ")
    assert told in str(refusal.value)
    assert isinstance(refusal.value, ImproperlyConfigured)


@pytest.mark.parametrize("value", [None, [], "TIMEOUT"])
def test_a_setting_that_is_no_dict_is_refused(value: Any) -> None:
    with (
        override_settings(SLIDINGLIMIT=value),
        pytest.raises(SettingError, match=r"^SLIDINGLIMIT: must be a dict"),
    ):
        conf.current()


def test_all_problems_are_told_at_once() -> None:
    wrong = {"TIMEOUT": 0, "RESET": "date", "CACHES": "default"}
    with override_settings(SLIDINGLIMIT=wrong):
        settled, problems = conf.parse()
    assert [problem.name for problem in problems] == ["TIMEOUT", "RESET", "CACHES"]
    assert settled == conf.Conf()
