from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest
from django.contrib.syndication.views import Feed
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import TemplateView
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from django_slidinglimit.viewnames import dotted_path

HERE = __name__


def function(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@api_view(["GET"])
def of_drf(request: Any) -> Response:
    return Response()


def with_wraps(view: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(view)
    def inner(*args: Any) -> Any:
        return view(*args)

    return inner


def without_wraps(view: Callable[..., Any]) -> Callable[..., Any]:
    def inner(*args: Any) -> Any:
        return view(*args)

    return inner


class Parent(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    @classmethod
    def of_class(cls, request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    class Nested(View):
        pass


class Child(Parent):
    pass


class Views(ViewSet):
    def list(self, request: Any) -> Response:
        return Response()

    def create(self, request: Any) -> Response:
        return Response()


class Latest(Feed):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize(
    ("view", "path"),
    [
        (function, "function"),
        (csrf_exempt(function), "function"),
        (with_wraps(function), "function"),
        (Parent().get, "Parent.get"),
        (Child().get, "Child.get"),
        (with_wraps(Child().get), "Child.get"),
        (Child.of_class, "Child.of_class"),
        (Parent.as_view(), "Parent"),
        (Child.as_view(), "Child"),
        (csrf_exempt(Child.as_view()), "Child"),
        (Parent.Nested.as_view(), "Parent.Nested"),
        (of_drf, "of_drf"),
        (Views.as_view({"get": "list"}), "Views.list"),
        (Views.as_view({"get": "list", "head": "list", "post": "create"}), "Views.create,list"),
    ],
)
def test_a_view_has_the_path_of_what_answers(view: Any, path: str) -> None:
    assert dotted_path(view) == f"{HERE}.{path}"


def test_under_method_decorator_it_is_the_class_that_answers() -> None:
    found = []

    def note(view: Any) -> Any:
        if view.__module__ != "django.utils.decorators":
            found.append(dotted_path(view))
        return view

    class Mine(Child):
        get = method_decorator(with_wraps)(method_decorator(note)(Parent.get))

    Mine.__qualname__ = "Mine"
    method_decorator(note, name="dispatch")(Mine)
    Mine.as_view()(RequestFactory().get("/"))
    assert found == [f"{HERE}.Mine.dispatch", f"{HERE}.Mine.get"]


@pytest.mark.parametrize(
    "view",
    [
        lambda request: HttpResponse(),
        without_wraps(function),
        partial(function, HttpRequest()),
        TemplateView.as_view(template_name="a.html"),
        Views.as_view({"get": "list"}, suffix="List"),
        Latest(),
    ],
)
def test_a_path_that_several_views_may_have_is_refused(view: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"may be the path of several views.*scope"):
        dotted_path(view)
