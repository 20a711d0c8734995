"""The caller's own limits: `path("limits/", include("django_slidinglimit.urls"))`."""

from django.apps import apps
from django.urls import path

from . import views

app_name = "django_slidinglimit"

urlpatterns = [
    path("", views.own_limits, name="own-limits"),
    path("json/", views.own_limits_json, name="own-limits-json"),
]

if apps.is_installed("rest_framework"):
    from .api import OwnLimits

    urlpatterns.append(path("api/", OwnLimits.as_view(), name="own-limits-api"))
