"""Fraud alerts as they are declared (S22)."""

from __future__ import annotations

from typing import Any

import pytest

from recount.reference.topology_driver import TopologyDriver
from topologies import fraud as shop

MINUTE_MS = 60_000


@pytest.fixture
def driver() -> TopologyDriver:
    made = TopologyDriver(shop.fraud_alerts, partitions={"transactions": 2})
    made.pipe("user-profiles", key="ann", value={"user_id": "ann", "known_locations": ["Rome"]}, timestamp_ms=0)
    return made


def transact(driver: TopologyDriver, at_ms: int, amount: float = 1, location: str | None = "Rome", **also: Any) -> str:
    value = {"txn_id": f"t{at_ms}", "user_id": "ann", "amount": amount, "location": location, **also}
    return driver.pipe("transactions", key=value["txn_id"], value=value, timestamp_ms=at_ms, partition=at_ms % 2)


def alerts(driver: TopologyDriver) -> list[tuple[int, str]]:
    driver.advance_to(60 * MINUTE_MS)
    return [(out.timestamp_ms, out.value["reason"]) for out in driver.read("fraud-alerts") if out.value is not None]


@pytest.mark.parametrize(("amount", "told"), [(10_000, []), (10_000.01, [(5, "high amount")])])
def test_s22_an_amount_of_more_than_ten_thousand_is_an_alert(
    driver: TopologyDriver, amount: float, told: list[tuple[int, str]]
) -> None:
    transact(driver, 5, amount)
    assert alerts(driver) == told


def test_s22_the_fourth_transaction_of_five_minutes_is_an_alert_and_each_after_it(driver: TopologyDriver) -> None:
    for at_ms in (4, 3, 2, 1, 5, 5 * MINUTE_MS, 5 * MINUTE_MS + 1, 5 * MINUTE_MS + 2):
        transact(driver, at_ms)
    assert alerts(driver) == [(4, "many transactions"), (5, "many transactions")]


def test_s22_a_place_where_the_user_is_not_known_is_an_alert(driver: TopologyDriver) -> None:
    transact(driver, 1, location="Oslo")
    transact(driver, 2, location="Oslo", user_id="nobody")
    transact(driver, 3, location=None)
    assert alerts(driver) == [(1, "unknown location")]
