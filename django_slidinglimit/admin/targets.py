"""Whom an override is for: the choice of its form, and the words for it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.widgets import AdminRadioSelect
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_slidinglimit import clients
from django_slidinglimit.core.decisions import Client
from django_slidinglimit.models import Override

from .rows import who
from .seen import SeenForm

if TYPE_CHECKING:
    from .people import Person


class Target(models.TextChoices):
    """Whom an override is for; the choice of the form."""

    CLIENT = "client", _("one client")
    GROUP = "group", _("a group of users")
    NETWORK = "network", _("a network of IP addresses")
    NOBODY = "nobody", _("requests that lack what a kind asks for, such as signed-out visitors")
    EVERYONE = "everyone", _("everyone")


# The fields that each choice asks for; the first must be filled in.
FIELDS = {
    Target.CLIENT: ("kind", "identity"),
    Target.GROUP: ("group",),
    Target.NETWORK: ("network",),
    Target.NOBODY: ("kind",),
    Target.EVERYONE: (),
}


def target_of(row: Override) -> Target:
    """Whom a row is for."""
    if row.group_id is not None:
        return Target.GROUP
    if row.network:
        return Target.NETWORK
    if row.kind:
        return Target.CLIENT if row.identity or row.kind == "global" else Target.NOBODY
    return Target.EVERYONE


class OverrideForm(SeenForm):
    """One choice of whom it is for, and the fields that the choice asks for."""

    target = forms.ChoiceField(
        label=_("For"),
        choices=Target.choices,
        widget=AdminRadioSelect(attrs={"class": "radiolist"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._client_before = (self.instance.kind, self.instance.identity)
        given = Override(kind=self.initial.get("kind") or "")
        given.identity = self.initial.get("identity") or ""
        given.network = self.initial.get("network") or ""
        given.group_id = self.initial.get("group") or None
        if self.instance.pk is not None or target_of(given) is not Target.EVERYONE:
            self.initial.setdefault("target", target_of(given).value)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if "target" in cleaned:
            self._keep_one_target(cleaned, Target(cleaned["target"]))
        if cleaned.get("effect") and cleaned["effect"] != Override.Effect.RATE:
            self._drop(cleaned, "rate")
        elif cleaned.get("effect") and "rate" in cleaned and not cleaned["rate"]:
            self.add_error("rate", gettext("Write the rate, such as 500/min."))
        expires = cleaned.get("expires")
        if expires and "expires" in self.changed_data and expires <= timezone.now():
            self.add_error("expires", gettext("This lies in the past."))
        return cleaned

    def _keep_one_target(self, cleaned: dict[str, Any], target: Target) -> None:
        for name in ("kind", "identity", "group", "network"):
            if name not in FIELDS[target]:
                self._drop(cleaned, name)
        for name in FIELDS[target][:1]:
            if name in cleaned and not cleaned[name]:
                self.add_error(name, gettext("Say which one."))
        if not cleaned.get("kind"):
            if target is Target.CLIENT:
                cleaned.pop("identity", None)  # of no kind, it means nothing
            return
        try:
            kind, _none = clients.settled(cleaned["kind"], "")
        except ValueError as exc:
            self.add_error("kind", str(exc))
            cleaned.pop("identity", None)
            return
        if target is Target.CLIENT and kind != "global":
            self._settle_identity(cleaned, kind)

    def _settle_identity(self, cleaned: dict[str, Any], kind: str) -> None:
        identity = cleaned.get("identity")
        if identity == "":
            self.add_error("identity", gettext("Say which one."))
        elif identity and kind == "user" and (kind, identity) != self._client_before:
            try:
                cleaned["identity"] = user_named(identity)
            except ValidationError as exc:
                self.add_error("identity", exc)

    def _drop(self, cleaned: dict[str, Any], name: str) -> None:
        """Empty a field that another choice leaves unasked."""
        cleaned[name] = None if name == "group" else ""
        self.errors.pop(name, None)


def user_named(text: str) -> str:
    """The primary key of a user, as it is counted, from that or from the user's name.

    Raises:
        ValidationError: there is no such user, or the text means two of them.
    """
    model = get_user_model()
    users = model._default_manager
    found = list(users.filter(**{model.USERNAME_FIELD: text})[:1])
    with suppress(ValidationError):  # no primary key looks so
        key = model._meta.pk.clean(text, None)
        found += users.filter(pk=key).exclude(pk__in=[user.pk for user in found])
    if not found:
        raise ValidationError(
            gettext("There is no user with the name or the primary key %(text)s."),
            params={"text": text},
        )
    if len(found) > 1:
        raise ValidationError(
            gettext(
                "%(text)s is the name of one user and the primary key of another. Write the "
                "primary key of the one, which is %(key)s, or the name of the other."
            ),
            params={"text": text, "key": found[0].pk},
        )
    return str(found[0].pk)


def in_words(row: Override, person: Person | None = None) -> str:
    """Whom an override is for: a kind as a badge, and a name."""
    if row.group_id is not None:
        return format_html('<span class="sl-kind">{}</span> {}', gettext("group"), row.group)
    if row.network:
        return format_html('<span class="sl-kind">{}</span> {}', gettext("network"), row.network)
    if row.kind:
        client = Client(row.kind, row.identity)
        return format_html('<span class="sl-kind">{}</span> {}', row.kind, who(client, person))
    return gettext("everyone")
