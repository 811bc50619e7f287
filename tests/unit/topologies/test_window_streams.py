"""Every kind of window as it is declared (S15), and where the documents say something else than Kafka Streams."""

from __future__ import annotations

from recount.declare.topology import Topology
from recount.reference.topology_driver import TopologyDriver
from topologies import windows as shop

SECOND_MS, MINUTE_MS = 1_000, 60_000
FAR_MS = 10_000 * MINUTE_MS
Counted = list[tuple[int, int, int]]


def view(driver: TopologyDriver, *times_ms: int, page: str = "/") -> list[str]:
    value = {"user_id": "ann", "page": page}
    return [driver.pipe("page-views", key="ann", value=value, timestamp_ms=at_ms) for at_ms in times_ms]


def counted(topology: Topology, *times_ms: int) -> Counted:
    """Start, end and views of every window, when all of them are closed."""
    driver = TopologyDriver(topology)
    view(driver, *times_ms)
    driver.advance_to(FAR_MS + max(times_ms))
    return results(driver)


def results(driver: TopologyDriver) -> Counted:
    [sink] = driver.topology.sinks
    return [(*out.window, out.value["views"]) for out in driver.read(sink.topic.name) if out.value and out.window]


def test_s15_a_view_at_the_end_of_a_tumbling_window_is_in_the_next() -> None:
    assert counted(shop.views_tumbling_1_min, 0, 59_999, 60_000) == [(0, 60_000, 2), (60_000, 120_000, 1)]
    assert counted(shop.views_tumbling_5_min, 299_999, 300_000) == [(0, 300_000, 1), (300_000, 600_000, 1)]


def test_s15_a_view_is_in_all_six_hopping_windows_that_hold_it() -> None:
    """A document's function begins at the window that is aligned to the size: it finds [60 s, 120 s) only."""
    starts = [start for start, _, _ in counted(shop.views_hopping_60_s, 65 * SECOND_MS)]
    assert starts == [10_000, 20_000, 30_000, 40_000, 50_000, 60_000]


def test_s15_every_view_has_a_sliding_window_that_ends_with_it_and_one_that_begins_after_it() -> None:
    """A document shows windows that begin with a view; Kafka Streams has [ts - d, ts] and [ts + 1, ts + 1 + d]."""
    times_ms = [at_s * SECOND_MS for at_s in (100, 110, 120, 140)]
    assert counted(shop.views_sliding_30_s, *times_ms) == [
        (70_000, 100_000, 1),
        (80_000, 110_000, 2),
        (90_000, 120_000, 3),
        (100_001, 130_001, 2),
        (110_000, 140_000, 3),
        (110_001, 140_001, 2),
        (120_001, 150_001, 1),
    ]


def test_s15_the_last_hundred_views_are_the_latest_by_event_time() -> None:
    driver = TopologyDriver(shop.views_last_100)
    view(driver, *range(1, 100))
    assert [row["views"] for row in driver.table("views_last_100")] == [99]
    view(driver, 100, 101)
    view(driver, 1, page="/old")
    assert [(row["views"], row["page"]) for row in driver.table("views_last_100")] == [(100, "/")]
    view(driver, 2, page="/hundredth")
    assert [(row["views"], row["page"]) for row in driver.table("views_last_100")] == [(100, "/hundredth")]
