"""A tab in Chromium, signed in to the admin, under a strict Content-Security-Policy."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from django.apps import apps
from django.db import connections as databases
from playwright.sync_api import ConsoleMessage, Page, sync_playwright

from tests.conftest import missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.test import Client as Browser
    from pytest_django import Settings
    from pytest_django.live_server_helper import LiveServer

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
def page(
    live_server: LiveServer,
    admin_client: Browser,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Page]:
    """A tab, signed in, whose test fails if the policy refused anything or a script failed."""
    chromium = shutil.which("chromium") or missing("chromium is not installed")
    if not apps.is_installed("unfold"):  # which evaluates its scripts and styles inline
        settings.MIDDLEWARE = ["tests.admin_site.strict", *settings.MIDDLEWARE]
    # Playwright's sync API runs an event loop in this thread.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    faults: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        context = browser.new_context(base_url=live_server.url, reduced_motion="no-preference")
        session = admin_client.cookies["sessionid"].value
        context.add_cookies([{"name": "sessionid", "value": session, "url": live_server.url}])
        context.expose_function("slReport", lambda told: faults.append(told))
        context.add_init_script(
            "document.addEventListener('securitypolicyviolation', (e) =>"
            " slReport(`${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}`))"
        )
        tab = context.new_page()
        tab.on("pageerror", lambda error: faults.append(str(error)))
        tab.on("console", lambda message: _note(message, faults))
        yield tab
        databases.close_all()  # those opened beside Playwright's loop are its own
        browser.close()
    assert not faults


def _note(message: ConsoleMessage, faults: list[str]) -> None:
    # Tests refuse requests on purpose.
    if message.type == "error" and not message.text.startswith("Failed to load resource"):
        faults.append(message.text)
