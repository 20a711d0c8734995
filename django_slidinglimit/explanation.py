"""Which rules apply to a request, and why: the same steps as a decision takes, without counting."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes, urlencode

from django.contrib.auth.models import AnonymousUser
from django.core.handlers.wsgi import WSGIRequest
from django.urls import Resolver404, resolve
from django.utils.translation import gettext as _

from . import endpoints, keeper, viewnames
from .clients import Key
from .core.decisions import Client
from .models import Rule
from .paths import PathPattern
from .places import asked_of, at_rate, code_rule, rules_at
from .rules import compile_rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from django.urls import ResolverMatch

    from .core.decisions import Rule as CompiledRule
    from .overrides import Override
    from .places import Asked, Place
    from .rules import RuleSet, StoredRule


# What stands before the path of a whole URL.
_HOST = re.compile("^https?://[^/?#]*")


class Question(NamedTuple):
    """A request that somebody might send.

    Args:
        path: its path, with the query if there is one, or its whole URL.
        method: its method.
        user: who is signed in; None: nobody.
        address: where it comes from.
        client: a client of another kind than user and ip, as rules count it; None: there is none.
    """

    path: str
    method: str = "GET"
    user: Any = None
    address: str = ""
    client: Client | None = None


@dataclass(slots=True)
class Applying:
    """A rule that applies to the request.

    Args:
        rule: the rule, at the rate that holds for the client.
        pk: its primary key; None: it is set in code.
        where: what makes it apply, a text for each place in code that asks.
        why: what it does there beside or in place of others.
        key: what it counts by.
        client: who is counted; None: the request has no identity for it, and it lets it through.
        override: the override that holds for the client.
        refuses: it refuses whatever is left.
    """

    rule: CompiledRule
    pk: int | None
    where: list[str]
    why: str
    key: str
    client: Client | None
    override: Override | None = None
    refuses: bool = False
    share: int = 100

    @property
    def exempt(self) -> bool:
        """Whether the request is not counted."""
        return self.client is None or bool(self.override and self.override.effect == "exempt")


class Passed(NamedTuple):
    """A rule that looks like applying, and why it does not."""

    name: str
    rate: str
    pk: int | None
    why: str


@dataclass(slots=True)
class Explanation:
    """What becomes of a request. `problems` are what the project's own code raised when asked."""

    match: ResolverMatch | None
    view: str
    applying: list[Applying] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def explain(question: Question) -> Explanation:
    """Find the rules that apply to a request, and those that nearly do.

    The throttles and decorators of its view are asked as for a real request; nothing is counted.
    Calls of `limiter.check` in the view are not known.
    """
    request = _request(question)
    try:
        match = request.resolver_match = resolve(request.path_info)
    except Resolver404:
        match = None
    told = Explanation(match, viewnames.label(match.func) if match else "")
    current = keeper.current()
    seen: dict[tuple[str, Client | None], Applying] = {}
    places: list[Place] = []
    for where, place in _places(match, request, told):
        places.append(place)
        for line in _at(where, place, request, current, question.client, told):
            known = seen.setdefault((line.rule.id, line.client), line)
            if known is not line:  # decided once a request, whoever asks
                known.where += [text for text in line.where if text not in known.where]
    told.applying = list(seen.values())
    applying = {line.pk for line in told.applying if line.pk is not None}
    told.passed = [line for line in told.passed if line.pk not in applying]
    met = applying | {line.pk for line in told.passed if line.pk is not None}
    told.passed += _near(request, places, met)
    return told


def _request(question: Question) -> WSGIRequest:
    path, _mark, query = _HOST.sub("", question.path).partition("#")[0].partition("?")
    kind, identity = question.client or ("", "")
    source, _colon, name = kind.partition(":")
    if source == "get":
        query = f"{query}&{urlencode({name: identity})}"
    environ = {
        "REQUEST_METHOD": question.method,
        # Bytes, as servers hand them on (PEP 3333).
        "PATH_INFO": unquote_to_bytes(f"/{path.removeprefix('/')}").decode("latin-1"),
        "QUERY_STRING": query.encode().decode("latin-1"),
        "REMOTE_ADDR": question.address,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.input": BytesIO(),
        "wsgi.url_scheme": "http",
    }
    request = WSGIRequest(environ)
    request.user = question.user or AnonymousUser()
    # REST framework, too, takes the user for granted then.
    request._force_auth_user = request.user  # type: ignore[attr-defined]
    return request


def _places(
    match: ResolverMatch | None, request: WSGIRequest, told: Explanation
) -> Iterator[tuple[str, Place]]:
    """The places in code that ask, each with what it is."""
    if match is None:
        return
    method = str(request.method)
    for limit in endpoints.limits(match.func, method):
        where = f"@ratelimit({limit.place.scope!r})"
        if not limit.counts(method):
            rate = str(limit.place.rate or "")
            told.passed.append(Passed(where, rate, None, _("It counts other methods.")))
            continue
        try:
            yield where, limit.place_for(request)
        except Exception as exc:
            told.problems.append(f"{where}: {exc}")
    try:
        yield from endpoints.throttle_places(match, request)
    except Exception as exc:
        told.problems.append(_("The throttles of the view: %s") % exc)


