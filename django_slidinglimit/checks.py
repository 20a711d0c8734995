"""System checks: what is wrong with the set-up, told when the site starts. None asks Redis."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from django.apps import apps
from django.conf import settings
from django.core.cache import DEFAULT_CACHE_ALIAS, caches
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as CheckWarning
from django.db import DatabaseError, router
from django.urls import get_resolver

from . import clients, conf, connections, decorators, endpoints, scopes
from .core.rates import Rate
from .errors import SettingError
from .models import Rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Each part of SLIDINGLIMIT: the id of its error, and what to do. "" is the setting itself.
PARTS = {
    "": ("E001", 'Write a dict, such as SLIDINGLIMIT = {"CACHE": "limits"}.'),
    "CACHE": (
        "E002",
        "Name an alias of CACHES whose BACKEND is django_redis.cache.RedisCache, with one server.",
    ),
    "PREFIX": ("E003", 'Leave it out, or write a text such as "sl:".'),
    "TIMEOUT": ("E004", "Leave it out for 0.1 seconds."),
    "BUCKETS": ("E005", "Leave it out for 16384."),
    "TRUSTED_PROXIES": ("E006", 'List the networks of your proxies, such as ["10.0.0.0/8"].'),
    "FORWARDED_HEADER": ("E007", "Leave it out for X-Forwarded-For."),
    "IPV6_PREFIX": ("E008", "Leave it out for 64."),
    "KEYS": (
        "E009",
        'Write names and dotted paths of callables, such as {"tenant": "project.keys.tenant"}.',
    ),
    "HEADERS": ("E010", "Leave it out for all of them, or write [] for none."),
    "RESET": ("E011", 'Leave it out for "seconds".'),
    "RULES_POLL": ("E012", "Leave it out for 0.5 seconds, or write 0 in tests."),
    "USAGE": ("E013", "Leave it out for True."),
    "USAGE_KEEP": ("E017", "Leave it out for an hour, 3600 seconds."),
    "USAGE_MEMORY": ("E018", "Leave it out for 64 MB, or write bytes."),
    "USAGE_HASHED": ("E019", "Leave it out for False."),
    "USAGE_POLL": ("E020", "Leave it out for 2 seconds."),
}
UNKNOWN = ("E014", "Correct its spelling, or take it out.")


def register_all() -> None:
    """Register the checks; called when the app is ready."""
    checks = (check_setting, check_database, check_proxies, check_decorators, check_throttles)
    for check in (*checks, check_scopes):
        register(check, "slidinglimit")
    register(check_rules, "slidinglimit", Tags.database)


def check_setting(**_: Any) -> list[CheckMessage]:
    """All that is wrong with the SLIDINGLIMIT setting, and with the cache and keys it names."""
    settled, problems = conf.parse()
    return [
        Error(str(problem), hint=hint, id=f"slidinglimit.{number}")
        for problem in (*problems, *_cache_problems(settled), *_key_problems(settled))
        for number, hint in [PARTS.get(problem.name, UNKNOWN)]
    ]


def check_database(**_: Any) -> list[CheckMessage]:
    """Whether some cache.clear() would reset all limits: django-redis' is FLUSHDB."""
    alias = conf.parse()[0].CACHE
    ours = _database(caches.settings.get(alias, {}))
    if ours is None:
        return []
    sharing = [name for name, given in caches.settings.items() if _database(given) == ours]
    if sharing == [alias] and alias != DEFAULT_CACHE_ALIAS:
        return []
    return [
        CheckWarning(
            f"Limits are counted in the Redis database of {' and '.join(map(repr, sharing))}: "
            "cache.clear() empties it, and resets all limits.",
            hint='Make an alias for limits alone, on another database (such as "redis://.../1"), '
            'and name it in SLIDINGLIMIT["CACHE"].',
            id="slidinglimit.W001",
        )
    ]


def check_proxies(**_: Any) -> list[CheckMessage]:
    """Whether everybody is a trusted proxy, so that anybody may claim any address."""
    return [
        CheckWarning(
            f"SLIDINGLIMIT['TRUSTED_PROXIES'] trusts every address by {str(network)!r}: any client "
            "can claim another address in the forwarded header, and be counted anew.",
            hint="List the networks of your proxies alone.",
            id="slidinglimit.W002",
        )
        for network in conf.parse()[0].TRUSTED_PROXIES
        if network.prefixlen == 0
    ]


def check_decorators(**_options: Any) -> list[CheckMessage]:
    """Keys named by decorators, which import them only when the first request is counted."""
    if getattr(settings, "ROOT_URLCONF", None):
        _ = get_resolver().url_patterns  # imports the views
    return [
        Error(
            f"A key that @ratelimit names is no good: {problem}",
            hint="Name a callable (group, request) by its dotted path, or pass it.",
            id="slidinglimit.E015",
        )
        for name in sorted(decorators.own_keys)
        for problem in _faults_of_key(name)
    ]


