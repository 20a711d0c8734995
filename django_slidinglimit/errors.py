"""What can be wrong with how this app is set up or called."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured


class SettingError(ImproperlyConfigured):
    """The SLIDINGLIMIT setting is wrong; the message names the part and what is accepted.

    Args:
        name: the part, such as "TIMEOUT"; "" for the whole.
        problem: what is wrong with it and what to do.
    """

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"SLIDINGLIMIT{f'[{name!r}]' if name else ''}: {problem}")
