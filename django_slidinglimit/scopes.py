"""The scopes that the code uses, each with where: what rules can be made for.

Those that only a call of `limiter.check` names are not known, and those that a view's own
`get_throttles` chooses only if DEFAULT_THROTTLE_RATES declares them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from . import clients, decorators, endpoints, models
from .core.rates import Rate
from .paths import PathPattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .endpoints import Endpoint


class Use(NamedTuple):
    """A scope at a place in code.

    Args:
        scope: its name.
        where: the place in words.
        limited: whether the code sets a rate there.
    """

    scope: str
    where: str
    limited: bool


class Map(NamedTuple):
    """What rules can name: scopes with their uses, and the names of views."""

    scopes: Mapping[str, tuple[Use, ...]]
    views: Mapping[str, Endpoint]

    def unlimited(self, rules: Iterable[models.Rule]) -> list[str]:
        """The scopes that neither the code nor one of these rules sets a rate for."""
        ruled = {rule.scope for rule in rules if rule.mode != models.Rule.Mode.OFF}
        return [
            scope
            for scope, uses in self.scopes.items()
            if scope not in ruled and not any(use.limited for use in uses)
        ]

    def lacks(self, rule: models.Rule) -> bool:
        """Whether a rule is for a scope or a view's name that nobody is known to have."""
        if rule.scope:
            return rule.scope not in self.scopes
        try:
            view = PathPattern(rule.path).view
        except ValueError:  # told of as a row that is left out
            return False
        return view is not None and view not in self.views


def survey() -> Map:
    """All that is in use, scopes sorted by name."""
    found = list(endpoints.endpoints())
    scopes: dict[str, list[Use]] = {}
    for use in dict.fromkeys(_uses(found)):
        scopes.setdefault(use.scope, []).append(use)
    for scope in decorators.scopes - scopes.keys():  # on what no URL leads to
        scopes[scope] = [Use(scope, "@ratelimit", True)]
    return Map(
        {scope: tuple(scopes[scope]) for scope in sorted(scopes)},
        {endpoint.name: endpoint for endpoint in found},
    )


def doubles(rules: Iterable[models.Rule]) -> list[list[models.Rule]]:
    """Rules that say the same: for the same place, methods, clients and time, in the same mode.

    Only their rates differ, and the lower one alone matters. Those that are off, or make no sense,
    are passed over.
    """
    groups: dict[tuple[object, ...], list[models.Rule]] = {}
    for rule in rules:
        if rule.mode == models.Rule.Mode.OFF:
            continue
        try:
            identity = _identity(rule)
        except Exception:  # noqa: S112  a project's own key fails in its own ways
            continue
        groups.setdefault(identity, []).append(rule)
    return [group for group in groups.values() if len(group) > 1]


def _identity(rule: models.Rule) -> tuple[object, ...]:
    return (
        rule.scope,
        bool(rule.path and PathPattern(rule.path).view),
        rule.path.removeprefix("/"),
        models.parse_methods(rule.methods),
        clients.named(rule.key).name if rule.key else "",
        Rate.parse(rule.rate).window_ms,
        rule.mode,
    )


def _uses(found: Iterable[Endpoint]) -> Iterator[Use]:
    for endpoint in found:
        for limit in endpoints.limits(endpoint.view):
            limited = limit.place.rate is not None or limit.rate is not None
            yield Use(limit.place.scope, f"@ratelimit on {endpoint}", limited)
    # To have a view of REST framework's is to have imported it.
    if sys.modules.get("rest_framework") is None:
        return
    from . import throttled

    for endpoint in found:
        for each in throttled.throttles_of(endpoint.view):
            if each.scope:
                kind = each.throttle.rpartition(".")[2]
                yield Use(each.scope, f"{kind} on {endpoint}", each.limited)
    for each in throttled.default_throttles():
        yield Use(each.scope, "DEFAULT_THROTTLE_CLASSES", each.limited)
    for scope, limited in throttled.declared():
        yield Use(scope, "DEFAULT_THROTTLE_RATES", limited)
