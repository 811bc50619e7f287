"""Orders as they are declared (S4, S5, S6, S7, S10, S11, S13, S14, S21), at the boundaries that the rows name."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from recount.reference.topology_driver import TopologyDriver
from topologies import orders as shop

HOUR_MS = 3_600_000


def order(driver: TopologyDriver, order_id: str, amount: float, *, timestamp_ms: int = 0, **fields: Any) -> str:
    value = {"order_id": order_id, "amount": amount, **fields}
    return driver.pipe("orders", key=order_id, value=value, timestamp_ms=timestamp_ms)


def read(driver: TopologyDriver, topic: str, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(out.value[name] for name in names) for out in driver.read(topic) if out.value is not None]


def test_s4_an_order_of_more_than_100_is_routed_and_one_of_100_is_not() -> None:
    driver = TopologyDriver(shop.high_value_orders)
    order(driver, "o1", 100)
    order(driver, "o2", 100.01)
    assert read(driver, "high-value-orders", "order_id") == [("o2",)]


def test_s5_an_order_has_a_tier_above_100_and_needs_review_above_500() -> None:
    driver = TopologyDriver(shop.enriched_orders)
    for number, amount in enumerate((100, 100.01, 500, 500.01)):
        order(driver, f"o{number}", amount)
    assert read(driver, "enriched-orders", "amount_tier", "needs_review") == [
        ("standard", False),
        ("high", False),
        ("high", False),
        ("high", True),
    ]


def test_s6_an_order_of_more_than_100_is_a_vip_order_whatever_it_said_before() -> None:
    driver = TopologyDriver(shop.high_value_orders)
    order(driver, "o1", 100, vip=True)
    order(driver, "o2", 100.01, vip=False)
    assert read(driver, "vip-orders", "order_id", "vip") == [("o2", True)]


def test_s10_an_hour_takes_orders_until_it_has_been_kept_for_a_day() -> None:
    driver = TopologyDriver(shop.product_revenue)
    order(driver, "o1", 1, product="tea", timestamp_ms=24 * HOUR_MS - 1)
    assert order(driver, "o2", 1, product="tea", timestamp_ms=0) == "counted"
    order(driver, "o3", 1, product="tea", timestamp_ms=24 * HOUR_MS)
    assert order(driver, "o4", 1, product="tea", timestamp_ms=0) == "late"
    assert shop.product_revenue.retention_ms == 24 * HOUR_MS


def test_s11_every_update_of_a_count_leaves_in_order_and_the_table_has_the_last() -> None:
    driver = TopologyDriver(shop.order_counts)
    for number, user in enumerate(("ann", "bob", "ann")):
        order(driver, f"o{number}", 1, user_id=user, timestamp_ms=9 - number)
    assert [(out.key, out.value["orders"], out.revision) for out in driver.read("order-counts") if out.value] == [
        ("ann", 1, 0),
        ("bob", 1, 0),
        ("ann", 2, 1),
    ]
    assert [(row["user_id"], row["orders"]) for row in driver.table("order_counts")] == [("ann", 2), ("bob", 1)]


def test_s13_an_order_without_a_region_counts_as_unknown() -> None:
    driver = TopologyDriver(shop.region_counts)
    order(driver, "o1", 1, region="EU")
    order(driver, "o2", 1)
    order(driver, "o3", 1, region=None)
    assert [(row["region"], row["orders"]) for row in driver.table("region_counts")] == [("EU", 1), ("UNKNOWN", 2)]


def test_s14_revenue_is_told_once_for_each_region_and_five_minutes() -> None:
    driver = TopologyDriver(shop.revenue_by_region)
    order(driver, "o1", 10, region="EU", timestamp_ms=299_999)
    order(driver, "o2", 1, region="EU", timestamp_ms=300_000)
    driver.advance_to(HOUR_MS)
    assert read(driver, "windowed-revenue", "region", "window_end", "revenue") == [
        ("EU", 300_000, Decimal("10.00")),
        ("EU", 600_000, Decimal("1.00")),
    ]


def test_s21_the_first_of_each_order_id_passes_and_after_the_horizon_another() -> None:
    driver = TopologyDriver(shop.orders_deduplicated)
    fates = [
        order(driver, "o1", amount, timestamp_ms=at_ms) for amount, at_ms in ((1, 0), (2, HOUR_MS), (3, HOUR_MS + 1))
    ]
    assert [int(amount) for (amount,) in read(driver, "orders-deduplicated", "amount")] == [1, 3]
    assert fates[0] == "counted"


@pytest.mark.parametrize(
    ("key", "value", "timestamp_ms", "reason"),
    [
        ("o1", b"{", 0, "undecodable"),
        ("o1", b'{"order_id":"o1"}', 0, "schema"),
        (None, b'{"order_id":"o1","amount":1}', 0, "null-key"),
        ("o1", b'{"order_id":"o1","amount":1}', 2 * HOUR_MS, "future-timestamp"),
    ],
)
def test_s23_a_bad_record_is_set_aside_with_its_reason_and_place(
    key: str | None, value: bytes, timestamp_ms: int, reason: str
) -> None:
    driver = TopologyDriver(shop.orders_deduplicated, wall_clock_ms=0)
    assert driver.pipe("orders", key=key, value=value, timestamp_ms=timestamp_ms, partition=3) == "dead-lettered"
    [letter] = driver.dead_letters
    assert (letter.reason, letter.topic, letter.partition, letter.offset) == (reason, "orders", 3, 0)
    assert letter.detail


def test_s7_a_text_is_in_upper_case_and_logged_and_a_null_value_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    driver = TopologyDriver(shop.processed_orders)
    with caplog.at_level("DEBUG", logger=shop.__name__):
        fates = [
            driver.pipe("order-texts", key=f"o{number}", value=value, timestamp_ms=number)
            for number, value in enumerate(("two mugs, ünglazed".encode(), None, b"", b"\xff"))
        ]
    assert fates == ["counted", "filtered", "counted", "dead-lettered"]
    assert [(out.key, out.value) for out in driver.read("processed-orders")] == [
        ("o0", {"text": "TWO MUGS, ÜNGLAZED"}),
        ("o2", {"text": ""}),
    ]
    assert caplog.messages == ["processed: TWO MUGS, ÜNGLAZED", "processed: "]
