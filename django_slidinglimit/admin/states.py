"""What a row holds, as texts: kept in the admin's history, compared, and put back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db.models import DateTimeField, Field, ForeignKey
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.text import Truncator
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.models import Model

# The values of the fields that people edit, by the fields' names; None is no value.
State = dict[str, str | None]

LONGEST_SHOWN = 80


class Difference(NamedTuple):
    """One field's change, as people read it."""

    label: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.label}: {self.old} → {self.new}"


def state_of(row: Model) -> State:
    """What a row holds now."""
    return {field.name: _text(field, row) for field in _fields(type(row))}


def put(row: Model, state: State) -> None:
    """Set a row's fields to a state; those that it does not name stay as they are.

    Raises:
        ValidationError: with the errors by field, where a text is no value of its field.
    """
    errors: dict[str, Any] = {}
    for field in _fields(type(row)):
        text = state.get(field.name)
        try:
            if text is not None:
                setattr(row, field.attname, field.to_python(text))
            elif field.name in state:
                setattr(row, field.attname, None)
        except ValidationError as exc:
            errors[field.name] = exc.messages
    if errors:
        raise ValidationError(errors)


def loads(text: str | None) -> State | None:
    """The state of a JSON text; None if it is none."""
    try:
        return read(json.loads(text or "null"))
    except (ValueError, RecursionError):
        return None


def read(found: Any) -> State | None:
    """What was read from JSON, if it is a state."""
    if isinstance(found, dict) and all(v is None or isinstance(v, str) for v in found.values()):
        return found
    return None


def differences(model: type[Model], before: State, after: State) -> list[Difference]:
    """What differs between two states; fields that one of them does not know are left out."""
    return [
        Difference(
            str(field.verbose_name),
            _shown(field, before[field.name]),
            _shown(field, after[field.name]),
        )
        for field in _fields(model)
        if field.name in before and field.name in after and before[field.name] != after[field.name]
    ]


def shown_time(when: datetime, form: str = "DATETIME_FORMAT") -> str:
    """A time as people here read it; with USE_TZ off it is in their zone already."""
    return date_format(timezone.localtime(when) if timezone.is_aware(when) else when, form)


def _fields(model: type[Model]) -> Iterator[Field[Any, Any]]:
    return (f for f in model._meta.concrete_fields if f.editable and not f.primary_key)


def _text(field: Field[Any, Any], row: Model) -> str | None:
    value = field.value_from_object(row)
    if isinstance(value, datetime) and timezone.is_aware(value):
        return value.astimezone(UTC).isoformat()
    return None if value is None else field.value_to_string(row)


def _shown(field: Field[Any, Any], text: str | None) -> str:
    if not text:
        return _("blank")
    try:
        if isinstance(field, ForeignKey):
            found = field.related_model._base_manager.filter(pk=text).first()
            return str(found) if found else f"#{text}"
        if isinstance(field, DateTimeField):
            return shown_time(field.to_python(text))
    except (ValueError, OverflowError, ValidationError):  # no value of the field
        pass
    return Truncator(text).chars(LONGEST_SHOWN)
