"""Clicks as they are declared: sessions (S1), visits through every stateless operator (S25)."""

from __future__ import annotations

import logging

import pytest

from recount.reference.topology_driver import TopologyDriver
from topologies import clicks as shop

MINUTE_MS = 60_000
HALF_HOUR_MS = 30 * MINUTE_MS


def click(driver: TopologyDriver, number: int, timestamp_ms: int, page: str = "/") -> str:
    value = {"user_id": "ann", "page": page}
    return driver.pipe("click-events", key=f"c{number}", value=value, timestamp_ms=timestamp_ms)


def sessions(driver: TopologyDriver) -> list[tuple[tuple[int, int], int]]:
    return [(out.window, out.value["clicks"]) for out in driver.read("session-click-aggregations") if out.value]


def test_s1_clicks_half_an_hour_apart_are_one_session_and_a_millisecond_more_makes_two() -> None:
    """A document splits at a distance of exactly the gap; in Kafka Streams, and here, the gap is inclusive."""
    driver = TopologyDriver(shop.click_sessions)
    click(driver, 1, 0)
    click(driver, 2, HALF_HOUR_MS)
    click(driver, 3, 2 * HALF_HOUR_MS + 1)
    driver.advance_to(10 * HALF_HOUR_MS)
    assert sessions(driver) == [((0, HALF_HOUR_MS), 2), ((2 * HALF_HOUR_MS + 1, 2 * HALF_HOUR_MS + 1), 1)]


def test_s25_visits_are_merged_cleaned_passed_through_branched_split_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="topologies.clicks")
    driver = TopologyDriver(shop.section_visits)
    click(driver, 1, 0, "/Shop/Shoes?size=42")
    click(driver, 2, 0, "/checkout")
    click(driver, 3, 0, "?only=a-query")
    driver.pipe("page-views", key="bob", value={"user_id": "bob", "page": "/shop"}, timestamp_ms=1)
    driver.pipe("page-views", key="bob", value={"user_id": "bob", "page": "/"}, timestamp_ms=1)
    driver.advance_to(6 * MINUTE_MS)
    assert [(out.key, out.value["page"]) for out in driver.read("visits") if out.value] == [
        ("ann", "/shop/shoes"),
        ("ann", "/checkout"),
        ("bob", "/shop"),
        ("bob", "/"),
    ]
    assert [out.key for out in driver.read("checkout-visits")] == ["ann"]
    assert [(out.key, out.value["visits"]) for out in driver.read("section-visits") if out.value] == [
        ("/shop", 2),
        ("/shop/shoes", 1),
    ]
    noted = [record.getMessage() for record in caplog.records]
    assert (noted.count("page of no section: /"), len(noted)) == (1, 6)
