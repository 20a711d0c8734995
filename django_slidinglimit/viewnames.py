"""What views are called when nobody names them: by their dotted path."""

from __future__ import annotations

from functools import partial
from inspect import ismethod
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from types import MethodType


def dotted_path(view: Any) -> str:
    """The dotted path of a view, the same in every process, which no other view has.

    A function's own; a class's for `as_view()`, with its actions for a view set; for a method the
    path of the class that answers, which may have inherited it, and the method's name.

    Raises:
        ImproperlyConfigured: other views may have the same, such as a function made within
            another.
    """
    path, alone = _path(view)
    if not alone or "<" in path:  # <locals>, <lambda>
        raise ImproperlyConfigured(
            f"{path} may be the path of several views, which would share their limits: name the "
            'scope, such as @ratelimit("login", ...).'
        )
    return path


def label(view: Any) -> str:
    """The dotted path of a view, which others may have, too."""
    return _path(view)[0]


def bound_method(view: Any) -> MethodType | None:
    """The bound method that a view is at its core, below decorators, if it is one."""
    core = _core(view)
    return core if ismethod(core) else None


def _path(view: Any) -> tuple[str, bool]:
    """A view's path, and whether it is known to be its alone."""
    made_by = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if made_by is not None:  # by as_view(); DRF's view sets say cls only
        path = _of_class(made_by)
        if actions := getattr(view, "actions", None):
            path = f"{path}.{','.join(sorted(set(actions.values())))}"
        given = getattr(view, "view_initkwargs", None) or getattr(view, "initkwargs", None)
        return path, not given
    core = _core(view)
    if isinstance(core, partial):
        return _path(core.func)[0], False
    if ismethod(core):
        owner = core.__self__
        owner = owner if isinstance(owner, type) else type(owner)
        return f"{_of_class(owner)}.{core.__name__}", True
    if hasattr(core, "__qualname__"):
        return _of_class(core), True
    return _of_class(type(core)), False  # an instance, one of any number


def _core(view: Any) -> Any:
    """What is below decorators: a function, a bound method, or whatever else was decorated."""
    while not ismethod(view):
        if isinstance(view, partial):
            # method_decorator's holds the bound method, and the plain one as __wrapped__.
            if view.args or view.keywords:
                return view
            view = view.func
        elif hasattr(view, "__wrapped__"):
            view = view.__wrapped__
        else:
            return view
    return view


def _of_class(named: Any) -> str:
    # DRF's api_view renames its class, which leaves __qualname__ as it was.
    name = named.__qualname__
    if name.rpartition(".")[2] != named.__name__:
        name = named.__name__
    return f"{named.__module__}.{name}"