def check_throttles(**options: Any) -> list[CheckMessage]:
    """What is wrong with throttles, where Django REST framework is installed."""
    if not apps.is_installed("rest_framework"):
        return []
    from . import throttled  # needs DRF

    return [*throttled.check_throttles(**options), *_rate_problems()]


def check_scopes(**_options: Any) -> list[CheckMessage]:
    """Views whose scope is nowhere declared, or read by no throttle: neither may mean no limit."""
    found = list(endpoints.endpoints())
    if sys.modules.get("rest_framework") is None:  # to have a view of its is to have imported it
        return []
    from . import throttled

    undeclared = {
        f"{endpoint}: {each.problem}"
        for endpoint in found
        for each in throttled.throttles_of(endpoint.view)
        if each.problem
    }
    unread = {
        f"{endpoint} has the throttle_scope {scope!r}, and none of its throttles reads it."
        for endpoint in found
        if (scope := throttled.unread_scope(endpoint.view))
    }
    return [
        *(
            Error(
                problem,
                hint="Correct the scope, or declare it in DEFAULT_THROTTLE_RATES. Until then each "
                "request to the view raises this error.",
                id="slidinglimit.E016",
            )
            for problem in sorted(undeclared)
        ),
        *(
            CheckWarning(
                problem,
                hint="Add ScopedRateThrottle or RuleThrottle of django_slidinglimit.throttling to "
                "its throttle_classes; without, the scope limits nothing.",
                id="slidinglimit.W004",
            )
            for problem in sorted(unread)
        ),
    ]


def check_rules(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Rules that bite nowhere or say the same as others, and scopes that lack one.

    Reads the database, so that it runs with `check --database` and `migrate` alone.
    """
    if router.db_for_read(Rule) not in (databases or ()):
        return []
    try:
        rules = list(Rule.objects.all())
    except DatabaseError:  # not migrated yet, or away
        return []
    survey = scopes.survey()
    return [
        *(
            CheckWarning(
                f"The rule {rule} (primary key {rule.pk}) is for {rule.scope or rule.path!r}, "
                "which nothing in the code is known to have: it limits nothing.",
                hint="Correct or delete it. (A scope that only limiter.check names is not known.)",
                id="slidinglimit.W005",
            )
            for rule in rules
            if survey.lacks(rule)
        ),
        *(
            CheckWarning(
                f"The scope {scope!r} has no limit: neither a rate in the code nor a rule.",
                hint="Add a rule in the admin, or a rate. Used by: "
                f"{', '.join(use.where for use in survey.scopes[scope])}.",
                id="slidinglimit.W006",
            )
            for scope in survey.unlimited(rules)
        ),
        *(
            CheckWarning(
                f"Rules say the same: {' and '.join(f'{r} ({r.pk}, {r.rate})' for r in group)}.",
                hint="All of them must admit, so only the lowest rate matters: keep that one.",
                id="slidinglimit.W007",
            )
            for group in scopes.doubles(rules)
        ),
    ]


def _cache_problems(settled: conf.Conf) -> Iterator[SettingError]:
    try:
        connections.server_of(settled.CACHE)
    except SettingError as exc:
        yield exc


def _key_problems(settled: conf.Conf) -> Iterator[SettingError]:
    for name, path in settled.KEYS.items():
        if name in clients.BUILT_IN:
            yield SettingError("KEYS", f"{name!r} is the name of a key that is built in.")
        for problem in _faults_of_key(path):
            yield SettingError("KEYS", f"{name!r}: {problem}")


def _faults_of_key(path: str) -> Iterator[Exception]:
    try:
        clients.key(path)
    except Exception as exc:  # whatever the project's module raises
        yield exc


def _rate_problems() -> Iterator[CheckMessage]:
    rates = getattr(settings, "REST_FRAMEWORK", {}).get("DEFAULT_THROTTLE_RATES") or {}
    for scope, rate in rates.items():
        try:
            Rate.parse(rate)
        except ValueError as exc:
            yield CheckWarning(
                f"REST_FRAMEWORK['DEFAULT_THROTTLE_RATES'][{scope!r}]: {exc}",
                hint="A throttle of django_slidinglimit would raise this error at each request.",
                id="slidinglimit.W003",
            )


def _database(given: dict[str, Any]) -> tuple[str, ...] | None:
    """What tells the Redis database of an entry of CACHES from others."""
    location = given.get("LOCATION", "")
    servers = re.split("[,;]", location) if isinstance(location, str) else location
    url = urlsplit(str(next(iter(servers), "")))
    options = given.get("OPTIONS", {})
    numbers = (
        options.get("CONNECTION_POOL_KWARGS", options).get("db"),
        *parse_qs(url.query).get("db", ()),
        url.path.strip("/") if url.scheme in ("redis", "rediss") else None,
    )
    number = next((str(number) for number in numbers if number not in (None, "")), "0")
    if url.scheme == "unix":
        return url.path, number
    if url.scheme in ("redis", "rediss"):
        host, _, port = url.netloc.rpartition("@")[2].partition(":")
        return host.replace("localhost", "127.0.0.1") or "127.0.0.1", port or "6379", number
    return None
