"""The driver as a test author meets it: bad records, tables, batches, errors."""

from __future__ import annotations

from typing import Any

import pytest

from recount.declare.aggregates import (
    Aggregate,
    average,
    count,
    distinct,
    first,
    fold,
    largest,
    last,
    reduce,
    smallest,
    total,
)
from recount.declare.expressions import col
from recount.declare.plain_values import PlainValue
from recount.declare.schema import LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.reference.record_aggregates import results, sketched
from recount.reference.records import Record
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


CONCAT = fold("v", initial=lambda: "0", adder=lambda a, v: f"{a}+{v}", merger=lambda a, b: f"{a}+{b}", returns=STRING)


def records(*values: Any, times_ms: tuple[int, ...] = ()) -> list[Record]:
    return [
        Record(row={"v": value}, timestamp_ms=times_ms[i] if times_ms else i, order=("t", 0, i), entry=None)
        for i, value in enumerate(values)
    ]


def value(aggregate: Aggregate, *values: Any) -> Any:
    return results({"x": aggregate}, records(*values))["x"]


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (count(), 4),
        (total("v"), 6),
        (smallest("v"), 1),
        (largest("v"), 3),
        (average("v"), 2.0),
        (first("v"), 3),
        (last("v"), 2),
        (distinct("v"), 3),
        (reduce("v", lambda one, other: one * 10 + other), 312),
        (CONCAT, "0+3+None+1+2"),
    ],
)
def test_nulls_are_passed_over_by_all_but_count_and_fold(aggregate: Aggregate, expected: object) -> None:
    assert value(aggregate, 3, None, 1, 2) == expected


@pytest.mark.parametrize("aggregate", [total("v"), smallest("v"), largest("v"), average("v"), first("v"), last("v")])
def test_of_no_values_the_result_is_null(aggregate: Aggregate) -> None:
    assert value(aggregate, None) is None


def test_a_session_merges_the_accumulators_of_the_sessions_that_a_record_joins() -> None:
    merged = results({"x": CONCAT}, records("1", "2", times_ms=(10, 15)), gap_ms=500)
    assert merged["x"] == "0+0+1+2"


def test_the_earlier_session_comes_first_in_a_merge_whichever_arrived_first() -> None:
    bridged = results({"x": CONCAT}, records("late", "early", "bridge", times_ms=(20, 0, 10)), gap_ms=10)
    assert bridged["x"] == "0+0+early+0+late+bridge"


def test_a_sketch_is_a_few_percent_off_beyond() -> None:
    assert sketched(range(100_000)) == pytest.approx(100_000, rel=0.1)
