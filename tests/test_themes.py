"""The admin's pages stand in the shell of the theme, and have what the theme leaves out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from django.apps import apps
from django.contrib import admin
from django.urls import reverse

from django_slidinglimit.models import Override, Rule, Usage

if TYPE_CHECKING:
    from django.test import Client as Browser

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls("tests.admin_site"),
    pytest.mark.usefixtures("patient"),
]

USAGE = "admin:django_slidinglimit_usage"


@pytest.mark.parametrize("model", [Rule, Override])
def test_a_list_has_its_add_button(admin_client: Browser, model: type[Rule | Override]) -> None:
    name = f"admin:django_slidinglimit_{model._meta.model_name}"
    page = admin_client.get(reverse(f"{name}_changelist")).content.decode()
    main = page[page.index('id="main"') :]
    # The side bar of Django's own theme has one, too; that of the page comes without its class.
    links = re.findall(rf'<a[^>]*href="{reverse(f"{name}_add")}[^>]*>', main)
    assert any("aria-describedby" not in link for link in links)


@pytest.mark.parametrize(
    ("name", "query", "title"),
    [
        (f"{USAGE}_changelist", "", "Usage"),
        (f"{USAGE}_client", "?kind=ip&identity=192.0.2.7", "ip 192.0.2.7"),
        (f"{USAGE}_rule", "?rule=c1:10:60000:enforce", "c1"),
        ("admin:django_slidinglimit_rule_explain", "", "Which rules apply?"),
    ],
)
def test_a_page_of_ours_has_one_heading_and_its_sheet(
    admin_client: Browser, name: str, query: str, title: str
) -> None:
    page = admin_client.get(reverse(name) + query).content.decode()
    assert "django_slidinglimit/pages.css" in page
    shown = re.findall(r"<h1[^>]*>(.*?)</h1>", page[page.index('id="content"') :], re.DOTALL)
    assert shown[0] == title
    assert shown.count(title) == 1
    assert 'id="main"' in page


def test_unfolds_class_is_taken_only_where_it_is_installed() -> None:
    for model in (Rule, Override, Usage):
        bases = {base.__module__ for base in type(admin.site._registry[model]).__mro__}
        assert ("unfold.admin" in bases) is apps.is_installed("unfold")
