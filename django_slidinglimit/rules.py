"""The rule set that a process decides by: compiled, immutable, for look-up in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import MAXYEAR
from hashlib import blake2b
from typing import TYPE_CHECKING, cast

from . import addresses, clients, indexes, models
from .core.decisions import Client, Rule
from .core.rates import Rate
from .overrides import Override, Overrides, Target
from .paths import PathPattern, places_near

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .clients import Key
    from .overrides import Effect


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A row, compiled. `key` is None where the place says who is counted."""

    pk: int
    rule: Rule
    scope: str
    path: PathPattern | None
    methods: frozenset[str]
    key: Key | None
    no_identity: str
    share: int = 100

    def narrowness(self) -> tuple[int, int]:
        """Of rules of paths, sorts the narrower pattern first."""
        return self.path.narrowness if self.path else (0, 0)

    def covers(self, method: str) -> bool:
        return not self.methods or method in self.methods

    def enforced_for(self, client: Client | None) -> bool:
        """Whether a client is in the share that the rule is enforced for: always the same ones."""
        if self.share >= 100:
            return True
        # Without identity it is nobody, whatever the kind: not told apart, then or later.
        kind, identity = client if client and client.identity else ("", "")
        text = f"{self.pk}:{len(kind)}:{kind}{identity}".encode(errors="surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8).digest()) % 100 < self.share


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules that are not off, for look-up by scope and by path."""

    scopes: Mapping[str, tuple[StoredRule, ...]] = field(default_factory=dict)
    # By where `places_near` looks for them.
    paths: Mapping[str, tuple[StoredRule, ...]] = field(default_factory=dict)
    # Rows that do not compile, and why: by what and which they are.
    problems: Mapping[str, str] = field(default_factory=dict)
    overrides: Overrides = field(default_factory=Overrides)
    token: bytes | None = None

    def for_scope(self, scope: str, method: str) -> list[StoredRule]:
        """The rules of a scope that cover a method."""
        return [rule for rule in self.scopes.get(scope, ()) if rule.covers(method)]

    def for_path(self, path: str, method: str, view: str | None = None) -> list[StoredRule]:
        """The rules whose pattern matches a request and that cover its method, narrowest first.

        Args:
            path: the request's `path_info`.
            method: its method.
            view: the name of the view that it was resolved to.
        """
        if not self.paths:
            return []
        near = (rule for place in places_near(path, view) for rule in self.paths.get(place, ()))
        found = [r for r in near if r.path and r.covers(method) and r.path.matches(path, view)]
        return sorted(found, key=StoredRule.narrowness) if len(found) > 1 else found

    def changed(
        self,
        gone: Sequence[StoredRule],
        new: Sequence[StoredRule],
        overrides: Overrides,
        problems: Mapping[str, str],
        token: bytes | None,
        pause: Callable[[], None],
    ) -> RuleSet:
        """The set without some of its rules and with others, and with all else as given.

        `pause` is called after each rule.
        """
        return RuleSet(
            indexes.changed(self.scopes, _by_scope(gone), _by_scope(new), _order, pause),
            indexes.changed(self.paths, _by_path(gone), _by_path(new), _order, pause),
            problems,
            overrides,
            token,
        )


def _by_scope(rules: Iterable[StoredRule]) -> Iterator[tuple[str, StoredRule]]:
    return ((rule.scope, rule) for rule in rules if rule.path is None)


def _by_path(rules: Iterable[StoredRule]) -> Iterator[tuple[str, StoredRule]]:
    return ((rule.path.near, rule) for rule in rules if rule.path is not None)


def _order(rule: StoredRule) -> tuple[str, int]:
    return (rule.rule.name, rule.pk)


def compile_rule(row: models.Rule) -> StoredRule:
    """Compile one row.

    Raises:
        ValueError, ImproperlyConfigured: a field is wrong; the message says which part and why.
    """
    deny = models.Rule.WhenDown(row.when_down) is models.Rule.WhenDown.DENY
    mode = models.Rule.Mode(row.mode)
    observe = mode is models.Rule.Mode.OBSERVE
    return StoredRule(
        pk=row.pk,
        rule=Rule(
            id=stored_id(row.pk),
            rate=Rate.parse(row.rate),
            name=str(row),
            observe=observe,
            when_down="deny" if deny else "allow",
            silent=observe,
        ),
        scope=row.scope,
        path=PathPattern(row.path) if row.path else None,
        methods=models.parse_methods(row.methods),
        key=clients.named(row.key) if row.key else None,
        no_identity=models.Rule.NoIdentity(row.no_identity).value,
        share=row.share if mode is models.Rule.Mode.ENFORCE else 100,
    )


def compile_override(row: models.Override) -> tuple[Target, Override]:
    """Compile one row.

    Raises:
        ValueError: a field is wrong; the message says which part and why.
    """
    effect = models.Override.Effect(row.effect)
    target = Target(
        Client(row.kind, row.identity) if row.kind else None,
        row.group_id,
        addresses.parse_network(row.network) if row.network else None,
    )
    return target, Override(
        pk=row.pk,
        rule=None if row.rule_id is None else stored_id(row.rule_id),
        effect=cast("Effect", effect.value),
        rate=Rate.parse(row.rate) if effect is models.Override.Effect.RATE else None,
        # Of a date such as datetime.max nobody can be told: it stands for never.
        expires=row.expires.timestamp() if row.expires and row.expires.year < MAXYEAR else None,
    )


def stored_id(pk: int) -> str:
    """What the counters of a rule in the database are kept under."""
    return f"d{pk}"
