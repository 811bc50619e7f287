"""Systems of the source documents that no stream of include/topologies shows yet, run by the interpreter.

The others are in tests/unit/topologies.
"""

from __future__ import annotations

from typing import Any

from recount.core.aggregates import count, total
from recount.core.expressions import col
from recount.core.interpreter.driver import TopologyDriver
from recount.core.schema import STRING, RecordSchema, decimal, list_of
from recount.core.topics import Topic
from recount.core.topology import Topology, stream, table
from recount.core.windows import tumbling

ORDERS = Topic(name="orders", key="order_id", value=RecordSchema.of(customer_id=STRING, amount=decimal(15, 2)))
VIEWS = Topic(name="page-views", key="user_id", value=RecordSchema.of(page=STRING))
ACTIONS = Topic(name="user-actions", key="user_id", value=RecordSchema.of(action=STRING))
USERS = Topic(name="users", key="user_id", value=RecordSchema.of(tier=STRING))
TRANSACTIONS = Topic(
    name="transactions", key="txn_id", value=RecordSchema.of(user_id=STRING, amount=decimal(15, 2), location=STRING)
)
PROFILES = Topic(name="user-profiles", key="user_id", value=RecordSchema.of(known_locations=list_of(STRING)))
OUT = Topic(name="out", key="id")
SECOND_MS = 1_000


def driver_of(sink: Any) -> TopologyDriver:
    return TopologyDriver(Topology(name="system", sinks=[sink]))


def values(driver: TopologyDriver) -> list[dict[str, Any]]:
    return [dict(out.value) for out in driver.read("out") if out.value is not None]


def test_s9_every_order_after_which_the_total_is_high_is_an_alert() -> None:
    totals = stream(ORDERS).select_key(customer_id=col("customer_id")).aggregate(total=total("amount"), orders=count())
    driver = driver_of(totals.to_stream().filter(col("total") > 10_000).to(OUT))
    for n, amount in enumerate((6_000, 4_000, 1, 1)):
        driver.pipe("orders", key=str(n), value={"customer_id": "c", "amount": amount}, timestamp_ms=n)
    assert [value["orders"] for value in values(driver)] == [3, 4]


def test_s18_a_join_of_two_streams_is_joined_with_a_table() -> None:
    events = (
        stream(VIEWS).join(stream(ACTIONS), before="1 min", after="1 min", grace="10 s").left_join_table(table(USERS))
    )
    driver = driver_of(events.to(OUT))
    driver.pipe("users", key="u", value={"tier": "gold"}, timestamp_ms=0)
    driver.pipe("page-views", key="u", value={"page": "/"}, timestamp_ms=100 * SECOND_MS)
    driver.pipe("user-actions", key="u", value={"action": "buy"}, timestamp_ms=40 * SECOND_MS)
    assert values(driver) == [{"page": "/", "action": "buy", "tier": "gold"}]


def test_s18_counts_of_a_joined_stream_are_final_once_the_join_can_add_nothing() -> None:
    joined = stream(VIEWS).join(stream(ACTIONS), before="1 min", after="1 min", grace="10 s")
    counted = joined.windowed_by(tumbling("5 min", grace="0 s")).aggregate(n=count()).emit_final()
    driver = driver_of(counted.to(OUT))
    driver.pipe("page-views", key="u", value={"page": "/"}, timestamp_ms=299 * SECOND_MS)
    driver.pipe("user-actions", key="u", value={"action": "buy"}, timestamp_ms=299 * SECOND_MS)
    driver.advance_to(430 * SECOND_MS - 1)
    assert values(driver) == []
    driver.advance_to(430 * SECOND_MS)
    assert [value["n"] for value in values(driver)] == [1]


def test_s22_alerts_of_three_kinds_are_one_stream_with_the_reason() -> None:
    by_user = stream(TRANSACTIONS).select_key(user_id=col("user_id"))
    high = by_user.filter(col("amount") > 10_000).select(reason="high amount")
    often = (
        by_user.windowed_by(tumbling("5 min", grace="1 min"))
        .aggregate(n=count())
        .emit_each_record()
        .filter(col("n") > 3)
        .select(reason="many transactions")
    )
    elsewhere = (
        by_user.join_table(table(PROFILES))
        .filter(~col("known_locations").contains(col("location")))
        .select(reason="unknown location")
    )
    driver = driver_of(high.merge(often, elsewhere).to(OUT))
    driver.pipe("user-profiles", key="u", value={"known_locations": ["Rome"]}, timestamp_ms=0)
    for amount, location in ((1, "Rome"), (20_000, "Rome"), (1, "Oslo"), (1, "Rome")):
        driver.pipe(
            "transactions", key="t", value={"user_id": "u", "amount": amount, "location": location}, timestamp_ms=1
        )
    assert [value["reason"] for value in values(driver)] == ["high amount", "unknown location", "many transactions"]
