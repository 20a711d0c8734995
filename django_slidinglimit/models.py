"""Rules and overrides that are edited in the admin."""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from . import addresses, clients
from .core.rates import Rate
from .paths import PathPattern
from .signals import rules_changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")
M = TypeVar("M", bound=models.Model)

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


class ToldQuerySet(models.QuerySet[M]):
    """Tells of writes for which Django sends no signal."""

    def update(self, **kwargs: Any) -> int:
        return self._told(super().update(**kwargs))

    def bulk_create(self, *args: Any, **kwargs: Any) -> list[M]:
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
            "As in Django's path(), such as api/items/<int:pk>/, a beginning and *, such as api/*, "
            "or the name of a view, such as api:item-list. It bites in views with RuleThrottle."
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
    share = models.PositiveSmallIntegerField(
        _("enforced for"),
        default=100,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text=_(
            "Percent of clients, the same ones each time; the others stay under the code's rate."
        ),
    )
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

    objects = ToldQuerySet.as_manager()

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
        _clean_fields(
            super().clean_fields,
            exclude,
            rate=lambda: Rate.parse(self.rate),
            methods=lambda: parse_methods(self.methods),
            key=lambda: self.key and clients.named(self.key),
            path=lambda: self.path and PathPattern(self.path),
        )


class Override(models.Model):
    """An exception to one rule or to all: for a client, a group, a network or everyone."""

    class Effect(models.TextChoices):
        RATE = "rate", _("another rate")
        EXEMPT = "exempt", _("exempt: not counted, never refused")
        BLOCK = "block", _("block: refused whatever is left")

    rule = models.ForeignKey(
        Rule,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="overrides",
        verbose_name=_("rule"),
        help_text=_("Blank: all rules, those in code included."),
    )
    kind = models.CharField(
        _("kind of client"),
        max_length=200,
        blank=True,
        help_text=_("What the rule counts: user, ip, header:<name> and so on."),
    )
    identity = models.CharField(
        _("client"),
        max_length=512,
        blank=True,
        help_text=_(
            "A user's primary key, an IP address, or what stands in the header; of a header, query "
            "or form only a digest is kept. All blank: everyone."
        ),
    )
    group = models.ForeignKey(
        "auth.Group",
        models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("group of users"),
    )
    network = models.CharField(
        _("network"),
        max_length=50,
        blank=True,
        help_text=_("Such as 192.0.2.0/24, for clients that are counted by IP address."),
    )
    effect = models.CharField(_("effect"), max_length=10, choices=Effect)
    rate = models.CharField(
        _("rate"),
        max_length=50,
        blank=True,
        help_text=_("With another window than the rule's it counts anew: a fresh allowance."),
    )
    expires = models.DateTimeField(
        _("expires"), null=True, blank=True, help_text=_("Blank: never.")
    )
    reason = models.CharField(_("reason"), max_length=200, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
        verbose_name=_("made by"),
    )
    created = models.DateTimeField(_("created"), auto_now_add=True)
    updated = models.DateTimeField(_("updated"), auto_now=True)

    objects = ToldQuerySet.as_manager()

    class Meta:
        verbose_name = _("override")
        verbose_name_plural = _("overrides")
        ordering = ("-created", "-pk")
        constraints = (
            models.CheckConstraint(
                name="slidinglimit_override_one_target",
                condition=Q(kind="", identity="", group=None)
                | Q(kind="", identity="", network="")
                | Q(group=None, network="") & ~Q(kind=""),
                violation_error_message=_("Give a client with its kind, a group, or a network."),
            ),
            models.CheckConstraint(
                name="slidinglimit_override_rate",
                condition=Q(effect="rate") & ~Q(rate="") | ~Q(effect="rate") & Q(rate=""),
                violation_error_message=_(
                    "Give a rate if the effect is another rate, and only then."
                ),
            ),
        )

    def __str__(self) -> str:
        whom = self.network or (self.group and f"group {self.group}") or self.client
        what = self.rate if self.effect == self.Effect.RATE else self.effect
        return f"{what} for {whom or 'everyone'}"

    @property
    def client(self) -> str:
        """The client's kind and identity in words, "" if it is for no single client."""
        return f"{self.kind} {self.identity}".strip()

    def clean_fields(self, exclude: Iterable[str] | None = None) -> None:
        """Check each field, and write identities and networks as they are counted.

        Raises:
            ValidationError: with the errors by field.
        """
        _clean_fields(
            super().clean_fields,
            exclude,
            rate=lambda: self.rate and Rate.parse(self.rate),
            identity=self._settle_client,
            network=self._settle_network,
            expires=self._check_expires,
        )

    def _settle_client(self) -> None:
        if self.kind or self.identity:
            self.kind, self.identity = clients.settled(self.kind, self.identity)

    def _settle_network(self) -> None:
        if self.network:
            self.network = addresses.settled_network(self.network)

    def _check_expires(self) -> None:
        if self.expires and not MINYEAR < self.expires.year < MAXYEAR:
            # In another zone it may lie in a year that there is not, and could not be shown.
            raise ValueError("No calendar reaches so far; leave it blank for never.")


class Usage(Rule):
    """The usage pages' entry in the admin's menu, and the permission to see them."""

    class Meta:
        proxy = True
        default_permissions = ("view",)
        verbose_name = _("usage")
        verbose_name_plural = _("usage")


def parse_methods(text: str) -> frozenset[str]:
    """Read "GET, POST"; no method means every method. GET brings HEAD along.

    A view answers HEAD by all the work of GET (RFC 9110, section 9.3.2; Django's and DRF's classes
    do): who named GET alone could be walked around.

    Raises:
        ValueError: a word is no HTTP method.
    """
    methods = frozenset(text.upper().replace(",", " ").split())
    for method in methods - set(METHODS):
        raise ValueError(f"{method!r} is not a method. Known: {', '.join(METHODS)}.")
    return methods | {"HEAD"} if "GET" in methods else methods


def _clean_fields(
    inherited: Callable[..., None],
    exclude: Iterable[str] | None,
    **checks: Callable[[], object],
) -> None:
    """Django's own checks, then one for each field that they found nothing wrong with."""
    left_out = set(exclude or ())
    errors: dict[str, Any] = {}
    try:
        inherited(exclude=left_out)
    except ValidationError as exc:
        errors = exc.update_error_dict(errors)
    for field, check in checks.items():
        if field in left_out or field in errors:
            continue
        try:
            check()
        except (ValueError, ImproperlyConfigured) as exc:
            errors[field] = [ValidationError(str(exc), code="invalid")]
    if errors:
        raise ValidationError(errors)
