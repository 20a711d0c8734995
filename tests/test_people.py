"""The names of the users behind clients."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser, User
from django.test import RequestFactory
from pytest_django import DjangoAssertNumQueries

from django_slidinglimit.admin import people
from django_slidinglimit.core.decisions import Client

pytestmark = pytest.mark.django_db


def named(user: User | AnonymousUser, *clients: Client) -> dict[Client, str]:
    request = RequestFactory().get("/")
    request.user = user
    found = people.people(request, admin.site, clients)
    return {client: person.name for client, person in found.items()}


def test_a_name_is_asked_for_once_a_minute(
    admin_user: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    maria = Client("user", str(User.objects.create_user("maria").pk))
    lapsed = Client("user", str(User.objects.create_user("ben").pk))
    nobody = Client("user", "99999")
    assert named(admin_user, maria, nobody) == {maria: "maria"}
    with django_assert_num_queries(0):
        assert named(admin_user, maria, nobody) == {maria: "maria"}
    with django_assert_num_queries(1):
        assert named(admin_user, maria, lapsed) == {maria: "maria", lapsed: "ben"}
    people.forget()
    with django_assert_num_queries(1):
        named(admin_user, maria, lapsed)


def test_only_who_may_see_users_is_told_of_them(admin_user: User) -> None:
    maria = Client("user", str(admin_user.pk))
    assert named(admin_user, maria)
    assert named(AnonymousUser(), maria) == {}


def test_what_cannot_be_a_users_key_is_passed_over(admin_user: User) -> None:
    assert named(admin_user, Client("user", "9" * 30), Client("user", "x"), Client("ip", "1")) == {}


def test_users_are_found_by_what_their_names_begin_with(
    admin_user: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    maria, marek, ben = (User.objects.create_user(name) for name in ("maria", "marek", "ben"))
    request = RequestFactory().get("/")
    request.user = admin_user
    for queries in (1, 0):
        with django_assert_num_queries(queries):
            found = people.named(request, admin.site, "mar")
        assert found == [Client("user", str(user.pk)) for user in (marek, maria)]
    assert people.named(request, admin.site, "ben") == [Client("user", str(ben.pk))]
    assert people.named(request, admin.site, "\0") == []
    request.user = AnonymousUser()
    assert people.named(request, admin.site, "mar") == []
