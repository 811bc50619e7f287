"""Whole systems of the source documents, declared and run: joins behind joins, totals behind totals, merged alerts."""

from __future__ import annotations

from typing import Any

from recount.core.aggregates import count, largest, last, total
from recount.core.expressions import coalesce, col, when
from recount.core.interpreter.driver import TopologyDriver
from recount.core.schema import DOUBLE, STRING, RecordSchema, decimal, list_of
from recount.core.topics import Topic
from recount.core.topology import Topology, stream, table
from recount.core.windows import session, tumbling

ORDERS = Topic(name="orders", key="order_id", value=RecordSchema.of(customer_id=STRING, amount=decimal(15, 2)))
CUSTOMERS = Topic(name="customers", key="customer_id", value=RecordSchema.of(name=STRING, credit_limit=DOUBLE))
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


def test_s1_clicks_are_counted_per_session_and_a_session_is_cut_at_a_day() -> None:
    clicks = Topic(name="click-events", key="click_id", value=RecordSchema.of(user_id=STRING))
    per_session = (
        stream(clicks)
        .select_key(user_id=col("user_id"))
        .windowed_by(session("30 min", grace="0 s", max_duration="1 d"))
        .aggregate(clicks=count())
    )
    driver = driver_of(per_session.emit_final().to(OUT))
    half_hour_ms = 1_800_000
    for n in range(50):
        driver.pipe("click-events", key=str(n), value={"user_id": "u"}, timestamp_ms=n * half_hour_ms)
    driver.advance_to(100 * half_hour_ms)
    assert [value["clicks"] for value in values(driver)] == [49, 1]


def test_s2_an_order_without_a_customer_is_enriched_with_the_defaults() -> None:
    customers = table(CUSTOMERS).select(customer_name=col("name"), credit_limit=col("credit_limit"))
    enriched = (
        stream(ORDERS)
        .select_key(customer_id=col("customer_id"))
        .left_join_table(customers)
        .with_fields(
            customer_name=coalesce(col("customer_name"), "UNKNOWN"),
            within_credit_limit=when(col("amount") <= col("credit_limit"), True, False),
            credit_limit=coalesce(col("credit_limit"), 0.0),
        )
    )
    driver = driver_of(enriched.to(OUT))
    driver.pipe("customers", key="c1", value={"name": "Ann", "credit_limit": 50.0}, timestamp_ms=0)
    for customer in ("c1", "c2", None):
        driver.pipe("orders", key="o", value={"customer_id": customer, "amount": 50}, timestamp_ms=1)
    assert [(value["customer_name"], value["within_credit_limit"]) for value in values(driver)] == [
        ("Ann", True),
        ("UNKNOWN", False),
        ("UNKNOWN", False),
    ]


def test_s9_every_order_after_which_the_total_is_high_is_an_alert() -> None:
    totals = stream(ORDERS).select_key(customer_id=col("customer_id")).aggregate(total=total("amount"), orders=count())
    driver = driver_of(totals.to_stream().filter(col("total") > 10_000).to(OUT))
    for n, amount in enumerate((6_000, 4_000, 1, 1)):
        driver.pipe("orders", key=str(n), value={"customer_id": "c", "amount": amount}, timestamp_ms=n)
    assert [value["orders"] for value in values(driver)] == [3, 4]


def test_s12_a_summary_has_the_largest_and_the_last_order() -> None:
    summary = (
        stream(ORDERS)
        .select_key(customer_id=col("customer_id"))
        .aggregate(orders=count(), largest=largest("amount"), last=last("amount"))
    )
    driver = driver_of(summary.to(OUT))
    for amount in (5, 9, 7):
        driver.pipe("orders", key="o", value={"customer_id": "c", "amount": amount}, timestamp_ms=0)
    assert [(str(row["largest"]), str(row["last"])) for row in driver.table("out")] == [("9.00", "7.00")]


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
