"""A site of one limited view, as a server loads it: `wsgi` and `asgi`.

It shares a test's database and Redis, as tests/worker.py does, and keeps its rules in the same way.
"""

import os

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
settings.SLIDINGLIMIT = {"TIMEOUT": 10}  # other tests may keep the machine busy
settings.ROOT_URLCONF = __name__
settings.MIDDLEWARE = []
django.setup()

from django_slidinglimit.decorators import ratelimit  # noqa: E402


@ratelimit("served", key="global", rate="5/day")
def view(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("")


urlpatterns = [path("", view)]
wsgi = get_wsgi_application()
asgi = get_asgi_application()
