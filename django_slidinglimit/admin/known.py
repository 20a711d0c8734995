"""What the code has, in the rules' list and form: suggestions, and marks where a rule has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _

from django_slidinglimit import scopes
from django_slidinglimit.models import Rule

if TYPE_CHECKING:
    from django.forms import Field


def suggest(field: Field, name: str) -> None:
    """Have a form's field for a scope or a path suggest what there is.

    The list stands in the help text: whatever widget a theme brings, it needs no template.
    """
    known = scopes.survey()
    found = known.scopes if name == "scope" else known.views
    options = format_html_join("", '<option value="{}"></option>', ((each,) for each in found))
    field.widget.attrs["list"] = f"sl-known-{name}"
    field.help_text = format_html(
        '{}<datalist id="sl-known-{}">{}</datalist>', field.help_text, name, options
    )
    if name == "scope" and known.scopes:
        places = format_html_join(
            "",
            "<li><code>{}</code> {}</li>",
            ((scope, ", ".join(use.where for use in uses)) for scope, uses in known.scopes.items()),
        )
        field.help_text += format_html(
            '<details class="sl-known"><summary>{}</summary><ul>{}</ul></details>',
            _("Scopes in the code"),
            places,
        )


def mark(changelist: Any) -> None:
    """Give each rule of a list its `marks`, and the list the scopes that lack a limit."""
    known, rules = scopes.survey(), list(Rule.objects.all())
    others = {
        rule.pk: [other for other in group if other.pk != rule.pk]
        for group in scopes.doubles(rules)
        for rule in group
    }
    for rule in changelist.result_list:
        rule.marks = []
        if known.lacks(rule):
            rule.marks.append(_("nothing in the code is known to have it"))
        if rule.pk in others:
            names = ", ".join(f"{other.name} ({other.rate})" for other in others[rule.pk])
            rule.marks.append(_("says the same as %s") % names)
    changelist.unlimited = known.unlimited(rules)
