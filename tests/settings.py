"""Settings of the tests.

SLIDINGLIMIT_TEST_REDIS_URL comes from conftest.py. SLIDINGLIMIT_TEST_DATABASE is the database that
a process started by a test shares with it (`connection.settings_dict["NAME"]`). With
SLIDINGLIMIT_TEST_POSTGRES set, it is PostgreSQL, reached as libpq's own PGHOST and PGUSER say.
"""

import os
import tempfile
from typing import Any

DATABASE_NAME = os.environ.get("SLIDINGLIMIT_TEST_DATABASE")
FILE = f"{tempfile.gettempdir()}/slidinglimit-{os.getpid()}.sqlite3"

if os.environ.get("SLIDINGLIMIT_TEST_POSTGRES"):
    DATABASES: dict[str, dict[str, Any]] = {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": DATABASE_NAME or "slidinglimit",
        }
    }
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            # A file: other threads and processes must see it and lock it as a real one. Both names
            # are: a live server is set up before the test database, and would hand one connection
            # to all its threads if it took the database to be in memory.
            "NAME": DATABASE_NAME or FILE,
            "TEST": {"NAME": FILE},
            "OPTIONS": {
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;",
            },
        }
    }

CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ.get("SLIDINGLIMIT_TEST_REDIS_URL", "redis://127.0.0.1:1/0"),
    }
}

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.admin",
    "django.contrib.staticfiles",
    "rest_framework",
    "rest_framework.authtoken",
    "django_slidinglimit",
    "example_project",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"

SECRET_KEY = "only for the tests"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast

SLIDINGLIMIT = {"RULES_POLL": 0}
