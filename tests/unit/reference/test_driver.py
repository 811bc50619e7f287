"""The driver as a test author meets it: bad records, tables, batches, errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.plain_values import PlainValue
from recount.declare.schema import LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import tumbling
from recount.reference.topology_driver import TopologyDriver
from recount.runtime.errors import InvalidDeclaration, Terminal

HOUR_MS = 3_600_000
ORDERS = Topic(
    name="orders",
    key="order_id",
    value=RecordSchema.of(region=STRING, amount=decimal(9, 2), at=LONG, required=("amount",)),
)
OUT = Topic(name="out", key="order_id")


@pytest.fixture
def driver() -> TopologyDriver:
    return TopologyDriver(Topology(name="routing", sinks=[stream(ORDERS).filter(col("amount") > 100).to(OUT)]))


def test_a_record_that_passes_comes_out_as_it_came_in(driver: TopologyDriver) -> None:
    assert driver.pipe("orders", key="o1", value=b'{"amount":100.01,"region":"EU"}', timestamp_ms=7) == "counted"
    [out] = driver.read("out")
    assert (out.key, out.timestamp_ms, str(out.value and out.value["amount"])) == ("o1", 7, "100.01")


def test_what_was_read_once_is_not_read_again(driver: TopologyDriver) -> None:
    driver.pipe("orders", key="o1", value={"amount": 200}, timestamp_ms=7)
    assert len(driver.read("out")) == 1
    assert driver.read("out") == []
    assert len(driver.outputs("out")) == 1


@pytest.mark.parametrize(
    ("value", "timestamp_ms", "reason"),
    [
        (b"\xff", 0, "undecodable"),
        (b'{"amount": "a dozen"}', 0, "schema"),
        (b"{}", 0, "schema"),
        (b'{"amount": 1}', -1, "negative-timestamp"),
        (b'{"amount": 1}', 10 * HOUR_MS, "future-timestamp"),
    ],
)
def test_a_bad_record_is_a_dead_letter_with_its_reason(value: bytes, timestamp_ms: int, reason: str) -> None:
    topology = Topology(name="routing", sinks=[stream(ORDERS).to(OUT)])
    driver = TopologyDriver(topology, wall_clock_ms=8 * HOUR_MS)
    assert driver.pipe("orders", key="o1", value=value, timestamp_ms=timestamp_ms) == "dead-lettered"
    assert [(letter.offset, letter.reason) for letter in driver.dead_letters] == [(0, reason)]


def test_a_topology_that_fails_on_a_bad_record_names_its_place() -> None:
    topology = Topology(name="strict", sinks=[stream(ORDERS).to(OUT)], on_bad_record="fail")
    with pytest.raises(Terminal) as failed:
        TopologyDriver(topology).pipe("orders", key="o1", value=b"?", timestamp_ms=0, partition=2)
    assert "orders-2@0: undecodable" in str(failed.value.given)


def test_the_future_begins_after_max_future() -> None:
    driver = TopologyDriver(Topology(name="routing", sinks=[stream(ORDERS).to(OUT)]), wall_clock_ms=0)
    assert driver.pipe("orders", key="o1", value={"amount": 1}, timestamp_ms=HOUR_MS) == "counted"
    assert driver.pipe("orders", key="o1", value={"amount": 1}, timestamp_ms=HOUR_MS + 1) == "dead-lettered"


def test_a_record_without_the_key_it_is_grouped_by_is_a_dead_letter() -> None:
    counted = stream(ORDERS).windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count()).emit_final()
    driver = TopologyDriver(Topology(name="counting", sinks=[counted.to(OUT)]))
    assert driver.pipe("orders", value={"amount": 1}, timestamp_ms=0) == "dead-lettered"
    assert driver.dead_letters[0].reason == "null-key"


def test_a_dead_letter_does_not_advance_stream_time() -> None:
    counted = stream(ORDERS).windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count()).emit_final()
    driver = TopologyDriver(Topology(name="counting", sinks=[counted.to(OUT)]))
    driver.pipe("orders", key="o1", value=b"?", timestamp_ms=90_000)
    assert driver.pipe("orders", key="o1", value={"amount": 1}, timestamp_ms=5) == "counted"


def test_event_time_can_be_a_field_of_the_value() -> None:
    timed = Topic(name="timed", key="id", value=RecordSchema.of(at=LONG), event_time="at")
    driver = TopologyDriver(Topology(name="timed", sinks=[stream(timed).to(OUT)]))
    driver.pipe("timed", key="a", value={"at": 42}, timestamp_ms=7)
    assert driver.read("out")[0].timestamp_ms == 42
    assert driver.pipe("timed", key="a", value={}, timestamp_ms=7) == "dead-lettered"


NUMBERS = Topic(name="numbers", key="id", value=PlainValue.of(at=LONG), event_time="at")
MINUTES = Topic(name="minutes", key="id", value=PlainValue.of(at=LONG))


def minutes_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"at": row["at"] // 60_000 or None}


def test_a_plain_value_is_piped_as_its_field_or_its_bytes_and_can_be_the_event_time() -> None:
    driver = TopologyDriver(Topology(name="minutes", sinks=[stream(NUMBERS).to(MINUTES)]))
    for value in ({"at": 60_000}, b"120000"):
        assert driver.pipe("numbers", key="a", value=value, timestamp_ms=0) == "counted"
    assert [(out.value, out.timestamp_ms) for out in driver.read("minutes")] == [
        ({"at": 60_000}, 60_000),
        ({"at": 120_000}, 120_000),
    ]
    assert driver.pipe("numbers", key="a", value=None, timestamp_ms=0) == "dead-lettered"
    assert driver.pipe("numbers", key="a", value={"at": None}, timestamp_ms=0) == "dead-lettered"
    for other in ({}, {"at": 1, "n": 1}, {"n": 1}):
        with pytest.raises(InvalidDeclaration):
            driver.pipe("numbers", key="a", value=other, timestamp_ms=0)


def test_a_plain_value_that_is_null_is_a_deletion() -> None:
    driver = TopologyDriver(
        Topology(name="minutes", sinks=[stream(NUMBERS).map(minutes_of, at=LONG).to(MINUTES)]),
    )
    for at in (b"60000", b"59999"):
        driver.pipe("numbers", key="a", value=at, timestamp_ms=0)
    assert [out.value for out in driver.outputs("minutes")] == [{"at": 1}, None]
    assert driver.table("minutes") == []


def test_every_record_has_exactly_one_fate(driver: TopologyDriver) -> None:
    for amount in (50, 150, 250):
        driver.pipe("orders", key="o", value={"amount": amount}, timestamp_ms=0)
    driver.pipe("orders", key="o", value=b"", timestamp_ms=0)
    assert driver.fates == {"filtered": 1, "counted": 2, "dead-lettered": 1}


def test_a_table_read_from_a_topic_can_be_looked_at_by_the_topics_name() -> None:
    customers = Topic(name="customers", key="id", value=RecordSchema.of(tier=STRING))
    driver = TopologyDriver(Topology(name="customers", sinks=[table(customers).to(OUT)]))
    driver.pipe("customers", key="a", value={"tier": "gold"}, timestamp_ms=1)
    driver.pipe("customers", key="b", value={"tier": "gold"}, timestamp_ms=1)
    driver.pipe("customers", key="a", value=None, timestamp_ms=2)
    assert [row["tier"] for row in driver.table("customers")] == ["gold"]


@pytest.mark.parametrize(
    "wrong",
    [lambda d: d.pipe("x", value={}, timestamp_ms=0), lambda d: d.read("x"), lambda d: d.table("x")],
    ids=["a topic to write to", "a topic to read", "a table"],
)
def test_what_the_topology_does_not_know_is_refused(driver: TopologyDriver, wrong: object) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        wrong(driver)  # type: ignore[operator]
    assert refused.value.given == "x"


def test_the_driver_describes_its_topology(driver: TopologyDriver) -> None:
    assert "2. filter (amount > 100)  <- 1" in driver.describe()