def _at(
    where: str,
    place: Place,
    request: WSGIRequest,
    current: RuleSet,
    client: Client | None,
    told: Explanation,
) -> Iterator[Applying]:
    """The rules that apply at a place; those that give way are told of."""
    place = replace(place, key=_known(place.key, client))
    stored = {
        rule.rule.id: replace(rule, key=rule.key and _known(rule.key, client))
        for rule in rules_at(place, request, current)
    }
    try:
        asked = list(asked_of(place, request, stored.values()))
    except Exception as exc:  # a key of the project's own
        told.problems.append(f"{where}: {exc}")
        return
    own = place.rate and code_rule(place.scope, place.key.name, place.methods, place.rate)
    replacing = [
        stored[one.rule.id].rule.name
        for one in asked
        if one.rule.id in stored and _replaces(stored[one.rule.id], place)
    ]
    for one in asked:
        rule = stored.get(one.rule.id)
        yield _applying(where, place, one, rule, current)
    applying = {one.rule.id for one in asked}
    for rule in stored.values():
        if rule.rule.id in applying:
            continue
        why = _why_not(rule, place, request, asked, stored)
        told.passed.append(Passed(rule.rule.name, str(rule.rule.rate), rule.pk, why))
    if own and not any(one.rule is own for one in asked):
        why = _("Exempt: the throttle's get_cache_key returns None.")
        if replacing:
            why = _("Replaced by %s.") % ", ".join(replacing)
        name = _("the code's rate at %s") % where
        told.passed.append(Passed(name, str(own.rate), None, why))


def _known(key: Key, client: Client | None) -> Key:
    """The key, finding a client that no request could be made up for."""
    if client is None or key.name != client.kind:
        return key
    return Key(key.name, lambda _group, _request: client)


def _replaces(rule: StoredRule, place: Place) -> bool:
    same = rule.key is None or rule.key.name == place.key.name
    return same and rule.path is None and not rule.rule.observe


def _applying(
    where: str, place: Place, asked: Asked, stored: StoredRule | None, current: RuleSet
) -> Applying:
    rule, client = asked.rule, asked.client
    refuses = False
    if place.observe:
        rule = replace(rule, observe=True)
    if client is None and asked.no_identity != "allow":
        refuses = asked.no_identity == "refuse"
        client = Client(asked.key.name, "")
    # One that insists on an identity refuses before overrides are looked at.
    override = current.overrides.winner(rule.id, client) if client and not refuses else None
    if override and override.rate:
        rule = at_rate(rule, override.rate)
    return Applying(
        rule,
        stored.pk if stored else None,
        [where if stored is None or stored.path is None else f"{stored.path.text} ← {where}"],
        _why(place, stored),
        asked.key.name,
        client,
        override,
        refuses or bool(override and override.effect == "block"),
        stored.share if stored else 100,
    )


def _why(place: Place, stored: StoredRule | None) -> str:
    if stored is None:
        return _("The code sets it.")
    if stored.path is not None:
        return _("Its path matches.")
    if stored.rule.observe:
        return _("It observes beside the code's rate.")
    if place.rate is None:
        return _("The code sets no rate here.")
    if _replaces(stored, place):
        return _("It replaces the code's rate, %s.") % place.rate
    return _("Its key is another than the code's (%s): it adds a limit.") % place.key.name


def _why_not(
    rule: StoredRule,
    place: Place,
    request: WSGIRequest,
    asked: Iterable[Asked],
    stored: dict[str, StoredRule],
) -> str:
    """Why a rule that covers a request at a place is not asked there."""
    key = rule.key or place.key
    client = key.find(place.scope, request)
    if not rule.enforced_for(client):
        return _("It is enforced for %s%% of clients, and not for this one.") % rule.share
    for one in asked:
        other = stored.get(one.rule.id)
        if other and other.path and rule.path and other.path.narrowness < rule.path.narrowness:
            counting = (one.key.name, one.rule.rate.window_ms)
            if counting == (key.name, rule.rule.rate.window_ms) and not one.rule.observe:
                return _("%(name)s takes its place: %(path)s is narrower.") % {
                    "name": other.rule.name,
                    "path": other.path.text,
                }
    return _("Exempt: the throttle's get_cache_key returns None.")


def _near(request: WSGIRequest, places: list[Place], met: Iterable[int]) -> Iterator[Passed]:
    """Rules of these scopes and of the path that did not come into question."""
    scopes = {place.scope for place in places if place.scope}
    by_path = any(place.by_path for place in places)
    for row in Rule.objects.exclude(pk__in=met):
        if row.scope not in scopes and not (row.path and _matches(row.path, request)):
            continue
        yield Passed(row.name, row.rate, row.pk, _why_not_near(row, by_path, request))


def _matches(text: str, request: WSGIRequest) -> bool:
    match = request.resolver_match
    try:
        return PathPattern(text).matches(request.path_info, match.view_name if match else None)
    except ValueError:
        return False


def _why_not_near(row: Rule, by_path: bool, request: WSGIRequest) -> str:
    if row.mode == Rule.Mode.OFF:
        return _("It is off.")
    try:
        rule = compile_rule(row)
    except Exception as exc:
        return _("It is left out: %s") % exc
    if not rule.covers(str(request.method)):
        return _("It is for other methods: %s.") % row.methods
    if row.path and not by_path:
        return _("No throttle of the view is a RuleThrottle, which applies rules of paths.")
    return _("The code does not count this request there.")
