"""What the rule set gives for a scope and for a path."""

from __future__ import annotations

from django_slidinglimit.models import Rule
from django_slidinglimit.overrides import Overrides
from django_slidinglimit.rules import RuleSet, compile_rule


class TestRuleSet:
    @staticmethod
    def compiled(*rows: dict[str, str]) -> RuleSet:
        made = [Rule(**({"pk": pk, "rate": "5/min"} | row)) for pk, row in enumerate(rows, 1)]
        new = [compile_rule(row) for row in made]
        return RuleSet().changed((), new, Overrides(), {}, None, lambda: None)

    def test_gives_the_rules_of_a_scope(self) -> None:
        found = self.compiled({"scope": "a"}, {"scope": "b"}, {"scope": "a"}, {"path": "a"})
        assert [r.pk for r in found.for_scope("a", "GET")] == [1, 3]
        assert found.for_scope("c", "GET") == []

    def test_gives_the_rules_whose_pattern_matches_a_path(self) -> None:
        found = self.compiled(
            {"path": "api/items/<int:pk>/"},
            {"path": "/api/*"},
            {"path": "*"},
            {"path": "/api"},
            {"path": "<slug:name>/"},
            {"path": "/"},
        )
        assert [r.pk for r in found.for_path("/api/items/7/", "GET")] == [1, 2, 3]
        assert [r.pk for r in found.for_path("/api/items/x/", "GET")] == [2, 3]
        assert [r.pk for r in found.for_path("/api", "GET")] == [4, 3]
        assert [r.pk for r in found.for_path("/api/", "GET")] == [5, 2, 3]
        assert [r.pk for r in found.for_path("/", "GET")] == [6, 3]

    def test_gives_the_rules_of_a_view_by_its_name(self) -> None:
        found = self.compiled({"path": "*"}, {"path": "api:list"}, {"path": "api:item"})
        assert [r.pk for r in found.for_path("/x/", "GET", "api:item")] == [3, 1]
        assert [r.pk for r in found.for_path("/api:item", "GET")] == [1]

    def test_gives_the_rules_that_cover_the_method(self) -> None:
        found = self.compiled(
            {"scope": "a", "methods": "get, POST"},
            {"scope": "a"},
            {"path": "a", "methods": "GET"},
            {"path": "a*", "methods": "PUT"},
        )
        assert [r.pk for r in found.for_scope("a", "POST")] == [1, 2]
        assert [r.pk for r in found.for_scope("a", "PUT")] == [2]
        assert [r.pk for r in found.for_path("/a", "PUT")] == [4]
