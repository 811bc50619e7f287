"""The engine computes what the reference interpreter says, on any log and however the log is cut into batches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.engine.engine import Engine, LogRecord

from recount.declare.aggregates import count, largest, smallest, total
from recount.declare.columns import RESULT_TIME, REVISION, TIMESTAMP
from recount.declare.expressions import coalesce, col, when
from recount.declare.flow import RecordStream, WindowedTable
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import TimeWindows, hopping, tumbling
from recount.reference.topology_driver import TopologyDriver

PARTITIONS = 3
IDLE_AFTER_MS = 60_000
START_MS, CLOSING_MS = 10**9, 10**8
"""When the first batch is planned, and the event time of the records that close all windows of the log."""

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
records = st.builds(
    LogRecord,
    partition=st.integers(0, PARTITIONS - 1),
    timestamp_ms=st.one_of(st.integers(0, 60_000), st.sampled_from([-1, 0, 9_999, 10_000, 12_999, 13_000])),
    key=st.sampled_from([b"a", b"b", None, b"\xff", b""]),
    value=values,
)
Batch = tuple[Sequence[LogRecord], int]
"""Records, and how many milliseconds after the batch before it was planned."""
batches = st.lists(
    st.tuples(st.lists(records, max_size=10), st.sampled_from([0, 1_000, IDLE_AFTER_MS])), min_size=1, max_size=5
)

CLOSING: Batch = (
    [
        LogRecord(
            partition=partition,
            timestamp_ms=CLOSING_MS,
            key=b"closing",
            value=b'{"amount": 999, "region": "closing", "items": 999, "weight": 0.5, "vip": true, "at": 100000000}',
        )
        for partition in range(PARTITIONS)
    ],
    0,
)
Result = tuple[Any, ...]


def by_engine(topology: Topology, log: Sequence[Batch], cuts: Sequence[int]) -> tuple[Engine, list[list[Result]]]:
    """The engine, and what it emitted batch by batch."""
    engine = Engine(topology, partitions=PARTITIONS, cuts=cuts)
    emitted, now_ms = [], START_MS
    for found, later_ms in log:
        now_ms += later_ms
        emitted.append(rows(engine, engine.batch(*found, now_ms=now_ms)))
    return engine, emitted


def rows(engine: Engine, emitted: pl.DataFrame) -> list[Result]:
    fields = list(engine.plan.sink.fields)
    columns = [engine.plan.aggregate.key, WINDOW_START, WINDOW_END, RESULT_TIME, REVISION]
    return [
        (*(row[name] for name in columns), {name: row[name] for name in fields if name != "__key"})
        for row in emitted.iter_rows(named=True)
    ]


def by_interpreter(topology: Topology, log: Sequence[Batch]) -> tuple[TopologyDriver, list[list[Result]]]:
    """The interpreter's driver, and what it emitted batch by batch."""
    driver = TopologyDriver(topology)
    [source] = topology.sources
    emitted = []
    for found, _ in log:
        with driver.batch():
            for record in found:
                driver.pipe(
                    source.topic.name,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    key=record.key,
                    value=record.value,
                )
        outputs = driver.read(RESULTS.name)
        emitted.append([(o.key, *(o.window or ()), o.timestamp_ms, o.revision, o.value) for o in outputs])
    return driver, emitted


def last_of_each(emitted: Sequence[Sequence[Result]]) -> dict[Result, Result]:
    """The last result of each key and window, without its revision."""
    found = {}
    for batch in emitted:
        for key, start, end, timestamp_ms, _, value in batch:
            found[key, start, end] = (timestamp_ms, comparable(value))
    return found


def comparable(value: Mapping[str, Any]) -> tuple[Any, ...]:
    """Values with their types, for 1 == 1.0 == Decimal(1)."""
    return tuple((name, type(cell).__name__, cell) for name, cell in value.items())


def in_order(batch: Sequence[Result]) -> list[Result]:
    return sorted(((*result[:-1], comparable(result[-1])) for result in batch), key=str)


def order(timestamp_ms: int, amount: float = 1.0, partition: int = 0, key: bytes = b"a", **fields: Any) -> LogRecord:
    value = json.dumps({"amount": amount, "vip": True, "at": timestamp_ms, "items": 1, "weight": 0.5, **fields})
    return LogRecord(partition=partition, timestamp_ms=timestamp_ms, key=key, value=value.encode())


BACK_FROM_IDLE: list[Batch] = [
    ([order(1_000), order(1_000, partition=1), order(1_000, partition=2)], 0),
    ([order(50_000), order(50_000, partition=1)], IDLE_AFTER_MS),
    ([order(2_000, partition=2, amount=0.1)], 0),
    ([order(3_000, partition=2, amount=0.2)], 0),
]
LATE_FOR_SOME: list[Batch] = [([order(12_000), order(9_000), order(1_000)], 0)]


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(TOPOLOGIES), batches, st.lists(st.integers(0, 10), max_size=2))
@example(TOPOLOGIES[0], BACK_FROM_IDLE, [])
@example(TOPOLOGIES[3], BACK_FROM_IDLE, [1])
@example(TOPOLOGIES[4], LATE_FOR_SOME, [])
def test_engine_and_interpreter_agree_on_results_lateness_and_fates(
    topology: Topology, log: list[Batch], cuts: list[int]
) -> None:
    log = [*log, CLOSING]
    engine, emitted = by_engine(topology, log, cuts)
    driver, expected = by_interpreter(topology, log)

    assert last_of_each(emitted) == last_of_each(expected)
    if engine.plan.aggregate.emission.kind == "each batch":
        assert [in_order(batch) for batch in emitted] == [in_order(batch) for batch in expected]
    place = ("partition", "offset")
    judged = (*place, WINDOW_START, WINDOW_END, TIMESTAMP, "stream_time_ms", "margin_ms")
    assert sorted(engine.made["late"].select(*judged).rows()) == sorted(
        tuple(getattr(late, name) for name in judged) for late in driver.late
    )
    assert sorted(engine.made["rejected"].select(*place, TIMESTAMP, "reason", "detail").rows()) == sorted(
        (bad.partition, bad.offset, bad.timestamp_ms, bad.reason, bad.detail) for bad in driver.dead_letters
    )
    fates = {name.replace("dead_lettered", "dead-lettered").replace("_", " "): n for name, n in engine.counts.items()}
    assert fates.pop("records") == sum(fates.values())
    assert {name: n for name, n in fates.items() if n} == driver.fates


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(TOPOLOGIES[::2]), st.lists(records, max_size=20), st.lists(st.integers(0, 20), max_size=4))
def test_final_results_do_not_depend_on_where_the_log_is_cut_into_batches(
    topology: Topology, log: list[LogRecord], cuts: list[int]
) -> None:
    bounds = [0, *sorted(min(place, len(log)) for place in cuts), len(log)]
    pieces: list[Batch] = [(log[start:end], 0) for start, end in pairwise(bounds)]
    whole, _ = by_engine(topology, [(log, 0), CLOSING], ())
    cut, _ = by_engine(topology, [*pieces, CLOSING], ())
    assert whole.emitted.sort(whole.emitted.columns).equals(cut.emitted.sort(cut.emitted.columns))
    assert set(whole.emitted[REVISION]) <= {0}
