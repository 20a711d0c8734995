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
        from . import checks, keeper, models, signals

        checks.register_all()
        for signal in (post_save, post_delete):
            signal.connect(keeper.publish_on_commit, sender=models.Rule)
            signal.connect(keeper.publish_on_commit, sender=models.Usage)
            signal.connect(keeper.publish_on_commit, sender=models.Override)
        signals.rules_changed.connect(keeper.publish_on_commit)
        signals.store_changed.connect(keeper.expire_when_back)
        post_migrate.connect(keeper.publish_on_commit, sender=self)
