"""Rules as they were asked in the last hour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django_slidinglimit import keeper
from django_slidinglimit.core.stores import StoreError

from . import minutes
from .layout import field_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_slidinglimit.core.decisions import Rule
    from django_slidinglimit.rules import StoredRule

    from .minutes import Minute


@dataclass(slots=True)
class RuleUsage:
    """One rule in some minutes.

    Args:
        rule: the rule as it is now, or as it was recorded if code made it.
        stored: its row, compiled; None for a rule in code, or a row that is off or deleted.
        fields: how it stands in the recorder's keys; several after an edit.
        allowed, refused, would: decisions in these minutes.
        active: at least so many clients asked.
    """

    rule: Rule
    stored: StoredRule | None
    fields: list[str] = field(default_factory=list)
    allowed: int = 0
    refused: int = 0
    would: int = 0
    active: int = 0

    @property
    def all(self) -> int:
        return self.allowed + self.refused + self.would

    @property
    def over(self) -> int:
        """Hits over the limit, whatever became of them."""
        return self.refused + self.would

    @property
    def gone(self) -> bool:
        """Whether it is a row that is off or deleted by now."""
        return self.stored is None and self.rule.id.startswith("d")


def asked_in(found: Sequence[Minute]) -> dict[str, RuleUsage]:
    """The rules of some minutes and their counts, a row's under its id however it changed.

    Args:
        found: the minutes, newest first.
    """
    stored = stored_rules()
    usages: dict[str, RuleUsage] = {}
    by_field: dict[str, RuleUsage] = {}
    for minute in found:
        for name, title in minute.names.items():
            if name in by_field:
                continue
            try:
                rule = field_rule(name, title)
            except ValueError:
                continue
            row = stored.get(rule.id)
            key = rule.id if rule.id.startswith("d") else name
            usage = usages.setdefault(key, RuleUsage(row.rule if row else rule, row))
            usage.fields.append(name)
            by_field[name] = usage
        for name, counts in minute.counts.items():
            known = by_field.get(name)
            if known is not None:
                known.allowed += counts.allowed
                known.refused += counts.refused
                known.would += counts.would
                known.active = max(known.active, counts.clients)
    return usages


def rule_of(text: str) -> Rule:
    """The rule of a recorder's field, with its name as far as it is known.

    Raises:
        ValueError: the text is no rule's field.
    """
    rule = field_rule(text)
    stored = stored_rules().get(rule.id)
    if stored is not None:
        return field_rule(text, stored.rule.name)
    try:
        found = minutes.read(minutes.MOST).minutes
    except StoreError:
        found = []
    return field_rule(text, next((m.names[text] for m in found if text in m.names), rule.id))


def stored_rules() -> dict[str, StoredRule]:
    """The rules of the database that are not off, by the id that they are counted under."""
    current = keeper.current()
    return {
        stored.rule.id: stored
        for group in (*current.scopes.values(), *current.paths.values())
        for stored in group
    }
