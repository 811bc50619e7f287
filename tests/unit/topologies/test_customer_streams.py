"""Customers and users as they are declared (S2, S3, S8, S9, S12, S20)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from recount.reference.topology_driver import TopologyDriver
from topologies import customers as shop

ANN = {
    "customer_id": "ann",
    "name": "Ann",
    "email": "ann@example.org",
    "tier": "gold",
    "segment": "retail",
    "country": "NO",
    "credit_limit": 50,
}
DAY_MS = 86_400_000
ENRICHED = ("customer_name", "email", "tier", "segment", "country", "credit_limit", "within_credit_limit")


def customer(driver: TopologyDriver, *, timestamp_ms: int = 0, **fields: Any) -> None:
    driver.pipe("customers", key=fields["customer_id"], value=fields, timestamp_ms=timestamp_ms)


def order(driver: TopologyDriver, order_id: str, customer_id: str | None, amount: float, at_ms: int = 1) -> None:
    value = {"order_id": order_id, "customer_id": customer_id, "amount": amount}
    driver.pipe("orders", key=order_id, value=value, timestamp_ms=at_ms)


def rows(driver: TopologyDriver, topic: str, *names: str) -> list[tuple[Any, ...] | None]:
    return [out.value and tuple(out.value[name] for name in names) for out in driver.read(topic)]


@pytest.mark.parametrize(("amount", "within"), [(49.99, True), (50, True), (50.01, False)])
def test_s2_an_order_has_the_fields_of_its_customer_and_says_whether_it_is_within_the_limit(
    amount: float, within: bool
) -> None:
    driver = TopologyDriver(shop.enriched_orders_by_customer)
    customer(driver, **ANN)
    order(driver, "o1", "ann", amount)
    told = ("Ann", "ann@example.org", "gold", "retail", "NO", Decimal("50.00"), within)
    assert rows(driver, "enriched-orders-by-customer", *ENRICHED) == [told]


@pytest.mark.parametrize("customer_id", ["nobody", None])
def test_s2_an_order_without_a_customer_is_kept_with_the_defaults(customer_id: str | None) -> None:
    driver = TopologyDriver(shop.enriched_orders_by_customer)
    order(driver, "o1", customer_id, 0)
    told = ("UNKNOWN", None, "unknown", "Unknown", "Unknown", Decimal(0), False)
    assert rows(driver, "enriched-orders-by-customer", *ENRICHED) == [told]


def test_s3_the_table_of_customers_can_be_read_as_it_is_now() -> None:
    driver = TopologyDriver(shop.enriched_orders_by_customer)
    customer(driver, **ANN)
    customer(driver, customer_id="bob", tier="tin")
    driver.pipe("customers", key="bob", value=None, timestamp_ms=1)
    assert [row["tier"] for row in driver.table("customers")] == ["gold"]


def test_s8_count_and_total_of_a_customer_are_those_of_all_time() -> None:
    driver = TopologyDriver(shop.customer_stats)
    order(driver, "o1", "ann", 1.5, at_ms=0)
    order(driver, "o2", "ann", 2.5, at_ms=10**12)
    assert rows(driver, "customer-stats", "customer_id", "count", "total") == [
        ("ann", 1, Decimal("1.50")),
        ("ann", 2, Decimal("4.00")),
    ]


def test_s12_a_summary_has_count_total_smallest_largest_and_last_order() -> None:
    driver = TopologyDriver(shop.order_summary)
    for order_id, amount in (("o1", 5), ("o2", 9), ("o3", 7)):
        order(driver, order_id, "ann", amount)
    [summary] = driver.table("order_summary")
    assert summary == {
        "customer_id": "ann",
        "window_start": 1,
        "window_end": 1,
        "count": 3,
        "total": Decimal("21.00"),
        "min": Decimal("5.00"),
        "max": Decimal("9.00"),
        "last_order": "o3",
    }


def test_s12_a_customer_who_has_not_ordered_for_a_day_begins_anew() -> None:
    """Unlike Kafka Streams, which keeps a total of all time for ever: ``withRetention`` holds for windows only."""
    driver = TopologyDriver(shop.order_summary)
    order(driver, "o1", "ann", 5, at_ms=0)
    order(driver, "o2", "ann", 9, at_ms=DAY_MS)
    order(driver, "o3", "ann", 7, at_ms=2 * DAY_MS + 1)
    assert rows(driver, "order-summary", "count", "total", "last_order") == [
        (1, Decimal("5.00"), "o1"),
        None,
        (2, Decimal("14.00"), "o2"),
        (1, Decimal("7.00"), "o3"),
    ]


def test_s20_a_joined_row_follows_both_sides_and_goes_with_the_side_that_its_join_needs() -> None:
    driver = TopologyDriver(shop.customer_accounts)

    def accounts() -> dict[str, list[tuple[Any, ...] | None]]:
        return {kind: rows(driver, f"customer-accounts{kind}", "name", "user_tier") for kind in ("", "-left", "-outer")}

    driver.pipe("users", key="ann", value={"user_id": "ann", "tier": "tin"}, timestamp_ms=0)
    assert accounts() == {"": [], "-left": [], "-outer": [(None, "tin")]}
    customer(driver, **ANN)
    assert accounts() == {kind: [("Ann", "tin")] for kind in ("", "-left", "-outer")}
    driver.pipe("users", key="ann", value={"user_id": "ann", "tier": "gold"}, timestamp_ms=1)
    assert accounts() == {kind: [("Ann", "gold")] for kind in ("", "-left", "-outer")}
    driver.pipe("users", key="ann", value=None, timestamp_ms=2)
    assert accounts() == {"": [None], "-left": [("Ann", None)], "-outer": [("Ann", None)]}
    driver.pipe("customers", key="ann", value=None, timestamp_ms=3)
    assert accounts() == {"": [], "-left": [None], "-outer": [None]}


def test_s9_every_order_after_which_the_total_is_high_is_an_alert_by_event_time() -> None:
    driver = TopologyDriver(shop.high_spend_alerts, partitions={"orders": 2})
    for number, (amount, at_ms, partition) in enumerate([(4_000, 3, 0), (6_000, 1, 1), (0.01, 4, 0), (1, 2, 1)]):
        value = {"order_id": f"o{number}", "customer_id": "ann", "amount": amount}
        driver.pipe("orders", key=f"o{number}", value=value, timestamp_ms=at_ms, partition=partition)
    assert driver.read("high-spend-alerts") == []
    driver.advance_to(120_000)
    told = [(Decimal("10001.00"), 3), (Decimal("10001.01"), 4)]
    assert rows(driver, "high-spend-alerts", "total", "count") == told
