"""Settings of the example project. For one's own machine only: the secret key is public.

`manage.py demo` brings its own Redis and database. Every other command uses the server named by
REDIS_URL and the file demo.sqlite3.
"""

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = "django-insecure-example"
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "rest_framework",
    "rest_framework.authtoken",
    "django_slidinglimit",
    "example_project",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
STATIC_URL = "static/"
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
USE_TZ = True
TIME_ZONE = "UTC"
# Cookies know no ports: another site on this machine keeps its session.
SESSION_COOKIE_NAME = "slidinglimit_example_session"

DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(BASE_DIR / "demo.sqlite3")}
}

# The limits have an alias of their own: cache.clear() would empty the database that they are in.
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "limits": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"),
        "KEY_PREFIX": "slidinglimit-example:",
    },
}
SLIDINGLIMIT = {
    "CACHE": "limits",
    "TIMEOUT": 0.5,  # a machine that does much else may be late
    # As with a reverse proxy on the same machine; the demo's traffic plays one.
    "TRUSTED_PROXIES": ["127.0.0.0/8"],
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_THROTTLE_RATES": {
        "items": "60/min",
        "items.write": "10/min",
        "search": "60/min",
    },
}
