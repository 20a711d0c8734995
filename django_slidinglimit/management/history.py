"""What is done in a shell, in the admin's history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError
from django.http import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_slidinglimit.core.decisions import Rule
    from django_slidinglimit.exchange import Plan
    from django_slidinglimit.interventions import Change

# The admin's modules are imported where they are used, because a project may do without it.


def person(name: str | None) -> Any:
    """The user of a name, None for none.

    Raises:
        CommandError: there is no such user, or no history.
    """
    if name is None:
        return None
    if not apps.is_installed("django.contrib.admin"):
        raise CommandError("--user is for the admin's history, and the admin is not installed.")
    model = get_user_model()
    try:
        return model._default_manager.get_by_natural_key(name)
    except model.DoesNotExist:
        raise CommandError(f"There is no user {name!r}.") from None


def write_plan(user: Any, plan: Plan) -> None:
    """What an import has done."""
    from django.contrib.admin.models import DELETION

    from django_slidinglimit.admin import log

    for change in plan.changes():
        if change.removed:
            log.write(_request(user), DELETION, [(change.row, log.deleted(change.row))])
        else:
            log.write_changes(_request(user), [(change.row, change.was)])


def write_changes(user: Any, changes: Iterable[Change]) -> None:
    """What was done to overrides."""
    from django_slidinglimit.admin import log

    log.write_changes(_request(user), changes)


def write_counts(user: Any, rules: Iterable[Rule], message: str) -> None:
    """What was done to a client's counts."""
    from django_slidinglimit.admin import log

    log.write_counts(_request(user), rules, message)


def _request(user: Any) -> HttpRequest:
    request = HttpRequest()
    request.user = user
    return request
