"""The rule set that a process decides by: compiled, immutable, for look-up in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar, cast

from django.contrib.auth import get_user_model
from django.core.exceptions import FieldError, ValidationError
from django.db import router
from django.utils import timezone

from . import clients, models
from .core.decisions import Client, Rule
from .core.rates import Rate
from .overrides import Override, Overrides, Target
from .paths import PathPattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .clients import Key
    from .overrides import Effect

R = TypeVar("R", models.Rule, models.Override)
C = TypeVar("C")


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

    def covers(self, method: str) -> bool:
        return not self.methods or method in self.methods

    def enforced_for(self, client: Client | None) -> bool:
        """Whether a client is in the share that the rule is enforced for: always the same ones."""
        if self.share >= 100:
            return True
        kind, identity = client or ("", "")
        text = f"{self.pk}:{len(kind)}:{kind}{identity}".encode(errors="surrogatepass")
        return int.from_bytes(blake2b(text, digest_size=8).digest()) % 100 < self.share


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules that are not off, for look-up by scope and by path."""

    scopes: Mapping[str, tuple[StoredRule, ...]] = field(default_factory=dict)
    # By the first segment of the path, "" where it is not fixed.
    paths: Mapping[str, tuple[StoredRule, ...]] = field(default_factory=dict)
    # Rows that do not compile, and why: by what and which they are.
    problems: Mapping[str, str] = field(default_factory=dict)
    overrides: Overrides = field(default_factory=Overrides)
    token: bytes | None = None

    def for_scope(self, scope: str, method: str) -> list[StoredRule]:
        """The rules of a scope that cover a method."""
        return [rule for rule in self.scopes.get(scope, ()) if rule.covers(method)]

    def for_path(self, path: str, method: str) -> list[StoredRule]:
        """The rules whose pattern matches a request's path and that cover a method."""
        first = path.removeprefix("/").partition("/")[0]
        near = (*self.paths.get(first, ()), *(self.paths.get("", ()) if first else ()))
        return [r for r in near if r.path and r.covers(method) and r.path.matches(path)]


def compile_set(
    rows: Iterable[models.Rule],
    exceptions: Iterable[models.Override] = (),
    token: bytes | None = None,
) -> RuleSet:
    """Compile rows; one that does not compile is left out and told of, the rest serves."""
    scopes: dict[str, list[StoredRule]] = {}
    paths: dict[str, list[StoredRule]] = {}
    problems: dict[str, str] = {}
    for stored in _compiled(rows, compile_rule, problems):
        if stored.path is None:
            scopes.setdefault(stored.scope, []).append(stored)
        else:
            first, slash, _ = stored.path.literal.partition("/")
            paths.setdefault(first if slash else "", []).append(stored)
    return RuleSet(
        {scope: tuple(rules) for scope, rules in scopes.items()},
        {first: tuple(rules) for first, rules in paths.items()},
        problems,
        Overrides(_compiled(exceptions, compile_override, problems), groups_of),
        token,
    )


def _compiled(
    rows: Iterable[R], compile_row: Callable[[R], C], problems: dict[str, str]
) -> Iterator[C]:
    for row in rows:
        try:
            yield compile_row(row)
        except Exception as exc:  # a project's own key, too, which may fail in its own ways
            problems[f"{row._meta.verbose_name} {row.pk}"] = f"{row}: {exc}"


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
        clients.parse_network(row.network) if row.network else None,
    )
    return target, Override(
        pk=row.pk,
        rule=None if row.rule_id is None else stored_id(row.rule_id),
        effect=cast("Effect", effect.value),
        rate=Rate.parse(row.rate) if effect is models.Override.Effect.RATE else None,
        expires=row.expires.timestamp() if row.expires else None,
    )


def stored_id(pk: int) -> str:
    """What the counters of a rule in the database are kept under."""
    return f"d{pk}"


def load(token: bytes | None = None) -> RuleSet:
    """Read the rows from the database that is written to, and compile them."""
    alias = database()
    rows = models.Rule.objects.using(alias).exclude(mode=models.Rule.Mode.OFF)
    exceptions = models.Override.objects.using(alias).exclude(expires__lt=timezone.now())
    return compile_set(rows.iterator(), exceptions.iterator(), token)


def groups_of(identity: str) -> frozenset[int]:
    """The primary keys of the groups that a user is in; a user that there is not is in none."""
    users = get_user_model()._default_manager.using(database())
    try:
        found = users.filter(pk=identity).values_list("groups", flat=True)
        return frozenset(group for group in found if group is not None)
    except (ValueError, ValidationError, FieldError):  # no such key; a user model without groups
        return frozenset()


def database() -> str:
    """The alias of the database that rules are written to."""
    return router.db_for_write(models.Rule)
