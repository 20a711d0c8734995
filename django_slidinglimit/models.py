"""Rules that are edited in the admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from . import clients
from .core.rates import Rate
from .paths import PathPattern
from .signals import rules_changed

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


class RuleQuerySet(models.QuerySet["Rule"]):
    """Tells of writes for which Django sends no signal."""

    def update(self, **kwargs: Any) -> int:
        return self._told(super().update(**kwargs))

    def bulk_create(self, *args: Any, **kwargs: Any) -> list[Rule]:
        return self._told(super().bulk_create(*args, **kwargs))

    def bulk_update(self, *args: Any, **kwargs: Any) -> int:
        return self._told(super().bulk_update(*args, **kwargs))

    def _told(self, result: T) -> T:
        rules_changed.send(sender=self.model, using=self.db)
        return result


class Rule(models.Model):
    """A rate for the clients of one kind, in one scope or on one path."""

    class Mode(models.TextChoices):
        ENFORCE = "enforce", _("enforce: refuse what is over the limit")
        OBSERVE = "observe", _("observe: count and report, never refuse")
        OFF = "off", _("off")

    class NoIdentity(models.TextChoices):
        TOGETHER = "together", _("count all such requests together")
        ALLOW = "allow", _("let them through")
        REFUSE = "refuse", _("refuse them")

    class WhenDown(models.TextChoices):
        ALLOW = "allow", _("let requests through")
        DENY = "deny", _("refuse requests")

    name = models.CharField(
        _("name"), max_length=100, help_text=_("Clients see it in response headers.")
    )
    description = models.TextField(_("description"), blank=True)
    scope = models.CharField(
        _("scope"),
        max_length=200,
        blank=True,
        db_index=True,
        help_text=_("The name of a place in the code: a throttle's scope, or a decorator's."),
    )
    path = models.CharField(
        _("path"),
        max_length=200,
        blank=True,
        help_text=_(
            "As in Django's path(), such as api/items/<int:pk>/, or a beginning and *, such as "
            "api/*. It bites in views with RuleThrottle."
        ),
    )
    methods = models.CharField(
        _("methods"),
        max_length=100,
        blank=True,
        help_text=_("Such as GET, POST; blank: every method that the place counts."),
    )
    key = models.CharField(
        _("key"),
        max_length=200,
        blank=True,
        help_text=_(
            "Who is counted: ip, user, user_or_ip, global, header:<name>, get:<name>, "
            "post:<name> or a name registered in settings. Blank: as the place counts."
        ),
    )
    rate = models.CharField(
        _("rate"), max_length=50, help_text=_("Such as 100/min, 10/5m or 1000/day.")
    )
    mode = models.CharField(_("mode"), max_length=10, choices=Mode, default=Mode.ENFORCE)
    no_identity = models.CharField(
        _("requests without identity"),
        max_length=10,
        choices=NoIdentity,
        default=NoIdentity.TOGETHER,
        help_text=_("Requests that lack what the key asks for, such as an absent header."),
    )
    when_down = models.CharField(
        _("when Redis does not answer"),
        max_length=10,
        choices=WhenDown,
        default=WhenDown.ALLOW,
    )
    created = models.DateTimeField(_("created"), auto_now_add=True)
    updated = models.DateTimeField(_("updated"), auto_now=True)

    objects = RuleQuerySet.as_manager()

    class Meta:
        verbose_name = _("rule")
        verbose_name_plural = _("rules")
        ordering = ("name", "pk")
        constraints = (
            models.CheckConstraint(
                name="slidinglimit_rule_scope_or_path",
                condition=Q(scope="") & ~Q(path="") | ~Q(scope="") & Q(path=""),
                violation_error_message=_("Give either a scope or a path."),
            ),
        )

    def __str__(self) -> str:
        return self.name or f"{self.scope or self.path}: {self.rate}"

    def clean_fields(self, exclude: Iterable[str] | None = None) -> None:
        """Check each field, and name the bad part and what is accepted.

        Raises:
            ValidationError: with the errors by field.
        """
        left_out = set(exclude or ())
        errors: dict[str, Any] = {}
        try:
            super().clean_fields(exclude=left_out)
        except ValidationError as exc:
            errors = exc.update_error_dict(errors)
        for field, compile_field in (
            ("rate", Rate.parse),
            ("methods", parse_methods),
            ("key", lambda name: clients.named(name) if name else None),
            ("path", lambda path: PathPattern(path) if path else None),
        ):
            if field in left_out or field in errors:
                continue
            try:
                compile_field(getattr(self, field))
            except (ValueError, ImproperlyConfigured) as exc:
                errors[field] = [ValidationError(str(exc), code="invalid")]
        if errors:
            raise ValidationError(errors)


class Usage(Rule):
    """The usage pages' entry in the admin's menu, and the permission to see them."""

    class Meta:
        proxy = True
        default_permissions = ("view",)
        verbose_name = _("usage")
        verbose_name_plural = _("usage")


def parse_methods(text: str) -> frozenset[str]:
    """Read "GET, POST"; no method means every method.

    Raises:
        ValueError: a word is no HTTP method.
    """
    methods = frozenset(text.upper().replace(",", " ").split())
    for method in methods - set(METHODS):
        raise ValueError(f"{method!r} is not a method. Known: {', '.join(METHODS)}.")
    return methods
