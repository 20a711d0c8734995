"""Patterns of rules: paths as Django writes them in path(), a beginning and `*`, a view's name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured
from django.urls.resolvers import RoutePattern

if TYPE_CHECKING:
    from collections.abc import Iterator

# By so many of a path's first segments patterns are told apart before they are compared.
DEEPEST = 8
# What stands in no view's name, and tells of another kind of pattern.
_NO_NAME = re.compile(r"[\s^$?()\\>]")


class PathPattern:
    """A pattern for request paths.

    Args:
        text: "api/items/<int:pk>/" or "api/*", with or without the leading slash; or, without
            slash, < and *, the name of a view, such as "api:item-list".

    Attributes:
        view: the view's name, if the pattern is one.
        near: where an index of patterns keeps it; `places_near` gives those to look in.
        narrowness: sorts the narrower pattern first: a path without converters, a view or a path
            with converters, the longer beginning, the shorter one.

    Raises:
        ValueError: the text is no such pattern; the message says what is accepted.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.view = text if text and not re.search(r"[/<*]", text) else None
        route = text.removeprefix("/")
        beginning, star, rest = route.partition("*")
        if rest or (star and "<" in beginning):
            raise ValueError(
                f"{text!r}: * may stand only at the end, after a plain beginning such as api/*."
            )
        self._beginning = beginning if star else None
        self._route = None
        self._tail = route.rpartition(">")[2]  # plain text, and quicker to compare
        literal = beginning.partition("<")[0]
        if self.view is not None:
            if _NO_NAME.search(text):
                raise ValueError(
                    f"{text!r} is no view's name, such as api:item-list, and for a path pattern it "
                    "lacks a slash, such as /about."
                )
            self.near, self.narrowness = self.view, (1, 0)
        elif star:
            self.near, self.narrowness = _folder(literal), (2, -len(literal))
        else:
            self._route = self._compile(text, route)
            if literal == route:
                self.near, self.narrowness = f"/{literal}", (0, 0)
            else:
                self.near, self.narrowness = _folder(literal), (1, 0)

    def matches(self, path: str, view: str | None = None) -> bool:
        """Whether a request matches.

        Args:
            path: its `path_info`.
            view: the name of the view that it was resolved to.
        """
        if self.view is not None:
            return view == self.view
        path = path.removeprefix("/")
        if self._route is None:
            return path.startswith(self._beginning or "")
        return path.endswith(self._tail) and self._route.match(path) is not None

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


def places_near(path: str, view: str | None = None) -> Iterator[str]:
    """The places of an index in which the patterns are that may match. Arguments as of `matches`.

    Patterns that are whole paths are at "/" and the path, those that begin with whole segments at
    these ("api/items/"), others at "". A view's name has no slash and is itself a place.
    """
    path = path.removeprefix("/")
    yield f"/{path}"
    if view and "/" not in view:
        yield view
    yield ""
    end = 0
    for _ in range(DEEPEST):
        end = path.find("/", end) + 1
        if not end:
            return
        yield path[:end]


def _folder(literal: str) -> str:
    """The whole segments that a pattern begins with, as far as the index goes."""
    *segments, _ = literal.split("/")
    return "".join(f"{segment}/" for segment in segments[:DEEPEST])
