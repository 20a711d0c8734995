"""Two people at one form: the later is told what the other changed, and overwrites nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.utils.translation import gettext as _

from .log import entries_of, values
from .states import differences, loads, state_of

if TYPE_CHECKING:
    from django.db.models import Model
    from django.http import QueryDict

    from .states import State

    ModelForm = forms.ModelForm[Any]
else:
    ModelForm = forms.ModelForm


class SeenForm(ModelForm):
    """A form that knows what the row held when it was opened.

    `seen` carries that; `before` is what the row holds now, before the form changes it. The admin
    has locked the row, so nothing comes between the comparison and the write.
    """

    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before = state_of(self.instance)
        self.initial["seen"] = json.dumps(self.before)

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        name = self.add_prefix("seen")
        seen = loads(self.data.get(name))
        if self.instance.pk is not None and seen != self.before:
            # The form comes back as it was filled in, beginning from what is stored now.
            data = cast("QueryDict", self.data).copy()
            data[name] = self.initial["seen"]
            self.data = data
            self.add_error(None, _conflict(self.instance, seen, self.before))
        return cleaned


def _conflict(row: Model, seen: State | None, stored: State) -> str:
    if seen is None:
        return _(
            "This form does not tell what it began from. Look at what is stored, and save again."
        )
    entry = entries_of(row).order_by("-pk").first()
    who = entry.user.get_username() if entry and values(entry, "now") == stored else ""
    what = "; ".join(str(found) for found in differences(type(row), seen, stored))
    told = (
        _("%(who)s has changed this since you opened it: %(what)s.")
        if who
        else _("It has been changed since you opened it: %(what)s.")
    )
    advice = _("Nothing is saved yet. Save again to set everything as it stands below.")
    return f"{told % {'who': who, 'what': what}} {advice}"
