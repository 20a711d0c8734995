"""Who looks at the admin's pages in tests, and what they see there."""

import re
from html import unescape
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client as Browser


def staff(*permissions: str, name: str = "staff") -> Browser:
    """The browser of one who has these permissions and no others; of a name there is one."""
    User.objects.filter(username=name).delete()
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    browser = Browser()
    browser.force_login(user)
    return browser


def text_of(response: Any) -> str:
    """What one reads on a page of usage; what pictures say of themselves left out."""
    page = re.sub(r"<(title|desc)\b.*?</\1>", "", response.content.decode(), flags=re.DOTALL)
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page)))
