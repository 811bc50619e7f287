"""What a user sees in Chromium: the grid, the page of the streams, a certificate, the expectations, an approval."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import STREAM, Shop, loaded

from recount.airflow.links import backfill_dag

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]


def test_the_page_of_the_streams_leads_to_the_certificate_and_loads_nothing_from_elsewhere(
    page: Page, shop: Shop
) -> None:
    page.goto(f"{shop.airflow.url}/plugin/recount")
    inside = page.frame_locator("iframe")
    expect(inside.get_by_role("row", name=STREAM)).to_contain_text("running")
    inside.get_by_role("link", name=f"{STREAM}: match").first.click()
    expect(inside.get_by_role("heading", name=f"{STREAM} match")).to_be_visible()
    expect(inside.locator("body")).to_contain_text(f"{shop.flow.records:,}")
    expect(inside.locator("body")).to_contain_text("Every output record is there exactly once")
    assert [url for url in loaded(page) if not url.startswith((shop.airflow.url, "data:", "blob:"))] == []


def test_after_its_audit_a_stream_says_what_a_longer_grace_and_other_engines_would_have_made(
    page: Page, shop: Shop
) -> None:
    page.goto(f"{shop.airflow.url}/recount/streams/{STREAM}")
    grace = page.get_by_role("region", name="What a larger grace would have admitted, and its cost").first
    expect(grace).to_contain_text("late records, missing from")
    expect(grace.get_by_role("row").nth(1)).to_contain_text("+ ")
    lens = page.get_by_role("region", name="What another engine would have dropped last night").first
    for engine in ("Kafka Streams", "Structured Streaming"):
        expect(lens).to_contain_text(f"{engine}: records dropped ")


def test_what_great_expectations_found_is_shown_and_loads_nothing_from_elsewhere(page: Page, shop: Shop) -> None:
    page.goto(f"{shop.airflow.url}/recount/data-docs")
    page.get_by_role("row", name=STREAM).get_by_role("link").nth(1).click()
    for suite in ("raw_log", "batch_ledger", "reconciliation"):
        expect(page.get_by_role("heading", name=f"{suite} ")).to_be_visible()
    expect(page.get_by_role("cell", name="holds").first).to_be_visible()
    assert [url for url in loaded(page) if not url.startswith(shop.airflow.url)] == []


def test_an_approval_in_the_browser_lets_the_backfill_go_on(page: Page, shop: Shop) -> None:
    subject = page.get_by_role("link", name=f"Publish corrections of {STREAM}?")
    deadline = time.monotonic() + 300
    page.goto(f"{shop.airflow.url}/required_actions")
    while not subject.count():
        assert time.monotonic() < deadline, "the backfill asks for no approval"
        page.wait_for_timeout(3_000)
        page.reload()
        page.wait_for_timeout(1_000)
    subject.click()
    page.wait_for_timeout(8_000)  # Airflow fails a task that is answered before its worker has left
    page.get_by_role("button", name="Approve").click()
    while shop.runs.of(backfill_dag(STREAM), shop.backfill).tasks["approval"] != "success":
        assert time.monotonic() < deadline, "the approval was not taken"
        page.wait_for_timeout(1_000)
