"""Laws: what comes out is a function of the log, not of how it was read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recount.declare.aggregates import count, fold, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream
from recount.declare.schema import LONG, STRING, RecordSchema, list_of
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import ClosingWindows, SessionWindows, SlidingWindows, TimeWindows
from recount.reference.topology_driver import TopologyDriver

EVENTS = Topic(name="events", key="id", value=RecordSchema.of(who=STRING, n=LONG))
OTHERS = Topic(name="others", key="id", value=RecordSchema.of(what=LONG))
OUT = Topic(name="out", key="who")
END_MS = 10_000
law = settings(max_examples=int(os.environ.get("LAW_EXAMPLES", "30")), deadline=None)
"""A longer run: ``LAW_EXAMPLES=5000 pytest --hypothesis-seed=1 tests/unit/reference/test_laws.py``."""
WINDOWS: list[ClosingWindows] = [
    TimeWindows(size_ms=10, advance_ms=10, grace_ms=5),
    TimeWindows(size_ms=10, advance_ms=4, grace_ms=0, origin_ms=3),
    SlidingWindows(difference_ms=6, grace_ms=4),
    SessionWindows(gap_ms=4, grace_ms=3, reach_ms=6),
    SessionWindows(gap_ms=4, grace_ms=3, max_duration_ms=9),
]
ORDERED = fold(
    "n", initial=list, adder=lambda held, n: [*held, n], merger=lambda one, other: one + other, returns=list_of(LONG)
)

Log = list[list[tuple[str | None, int]]]
"""Per partition its records in offset order: who, and when."""
logs = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 60)), max_size=12), min_size=1, max_size=3
)


def counted(windows: Any) -> RecordStream:
    keyed = stream(EVENTS).select_key(who=col("who")).windowed_by(windows)
    return keyed.aggregate(n=count(), sum=total("n"), order=ORDERED).emit_each_batch()


def final(windows: ClosingWindows) -> RecordStream:
    keyed = stream(EVENTS).select_key(who=col("who")).windowed_by(windows)
    return keyed.aggregate(n=count(), sum=total("n"), order=ORDERED).emit_final()


def interleavings(log: Log, data: st.DataObject) -> list[tuple[int, int]]:
    """The (partition, index) of every record, partitions shuffled into each other, each in its own order."""
    turns = data.draw(st.permutations([p for p, records in enumerate(log) for _ in records]))
    seen: Counter[int] = Counter()
    order = []
    for partition in turns:
        order.append((partition, seen[partition]))
        seen[partition] += 1
    return order


def play(flow: RecordStream, log: Log, order: Sequence[tuple[int, int]]) -> Any:
    """Feed the log in ``order``, all of it as one batch; then let all time pass."""
    driver = TopologyDriver(Topology(name="law", sinks=[flow.to(OUT)]))
    with driver.batch():
        for partition, index in order:
            who, at = log[partition][index]
            value = {"who": who, "n": 100 * partition + index}
            driver.pipe("events", key="x", value=value, timestamp_ms=at, partition=partition)
    driver.advance_to(END_MS)
    late = {(row.partition, row.offset, row.window_start, row.window_end) for row in driver.late}
    latest = {(out.key, out.window): out.value for out in driver.outputs("out")}
    return {place: value for place, value in latest.items() if value is not None}, late, driver.fates


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@law
@given(log=logs, data=st.data())
def test_the_last_update_of_a_window_is_its_final_result(
    windows: ClosingWindows, log: Log, data: st.DataObject
) -> None:
    order = interleavings(log, data)
    assert play(counted(windows), log, order) == play(final(windows), log, order)


@pytest.mark.parametrize("windows", WINDOWS[:3], ids=str)
@law
@given(log=logs, data=st.data())
def test_a_final_result_is_never_revised_while_no_partition_is_idle(
    windows: ClosingWindows, log: Log, data: st.DataObject
) -> None:
    topology = Topology(name="law", sinks=[final(windows).to(OUT)])
    driver = TopologyDriver(topology, partitions={"events": len(log)})
    for partition, index in interleavings(log, data):
        who, at = log[partition][index]
        driver.pipe("events", key="x", value={"who": who, "n": 1}, timestamp_ms=at, partition=partition)
    driver.advance_to(END_MS)
    assert {out.revision for out in driver.outputs("out")} <= {0}


@law
@given(log=logs, data=st.data())
def test_every_record_is_in_every_window_that_holds_it_or_in_the_late_ledger(log: Log, data: st.DataObject) -> None:
    windows = TimeWindows(size_ms=10, advance_ms=4, grace_ms=2)
    results, late, fates = play(final(windows), log, interleavings(log, data))
    held = [
        (p, i, s)
        for p, records in enumerate(log)
        for i, (who, at) in enumerate(records)
        if who
        for s in windows.starts(at)
    ]
    assert sum(row["n"] for row in results.values()) + len(late) == len(held)
    assert sum(fates.values()) == sum(len(records) for records in log)
