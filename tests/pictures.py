"""Take README's pictures of a demo that runs: ``make demo ARGS=--keep``, then ``make pictures``."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from recount.airflow.links import PAGES
from recount.profile.dag_runs import USERNAME
from recount.profile.home import Home, Project, Running

STREAM = "revenue-by-region"
FOLDER = Path(__file__).parents[1] / "docs" / "pictures"


def main() -> None:
    """Write ``stream.png`` (the page of a stream in Airflow) and ``certificate.png`` (its first certificate)."""
    home = Home(path=Home.of(Project.containing(Path.cwd()).root).path / "demo")
    running = Running.read(home)
    assert running is not None and running.airflow_url is not None, "start it: make demo ARGS=--keep"
    password = json.loads(home.airflow_passwords.read_text())[USERNAME]
    certificate = min((home.reports / "certificates" / STREAM).glob("*.html"))
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), chromium_sandbox=os.geteuid() != 0
        )
        page = browser.new_page(viewport={"width": 1200, "height": 760})
        page.goto(running.airflow_url)
        page.get_by_label("Username").fill(USERNAME)
        page.locator("input[type=password]").fill(password)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name="Dags").first.wait_for()
        for _ in range(2):  # the first call makes the plugin read the history of the stream
            page.goto(f"{running.airflow_url}{PAGES}/streams/{STREAM}")
            page.wait_for_timeout(3_000)
        page.screenshot(path=FOLDER / "stream.png")
        page.goto(certificate.as_uri())
        page.screenshot(path=FOLDER / "certificate.png")
        browser.close()


if __name__ == "__main__":
    main()
