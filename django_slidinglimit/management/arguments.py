"""What an operator types, and what is meant by it."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import timedelta
from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.utils import timezone

from django_slidinglimit import clients
from django_slidinglimit.core.rates import Rate
from django_slidinglimit.core.redis import HASHED
from django_slidinglimit.loading import database
from django_slidinglimit.models import Rule

from . import tables

if TYPE_CHECKING:
    from django.core.management.base import BaseCommand

    from django_slidinglimit.core.decisions import Client


def client_named(command: BaseCommand, kind: str, identity: str) -> Client:
    """The client that is meant; a user may be called by name."""
    try:
        client = clients.settled(kind, identity)
    except ValueError as exc:
        raise CommandError(str(exc)) from exc
    if not clients.is_known(client.kind.removeprefix(HASHED)):
        command.stderr.write(f"No key is known that counts clients of the kind {client.kind!r}.")
    if client.kind != "user" or not client.identity:
        return client
    model = get_user_model()
    users = model._default_manager
    looks_like_a_key = True
    named = users.filter(**{model.USERNAME_FIELD: identity}).first()
    try:
        keyed = users.filter(pk=model._meta.pk.clean(identity, None)).first()
    except ValidationError:
        keyed, looks_like_a_key = None, False
    if named and keyed and named != keyed:
        raise CommandError(
            f"{identity!r} is the name of one user and the primary key of another: write the "
            f"primary key of the one, which is {named.pk}, or the name of the other."
        )
    user = named or keyed
    if user:
        return clients.settled(kind, str(user.pk))  # however its key was written
    if not looks_like_a_key:
        raise CommandError(f"There is no user {identity!r}, and no primary key looks so.")
    command.stderr.write(f"There is no user {identity!r}: taken as a primary key.")
    return client


def rule_named(name: str | None) -> Rule | None:
    """The rule of the database that is called so.

    Raises:
        CommandError: there is none, or there are several.
    """
    if name is None:
        return None
    rules = Rule.objects.using(database())
    found = list(rules.filter(name=name))
    if not found and re.fullmatch(r"d\d{1,18}", name):
        found = list(rules.filter(pk=int(name[1:])))
    if len(found) == 1:
        return found[0]
    if not found:
        told = "An override is on a rule of the database, or without --rule on all."
        raise CommandError(f"There is no rule {name!r}. {told}")
    keys = ", ".join(f"d{rule.pk}" for rule in found)
    raise CommandError(f"{len(found)} rules are called {name!r}: write one of {keys}.")


def in_words(client: Client) -> str:
    """A client as it is printed."""
    return tables.shown(f"{client.kind} {client.identity}".rstrip())


def whole(text: str) -> int:
    """A whole number of clients."""
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 10_000:
        raise ArgumentTypeError("a whole number from 1 to 10000")
    return int(text)


def time(text: str) -> timedelta:
    """Such as 10m, 1h or 2w: what stands after the slash in a rate."""
    try:
        found = timedelta(milliseconds=Rate.parse(f"1/{text}").window_ms)
        timezone.now() + found
    except (ValueError, OverflowError) as exc:
        told = f"{text!r} is no time that has an end: write 10m, 1h, 1d or 2w"
        raise ArgumentTypeError(told) from exc
    return found
