"""Event times in another unit than milliseconds: a warning for seconds, a dead letter that says the unit for others."""

from __future__ import annotations

import json

import pytest
from tests.unit.spark.engine import LogRecord
from tests.unit.spark.topology_engine import TopologyEngine

from recount.core.aggregates import count
from recount.core.event_units import warning_of_seconds
from recount.core.interpreter.driver import TopologyDriver
from recount.core.schema import LONG, RecordSchema
from recount.core.topics import Topic
from recount.core.topology import Topology, stream
from recount.core.windows import tumbling
from recount.spark.batch import times_in_seconds

NOW_S = 1_767_225_600
NOW_MS = NOW_S * 1_000
ORDERS = Topic(name="orders", key="id", event_time="at", value=RecordSchema.of(at=LONG))
COUNTED = stream(ORDERS).windowed_by(tumbling("1 min", grace="0 s")).aggregate(n=count()).emit_final()
FLOWS = {"a filter": stream(ORDERS), "windows": COUNTED}


def ordered(at: int) -> LogRecord:
    return LogRecord(timestamp_ms=NOW_MS, key=b"o", value=json.dumps({"at": at}).encode())


def topology(flow: str) -> Topology:
    return Topology(name="t", sinks=[FLOWS[flow].to(Topic(name="out", key="id"))])


@pytest.mark.parametrize(
    ("flow", "times", "found"),
    [
        ("a filter", [NOW_S - 5, NOW_S], {"orders": NOW_S}),
        ("windows", [NOW_S - 5, NOW_S], {"orders": NOW_S}),
        ("windows", [NOW_MS, NOW_S], {"orders": NOW_S}),
        ("a filter", [NOW_MS - 5, NOW_MS], {}),
        ("windows", [NOW_MS, NOW_MS - 90_000], {}),
        ("windows", [1_000, 60_000], {}),
        ("a filter", [NOW_S + 366 * 86_400 + 1], {}),
    ],
    ids=["all", "all of windows", "a late one", "none", "none that is late", "really 1970", "the day after next year"],
)
def test_times_that_are_seconds_are_found_in_a_batch(flow: str, times: list[int], found: dict[str, int]) -> None:
    engine = TopologyEngine(topology(flow), {"orders": 1})
    assert times_in_seconds(engine.batch({"orders": [ordered(at) for at in times]}, now_ms=NOW_MS), NOW_MS) == found


def test_the_warning_names_topic_time_and_both_meanings() -> None:
    said = warning_of_seconds("orders", NOW_S)
    assert "orders look like seconds: 1,767,225,600 is 1970-01-21 10:53:45" in said
    assert "2026-01-01 00:00:00 as seconds" in said


@pytest.mark.parametrize(
    ("at", "unit"), [(NOW_MS * 1_000, "microseconds"), (NOW_MS * 1_000_000, "nanoseconds"), (NOW_MS * 2, None)]
)
def test_a_dead_letter_of_the_future_says_which_unit_its_time_looks_like(at: int, unit: str | None) -> None:
    engine = TopologyEngine(topology("a filter"), {"orders": 1})
    [detail] = engine.batch({"orders": [ordered(at)]}, now_ms=NOW_MS).rejected["detail"]
    driver = TopologyDriver(topology("a filter"), wall_clock_ms=NOW_MS)
    assert driver.pipe("orders", key="o", value={"at": at}, timestamp_ms=NOW_MS) == "dead-lettered"
    for said in (detail, driver.dead_letters[0].detail):
        assert said.endswith(f", it looks like {unit}") if unit else "looks like" not in said
