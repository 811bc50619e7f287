"""The partial aggregation computes what the interpreter says, on any log and however that is cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.random_flows import Comparable
from tests.unit.engine.random_topologies import Drawn
from tests.unit.engine.random_topology_logs import IDLE_AFTER_MS, Cut, Event
from tests.unit.engine.topology_runs import assert_agree, by_interpreter, by_tasks

from recount.declare.aggregates import count, largest, smallest, total
from recount.declare.expressions import coalesce, col, when
from recount.declare.flow import RecordStream, WindowedTable
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import TimeWindows, hopping, tumbling

PARTITIONS = 3
CLOSING_MS = 10**8
"""The event time of the records that close all windows of a log."""

SCHEMA = RecordSchema.of(
    region=STRING, amount=decimal(9, 2), items=LONG, weight=DOUBLE, vip=BOOLEAN, at=LONG, required=("amount",)
)
ORDERS = Topic(name="orders", key="id", value=SCHEMA)
TIMED_ORDERS = Topic(name="timed-orders", key="id", value=SCHEMA, event_time="at")
RESULTS = Topic(name="results", key="key")

TUMBLING = tumbling("10 s", grace="3 s")
HOPPING = hopping("10 s", advance="4 s", grace="0 s", origin="3 s")


def aggregated(records: RecordStream, windows: TimeWindows) -> WindowedTable:
    return records.windowed_by(windows).aggregate(
        orders=count(),
        amount=total("amount"),
        items=total("items"),
        least=smallest("amount"),
        heaviest=largest("weight"),
        last_region=largest("region"),
    )


def topologies(name: str, records: RecordStream, windows: TimeWindows) -> list[Topology]:
    table = aggregated(records, windows)
    return [
        Topology(name=f"{name}-final", sinks=[table.emit_final().to(RESULTS)], idle_after="60 s"),
        Topology(name=f"{name}-each-batch", sinks=[table.emit_each_batch().to(RESULTS)], idle_after="60 s"),
    ]


TOPOLOGIES = [
    *topologies("by-region", stream(ORDERS).select_key(region=coalesce(col("region"), "UNKNOWN")), TUMBLING),
    *topologies("by-own-key", stream(ORDERS).filter(coalesce(col("vip"), False)), HOPPING),
    *topologies("by-tier", stream(TIMED_ORDERS).select_key(tier=when(col("amount") > 5, "high", None)), HOPPING),
    *topologies(
        "by-items",
        stream(ORDERS)
        .with_fields(items=col("items") * 2)
        .filter(col("weight") / col("items") < 1)
        .select_key(items_key=col("items")),
        TUMBLING,
    ),
]

values = st.one_of(
    st.none(),
    st.sampled_from([b"{", b"[]", b'{"amount": "1"}', b'{"region": "EU"}', b'{"amount": 1, "at": -5}', b"\xff"]),
    st.fixed_dictionaries(
        {"amount": st.integers(0, 1_000).map(lambda cents: cents / 100)},
        optional={
            "region": st.sampled_from(["EU", "US", None]),
            "items": st.integers(0, 3),
            "weight": st.sampled_from([0.5, 2.0, None]),
            "vip": st.booleans(),
            "at": st.integers(0, 60_000),
        },
    ).map(lambda value: json.dumps(value).encode()),
)


@st.composite
def logs(draw: Any, topic: str) -> list[Cut]:
    """Batches of records, some of which are planned so much later that partitions are idle."""
    record = st.builds(
        LogRecord,
        partition=st.integers(0, PARTITIONS - 1),
        timestamp_ms=st.one_of(st.integers(0, 60_000), st.sampled_from([-1, 0, 9_999, 10_000, 12_999, 13_000])),
        key=st.sampled_from([b"a", b"b", None, b"\xff", b""]),
        value=values,
    )
    batch = st.lists(record.map(lambda one: Event(topic, one)), max_size=10)
    return draw(st.lists(st.builds(Cut, batch, st.sampled_from([0, 1_000, IDLE_AFTER_MS])), min_size=1, max_size=5))


def order(timestamp_ms: int, amount: float = 1.0, partition: int = 0, key: bytes = b"a", **fields: Any) -> Event:
    value = {"amount": amount, "vip": True, "at": timestamp_ms, "items": 1, "weight": 0.5, **fields}
    text = json.dumps(value).encode()
    return Event("", LogRecord(partition=partition, timestamp_ms=timestamp_ms, key=key, value=text))


CLOSING = Cut(
    [order(CLOSING_MS, 999, p, b"closing", region="closing", items=999, weight=999.0) for p in range(PARTITIONS)]
)
BACK_FROM_IDLE = [
    Cut([order(1_000), order(1_000, partition=1), order(1_000, partition=2)]),
    Cut([order(50_000), order(50_000, partition=1)], later_ms=IDLE_AFTER_MS),
    Cut([order(2_000, partition=2, amount=0.1)]),
    Cut([order(3_000, partition=2, amount=0.2)]),
]
LATE_FOR_SOME = [Cut([order(12_000), order(9_000), order(1_000)])]


def assert_tasks_are_the_interpreter(topology: Topology, log: Sequence[Cut], arrow_cuts: Sequence[int]) -> None:
    [source], [sink] = topology.sources, topology.sinks
    name = source.topic.name
    is_final = sink.input.emission.kind == "final"  # type: ignore[attr-defined]
    exact = Comparable(exactness="latest" if is_final else "rows", with_times=True, has_bounds=True)
    drawn = Drawn(
        topology=topology, partitions={name: PARTITIONS}, sinks={"results": exact}, any_order=False, idles=True
    )
    cuts = [replace(cut, events=[replace(one, topic=name) for one in cut.events]) for cut in (*log, CLOSING)]
    assert_agree(drawn, by_tasks(drawn, cuts, arrow_cuts), by_interpreter(drawn, cuts))


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(TOPOLOGIES), logs(""), st.lists(st.integers(0, 10), max_size=2))
@example(TOPOLOGIES[0], BACK_FROM_IDLE, [])
@example(TOPOLOGIES[3], BACK_FROM_IDLE, [1])
@example(TOPOLOGIES[4], LATE_FOR_SOME, [])
def test_tasks_and_interpreter_agree_on_results_lateness_and_fates(
    topology: Topology, log: list[Cut], arrow_cuts: list[int]
) -> None:
    assert_tasks_are_the_interpreter(topology, log, arrow_cuts)
