"""The app's start: who listens to what."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_delete, post_migrate, post_save


class SlidingLimitConfig(AppConfig):
    name = "django_slidinglimit"
    label = "django_slidinglimit"
    verbose_name = "Rate limits"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from . import checks, models, rules, signals

        checks.register_all()
        for signal in (post_save, post_delete):
            signal.connect(rules.publish_on_commit, sender=models.Rule)
            signal.connect(rules.publish_on_commit, sender=models.Usage)
        signals.rules_changed.connect(rules.publish_on_commit)
        signals.store_changed.connect(rules.expire_when_back)
        post_migrate.connect(rules.publish_on_commit, sender=self)
