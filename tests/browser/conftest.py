"""Chromium of the system, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for the whole run; without one on this machine the tests that need it are skipped, and say so."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium; install it (Debian: apt-get install chromium)")
    # Chromium's sandbox does not start for root, who runs the tests in a container.
    sandbox = os.geteuid() != 0
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, chromium_sandbox=sandbox)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own for each test."""
    opened = browser.new_page(viewport={"width": 1400, "height": 900})
    yield opened
    opened.close()
