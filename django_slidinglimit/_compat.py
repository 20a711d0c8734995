"""All that differs between versions of Django, and between its admin's themes.

For the admin's modules: it asks for the installed apps when it is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import django
from django.apps import apps

# Since Django 6.1 the admin's breadcrumbs are an ordered list.
BREADCRUMBS_ARE_A_LIST = django.VERSION >= (6, 1)

# Under django-unfold a page of Django's own ModelAdmin lacks the Add button and the look of fields.
if not TYPE_CHECKING and apps.is_installed("unfold"):
    from unfold.admin import ModelAdmin as ModelAdmin
else:
    from django.contrib.admin import ModelAdmin as ModelAdmin
