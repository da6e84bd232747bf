"""A real Chromium for tests of the console's page, which objects to every error on it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.polling import DEADLINE_S

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """The path of a Chromium; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright. Skips the test where there is no Chromium."""
    path = find_chromium()
    if path is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} is on the PATH")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        # Root has no sandbox in a container; the pages are our own.
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page of the console. objections: errors, violations of the policy, foreign addresses."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}} | context)
        self.context.set_default_timeout(DEADLINE_S * 1000)
        self.page = self.context.new_page()
        self.origin, _, _ = address.partition("/?")
        self.origin = self.origin.rstrip("/")
        self.objections: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.objections.append(f"error: {error}"))
        self.page.on("request", self._on_request)
        self.page.goto(address)

    def open(self, path: str) -> Any:
        """Load a path afresh; returns the page."""
        self.page.goto(f"{self.origin}{path}")
        return self.page

    def close(self) -> None:
        self.context.close()

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.objections.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith(self.origin):
            self.objections.append(f"foreign address: {request.url}")


@contextlib.contextmanager
def tab(browser: Any, address: str, *, is_quiet: bool = True, **context: Any) -> Iterator[Tab]:
    """A tab that is closed at the end. is_quiet: no objection may be left."""
    opened = Tab(browser, address, **context)
    try:
        yield opened
        if is_quiet:
            assert opened.objections == [], opened.objections
    finally:
        opened.close()
