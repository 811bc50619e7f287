"""Page views as they are declared: counts (S17), paths (S16), actions (S18), popular pages (S24), who left (S25)."""

from __future__ import annotations

from typing import Any

from recount.reference.topology_driver import TopologyDriver
from topologies import page_views as shop

MINUTE_MS = 60_000


def view(driver: TopologyDriver, timestamp_ms: int, page: str = "/", user: str = "ann") -> str:
    value = {"user_id": user, "page": page}
    return driver.pipe("page-views", key=user, value=value, timestamp_ms=timestamp_ms)


def values(driver: TopologyDriver, topic: str) -> list[dict[str, Any]]:
    return [dict(out.value) for out in driver.read(topic) if out.value is not None]


def test_s17_views_are_counted_in_five_minutes_and_for_one_minute_more() -> None:
    driver = TopologyDriver(shop.page_view_counts)
    view(driver, 5 * MINUTE_MS - 1)
    view(driver, 5 * MINUTE_MS)
    view(driver, 6 * MINUTE_MS - 1)
    assert view(driver, 0) == "counted"
    assert values(driver, "windowed-counts") == []
    view(driver, 6 * MINUTE_MS)
    assert view(driver, 0) == "late"
    assert values(driver, "windowed-counts") == [
        {"user_id": "ann", "window_start": 0, "window_end": 5 * MINUTE_MS, "views": 2}
    ]


def test_s16_a_path_has_the_pages_of_a_session_and_a_view_between_two_sessions_joins_their_paths() -> None:
    driver = TopologyDriver(shop.page_paths)
    view(driver, 0, "/a")
    view(driver, 0, "/b")
    view(driver, 31 * MINUTE_MS, "/d")
    view(driver, 15 * MINUTE_MS, "/c")
    driver.advance_to(500 * MINUTE_MS)
    assert [row["path"] for row in values(driver, "page-paths")] == ["/a /b /d /c"]


def test_s24_the_views_of_a_page_leave_ten_seconds_after_the_first_that_is_held() -> None:
    driver = TopologyDriver(shop.page_popularity)
    view(driver, 0)
    view(driver, 9_999)
    assert values(driver, "page-popularity") == []
    view(driver, 10_000)
    assert [row["views"] for row in values(driver, "page-popularity")] == [3]


def test_s25_a_processor_says_who_has_been_away_for_half_an_hour_and_what_they_saw_last() -> None:
    driver = TopologyDriver(shop.departed_users)
    view(driver, 0, "/a")
    view(driver, 20 * MINUTE_MS, "/b")
    driver.advance_to(50 * MINUTE_MS - 1)
    assert driver.read("departed-users") == []
    driver.advance_to(50 * MINUTE_MS)
    [out] = driver.read("departed-users")
    assert (out.key, out.value, out.timestamp_ms) == ("ann", {"views": 2, "last_page": "/b"}, 50 * MINUTE_MS)
    view(driver, 60 * MINUTE_MS, "/c")
    driver.advance_to(90 * MINUTE_MS)
    assert values(driver, "departed-users") == [{"views": 1, "last_page": "/c"}]


def act(driver: TopologyDriver, timestamp_ms: int, action: str = "buy", user: str = "ann") -> str:
    value = {"user_id": user, "action": action}
    return driver.pipe("user-actions", key=user, value=value, timestamp_ms=timestamp_ms)


def test_s18_a_view_and_an_action_a_minute_apart_meet_and_have_the_user_as_of_the_later_one() -> None:
    driver = TopologyDriver(shop.enriched_events)
    for tier, at_ms in (("tin", 0), ("gold", 2 * MINUTE_MS)):
        value = {"user_id": "ann", "name": "Ann", "tier": tier}
        driver.pipe("users", key="ann", value=value, timestamp_ms=at_ms)
    view(driver, 2 * MINUTE_MS)
    act(driver, MINUTE_MS)
    act(driver, MINUTE_MS - 1)
    view(driver, MINUTE_MS - 1)
    event = {"user_id": "ann", "page": "/", "action": "buy", "name": "Ann"}
    tiers = [(value.pop("tier"), value) for value in values(driver, "enriched-events")]
    assert tiers == [("gold", event), ("tin", event), ("tin", event)]
