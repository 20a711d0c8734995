"""On what terms an action holds: for how long, why, and at which rate."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

TIMES = {
    "10m": timedelta(minutes=10),
    "1h": timedelta(hours=1),
    "1d": timedelta(days=1),
    "1w": timedelta(weeks=1),
}
UNTIL = "until"


class TimeForm(forms.Form):
    """For how long something holds, and why; `expires` is when it ends."""

    time = forms.ChoiceField(
        label=gettext_lazy("For how long"),
        choices=(
            ("10m", gettext_lazy("10 minutes")),
            ("1h", gettext_lazy("1 hour")),
            ("1d", gettext_lazy("1 day")),
            ("1w", gettext_lazy("1 week")),
            (UNTIL, gettext_lazy("until a date")),
        ),
        initial="1h",
        widget=forms.Select(attrs={"data-sl-time": UNTIL}),
    )
    until = forms.DateTimeField(
        label=gettext_lazy("Until, if a date is chosen"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        required=False,
        max_length=200,
        help_text=gettext_lazy("For other operators; the client does not hear of it."),
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        time, until = cleaned.get("time"), cleaned.get("until")
        if time in TIMES:
            until = timezone.now().replace(microsecond=0) + TIMES[time]
        elif until is None and "until" in cleaned:
            self.add_error("until", _("Say until when."))
        elif until and until <= timezone.now():
            self.add_error("until", _("This lies in the past."))
        return {**cleaned, "expires": until}


class RateForm(TimeForm):
    """Another rate, too."""

    rate = forms.CharField(label=gettext_lazy("Rate"), max_length=50)
    field_order = ("rate", "time", "until", "reason")
