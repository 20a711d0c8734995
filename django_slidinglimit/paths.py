"""Path patterns of rules: as Django writes them in path(), or a beginning and `*`."""

from __future__ import annotations

import re

from django.core.exceptions import ImproperlyConfigured
from django.urls.resolvers import RoutePattern


class PathPattern:
    """A pattern for request paths.

    Args:
        text: such as "api/items/<int:pk>/" or "api/*", with or without the leading slash.

    Raises:
        ValueError: the text is no such pattern; the message says what is accepted.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        route = text.removeprefix("/")
        beginning, star, rest = route.partition("*")
        if rest or (star and "<" in beginning):
            raise ValueError(
                f"{text!r}: * may stand only at the end, after a plain beginning such as api/*."
            )
        self._beginning = beginning if star else None
        self._route = None if star else self._compile(text, route)
        # What every path that matches begins with, for looking rules up.
        self.literal = beginning.partition("<")[0]

    def matches(self, path: str) -> bool:
        """Whether a request's path (`path_info`) matches."""
        path = path.removeprefix("/")
        if self._route is None:
            return path.startswith(self._beginning or "")
        return self._route.match(path) is not None

    @staticmethod
    def _compile(text: str, route: str) -> RoutePattern:
        try:
            pattern = RoutePattern(route, is_endpoint=True)
            pattern.match("")  # compiles
        except (ImproperlyConfigured, re.error) as exc:
            raise ValueError(f"{text!r} is not a path pattern: {exc}") from exc
        for warning in pattern.check():  # a bracket without its other, a regular expression
            raise ValueError(f"{text!r} is not a path pattern: {warning.msg}")
        return pattern
