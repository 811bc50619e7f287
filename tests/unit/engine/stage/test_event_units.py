"""Event times in another unit than milliseconds: a warning for seconds, a dead letter that says the unit for others."""

from __future__ import annotations

import json

import pytest
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import count
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.reference.topology_driver import TopologyDriver
from recount.tables.ledger import PartitionProof, warnings_of_seconds

NOW_S = 1_767_225_600
NOW_MS = NOW_S * 1_000
ORDERS = Topic(name="orders", key="id", event_time="at", value=RecordSchema.of(at=LONG))
COUNTED = stream(ORDERS).windowed_by(tumbling("1 min", grace="0 s")).aggregate(n=count()).emit_final()
FLOWS = {"a filter": stream(ORDERS), "windows": COUNTED}


def ordered(at: int) -> LogRecord:
    return LogRecord(timestamp_ms=NOW_MS, key=b"o", value=json.dumps({"at": at}).encode())


def topology(flow: str) -> Topology:
    return Topology(name="t", sinks=[FLOWS[flow].to(Topic(name="out", key="id"))])


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([NOW_S - 5, NOW_S], 2),
        ([NOW_MS, NOW_S], 1),
        ([NOW_MS - 5, NOW_MS, NOW_MS - 90_000], 0),
        ([1_000, 60_000], 0),
        ([946_684_799, 946_684_800], 1),
        ([NOW_S + 366 * 86_400, NOW_S + 366 * 86_400 + 1], 1),
    ],
    ids=["all", "a late one", "none", "really 1970", "from the year 2000 on", "up to a year after the record"],
)
def test_times_that_are_seconds_are_counted_in_a_batch(flow: str, times: list[int], found: int) -> None:
    engine = TopologyEngine(topology(flow), {"orders": 1})
    engine.batch({"orders": [ordered(at) for at in times]}, now_ms=NOW_MS)
    counted = engine.clock.partitions["orders", 0]
    assert (counted.in_seconds, counted.records) == (found, len(times))


def test_the_warning_names_topic_share_and_both_meanings() -> None:
    parts = [
        PartitionProof(topic=topic, partition=n, start=0, end=4, records=4, in_seconds=many)
        for topic, n, many in (("orders", 0, 1), ("orders", 1, 0), ("payments", 0, 0))
    ]
    assert warnings_of_seconds(parts) == {
        "orders": "event times of orders look like seconds: those of 1 of 8 records (12.50%) are in January 1970 as"
        " milliseconds since the epoch, which event times are, and after the year 2000 as seconds: let the producer"
        " write milliseconds"
    }


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
