"""The built wheel, installed in a clean environment: `python -m pytest -m wheel`."""

import fnmatch
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from example_project.server import EmbeddedServer

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "django_slidinglimit"

PROJECT = """
import sys

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse

settings.configure(
    SECRET_KEY="only for this test",
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}},
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": sys.argv[1]}},
    INSTALLED_APPS=[
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "rest_framework",
        "django_slidinglimit",
    ],
    REST_FRAMEWORK={"DEFAULT_THROTTLE_RATES": {"user": "2/min"}},
)
django.setup()

from django.core.management import call_command
from django.test import Client
from django.urls import path
from rest_framework.response import Response
from rest_framework.views import APIView

from django_slidinglimit.decorators import ratelimit
from django_slidinglimit.throttling import UserRateThrottle


class Hello(APIView):
    throttle_classes = [UserRateThrottle]

    def get(self, request):
        return Response("hello")


@ratelimit("hello", key="ip", rate="2/min")
def hello(request: HttpRequest) -> HttpResponse:
    return HttpResponse("hello")


urlpatterns = [path("api/", Hello.as_view()), path("page/", hello)]

call_command("migrate", verbosity=0)
print(django.__path__[0])
print(sys.modules["django_slidinglimit"].__path__[0])
for address in ("/api/", "/page/"):
    print(*(Client().get(address).status_code for _ in range(3)))
"""


def run(*command: str | Path, cwd: Path) -> str:
    # Output goes through pytest's own capture, which shows it when the test fails.
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, cwd=ROOT)
    [built] = folder.glob("*.whl")
    return built


def test_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == expected


KINDS = ["py.typed", "core/lua/*.lua", "migrations/0001_*.py", "templates/*.html"]
KINDS += ["static/*.js", "static/*.css"]


@pytest.mark.parametrize("pattern", KINDS)
def test_holds_files_of_each_kind(wheel: Path, pattern: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert fnmatch.filter(archive.namelist(), f"django_slidinglimit/{pattern}")


def test_limits_requests_when_installed(
    wheel: Path, redis_server: EmbeddedServer, tmp_path: Path
) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[drf]", cwd=tmp_path)
    (tmp_path / "project.py").write_text(PROJECT)

    *places, api, page = run(
        python, "-W", "error", "project.py", redis_server.url, cwd=tmp_path
    ).splitlines()

    assert all(Path(place).is_relative_to(tmp_path / "venv") for place in places)
    assert api == page == "200 200 429"
