"""The users behind clients of the kind "user": their names, for those who may see users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.urls import NoReverseMatch, reverse

from django_slidinglimit.core.decisions import Client

from .recent import Recent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.admin import AdminSite
    from django.http import HttpRequest

# Names that are kept.
MOST = 10_000
# Users whose name begins with the same text; and such texts.
MOST_NAMED = 50


@dataclass(frozen=True)
class Person:
    """The user behind a client of the kind "user": a name, and a link to where it is edited."""

    name: str
    url: str


def people(
    request: HttpRequest, site: AdminSite, clients: Iterable[Client]
) -> dict[Client, Person]:
    """The users behind clients, in one query or none; none if the one who looks may not see users.

    Args:
        request: of the one who looks.
        site: the admin that the links lead into.
        clients: of any kind.
    """
    model = get_user_model()
    admin = site._registry.get(model)
    if admin is None or not admin.has_view_permission(request):
        return {}
    keys: dict[Client, Any] = {}
    for client in clients:
        if client.kind == "user":
            try:
                # Checked, not only converted: no database takes a number of thirty digits.
                keys[client] = model._meta.pk.clean(client.identity, None)
            except ValidationError:
                continue
    names = _names(set(keys.values()))
    found: dict[Client, Person] = {}
    for client, key in keys.items():
        name = names[key]
        if name is not None:
            try:
                view = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
                url = reverse(view, args=[quote(key)], current_app=site.name)
            except NoReverseMatch:
                url = ""
            found[client] = Person(name, url)
    return found


def named(request: HttpRequest, site: AdminSite, text: str) -> list[Client]:
    """The users whose name is or begins with a text, in one query or none; some of very many.

    Args:
        request: of the one who looks; none if that one may not see users.
        site: the admin in which they may.
        text: as it is written, not empty.
    """
    model = get_user_model()
    admin = site._registry.get(model)
    if admin is None or not admin.has_view_permission(request) or "\0" in text:
        return []
    known = _named.known([text])
    if not known:
        name = model.USERNAME_FIELD
        users = model._default_manager.filter(**{f"{name}__startswith": text})
        keys = users.order_by(name).values_list("pk", flat=True)[:MOST_NAMED]
        known = {text: [Client("user", str(key)) for key in keys]}
        _named.add(known)
    return known[text]


def forget() -> None:
    """Drop what is kept; tests begin so."""
    _kept.clear()
    _named.clear()


# The users by what their names begin with.
_named: Recent[str, list[Client]] = Recent(MOST_NAMED)
# The name by primary key; None: there is no such user.
_kept: Recent[Any, str | None] = Recent(MOST)


def _names(keys: set[Any]) -> dict[Any, str | None]:
    known = _kept.known(keys)
    lacking = keys - known.keys()
    if lacking:
        users = get_user_model()._default_manager.filter(pk__in=lacking)
        found = dict.fromkeys(lacking) | {user.pk: user.get_username() for user in users}
        _kept.add(found)
        known |= found
    return known
