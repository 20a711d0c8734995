"""The page of one rule, as a browser without JavaScript gets it."""

import re
from typing import Any

import pytest
from django.test import Client as Browser
from django.urls import reverse

from django_slidinglimit.core.decisions import Client, Rule
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.usage.layout import rule_field
from tests.test_admin_usage import ask, text_of

pytestmark = pytest.mark.django_db

RULE = reverse("admin:django_slidinglimit_usage_rule")
LIST = Rule("c1", Rate(10, 3_600_000), "list")
MARIA = Client("user", "77")


def look(browser: Browser, rule: Rule = LIST, **query: str) -> Any:
    key = rule.id if rule.id.startswith("d") else rule_field(rule)
    return browser.get(RULE, {"rule": key, **query})


def test_it_lists_the_rules_clients_with_their_numbers(admin_client: Browser) -> None:
    ask(LIST, MARIA, 12)
    ask(LIST, Client("ip", "192.0.2.1"), 3)
    page = text_of(look(admin_client))
    assert "list 10/h set in code 13 admitted, 2 refused in the last hour" in page
    assert re.search(r"user 77 limited 10 of 10 0 \d+ (min|h|s)", page)
    assert "ip 192.0.2.1 ok 3 of 10 7 now 3 0" in page
