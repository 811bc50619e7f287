"""The driver as a test author meets it: bad records, tables, batches, errors."""

from __future__ import annotations

import pytest

from recount.declare.aggregates import count
from recount.declare.expressions import col
from recount.declare.plain_values import PlainValue
from recount.declare.schema import LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
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


def test_a_topology_that_fails_on_a_bad_record_names_its_place() -> None:
    topology = Topology(name="strict", sinks=[stream(ORDERS).to(OUT)], on_bad_record="fail")
    with pytest.raises(Terminal) as failed:
        TopologyDriver(topology).pipe("orders", key="o1", value=b"?", timestamp_ms=0, partition=2)
    assert "orders-2@0: undecodable" in str(failed.value.given)


def test_the_future_begins_after_max_future() -> None:
    driver = TopologyDriver(Topology(name="routing", sinks=[stream(ORDERS).to(OUT)]), wall_clock_ms=0)
    assert driver.pipe("orders", key="o1", value={"amount": 1}, timestamp_ms=HOUR_MS) == "counted"
    assert driver.pipe("orders", key="o1", value={"amount": 1}, timestamp_ms=HOUR_MS + 1) == "dead-lettered"


def test_a_dead_letter_does_not_advance_stream_time() -> None:
    counted = stream(ORDERS).windowed_by(tumbling("1 s", grace="0 s")).aggregate(n=count()).emit_final()
    driver = TopologyDriver(Topology(name="counting", sinks=[counted.to(OUT)]))
    driver.pipe("orders", key="o1", value=b"?", timestamp_ms=90_000)
    assert driver.pipe("orders", key="o1", value={"amount": 1}, timestamp_ms=5) == "counted"


NUMBERS = Topic(name="numbers", key="id", value=PlainValue.of(at=LONG), event_time="at")
MINUTES = Topic(name="minutes", key="id", value=PlainValue.of(at=LONG))


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


def test_every_record_has_exactly_one_fate(driver: TopologyDriver) -> None:
    for amount in (50, 150, 250):
        driver.pipe("orders", key="o", value={"amount": amount}, timestamp_ms=0)
    driver.pipe("orders", key="o", value=b"", timestamp_ms=0)
    assert driver.fates == {"filtered": 1, "counted": 2, "dead-lettered": 1}


@pytest.mark.parametrize(
    "wrong",
    [lambda d: d.pipe("x", value={}, timestamp_ms=0), lambda d: d.read("x"), lambda d: d.table("x")],
    ids=["a topic to write to", "a topic to read", "a table"],
)
def test_what_the_topology_does_not_know_is_refused(driver: TopologyDriver, wrong: object) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        wrong(driver)  # type: ignore[operator]
    assert refused.value.given == "x"
