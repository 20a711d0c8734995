"""All that differs between versions of Django."""

from __future__ import annotations

import django

# Since Django 6.1 the admin's breadcrumbs are an ordered list.
BREADCRUMBS_ARE_A_LIST = django.VERSION >= (6, 1)
