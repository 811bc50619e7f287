"""Payments as they are declared: joined with orders (S19), reduced and cogrouped (S16)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from recount.reference.topology_driver import TopologyDriver
from topologies import payments as shop

MINUTE_MS = 60_000
START_MS = 60 * MINUTE_MS
FAR_MS = 300 * MINUTE_MS


def order(driver: TopologyDriver, order_id: str, timestamp_ms: int, amount: float = 10) -> None:
    value = {"order_id": order_id, "amount": amount, "region": "EU"}
    driver.pipe("orders", key=order_id, value=value, timestamp_ms=timestamp_ms)


def pay(
    driver: TopologyDriver, order_id: str, timestamp_ms: int, amount: float = 9, method: str | None = "card"
) -> str:
    value = {"payment_id": f"p-{order_id}", "order_id": order_id, "amount": amount, "method": method}
    return driver.pipe("payments", key=order_id, value=value, timestamp_ms=timestamp_ms)


def values(driver: TopologyDriver, topic: str) -> list[dict[str, Any]]:
    return [dict(out.value) for out in driver.read(topic) if out.value is not None]


@pytest.mark.parametrize("apart_ms", [-5 * MINUTE_MS, 5 * MINUTE_MS])
def test_s19_a_payment_five_minutes_away_matches_and_one_a_millisecond_further_does_not(apart_ms: int) -> None:
    driver = TopologyDriver(shop.matched_orders)
    order(driver, "o1", START_MS)
    order(driver, "o2", START_MS)
    pay(driver, "o1", START_MS + apart_ms)
    pay(driver, "o2", START_MS + apart_ms + (1 if apart_ms > 0 else -1))
    assert [row["order_id"] for row in values(driver, "matched-orders")] == ["o1"]


def test_s19_an_order_is_unpaid_once_no_payment_can_be_on_time() -> None:
    driver = TopologyDriver(shop.unpaid_orders)
    order(driver, "o1", START_MS)
    order(driver, "o2", START_MS)
    pay(driver, "o2", START_MS)
    driver.advance_to(START_MS + 11 * MINUTE_MS)
    assert values(driver, "unpaid-orders") == []
    driver.advance_to(START_MS + 11 * MINUTE_MS + 1)
    assert values(driver, "unpaid-orders") == [{"order_id": "o1", "amount": Decimal("10.00"), "status": "unpaid"}]


def test_s19_an_outer_join_tells_of_orders_payments_and_pairs() -> None:
    driver = TopologyDriver(shop.orders_and_payments)
    order(driver, "o1", START_MS)
    pay(driver, "o1", START_MS)
    order(driver, "o2", START_MS)
    pay(driver, "o3", START_MS)
    driver.advance_to(FAR_MS)
    told = [
        (row["order_id"], row["amount"], row["paid"], row["status"]) for row in values(driver, "orders-and-payments")
    ]
    assert sorted(told, key=str) == [
        ("o1", Decimal("10.00"), Decimal("9.00"), "matched"),
        ("o2", Decimal("10.00"), None, "unpaid"),
        ("o3", None, Decimal("9.00"), "not ordered"),
    ]


def test_s16_a_cogroup_has_what_was_ordered_and_what_was_paid() -> None:
    driver = TopologyDriver(shop.order_balances)
    order(driver, "o1", 0)
    pay(driver, "o1", 1, 4)
    pay(driver, "o1", 2, 5)
    order(driver, "o2", 3)
    driver.advance_to(30 * 60 * MINUTE_MS)
    told = [(row["order_id"], row["ordered"], row["paid"]) for row in values(driver, "order-balances")]
    assert told == [("o1", Decimal("10.00"), Decimal("9.00")), ("o2", Decimal("10.00"), None)]
