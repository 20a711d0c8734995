"""The example project's addresses."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView
from rest_framework.routers import DefaultRouter

from .api import ItemViewSet
from .views import sign_in

router = DefaultRouter()
router.register("items", ItemViewSet)

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="api-root")),
    path("api/", include(router.urls)),
    path("login/", sign_in, name="login"),
    path("limits/", include("django_slidinglimit.urls")),
    path("admin/", admin.site.urls),
]
