"""Aggregates of values near the ends of their types are the interpreter's, however the log is cut and who restarts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from math import isclose
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.engine import Engine, LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import Aggregate, SumTooLarge, average, first, largest, last, smallest, total
from recount.declare.schema import DOUBLE, LONG, LONG_MAX, LONG_MIN, FieldType, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import Windows, hopping, session, sliding, tumbling
from recount.engine.stage.partials import plan_of
from recount.reference.topology_driver import TopologyDriver

FIELDS: Mapping[str, FieldType] = {
    "n": LONG,
    "d": decimal(38, 0),
    "m": decimal(38, 18),
    "x": DOUBLE,
    "s": decimal(9, 8),
}
PAID = Topic(name="paid", key="id", value=RecordSchema(fields=dict(FIELDS)))
OUT = Topic(name="out", key="id")
END_MS = 100_000


def _units(kind: FieldType) -> st.SearchStrategy[Decimal]:
    most = 10**kind.precision - 1
    near = st.integers(0, 9).flatmap(lambda less: st.sampled_from([most - less, less - most, less, -less]))
    return (near | st.integers(-most, most)).map(lambda units: Decimal(f"{units}e-{kind.scale}"))


VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "n": st.sampled_from([LONG_MAX, LONG_MIN, LONG_MAX - 1, LONG_MIN + 1, 0, 1, -1]) | st.integers(LONG_MIN, LONG_MAX),
    # doubles of few digits, so that what is left where they cancel out is the same in any order
    "x": st.sampled_from([1.5, 1.25, 1.0, 0.0]).flatmap(
        lambda one: st.sampled_from([1.0, -1.0, 2.0**1023, -(2.0**1023), 2.0**1022]).map(lambda much: one * much)
    ),
    **{name: _units(kind) for name, kind in FIELDS.items() if kind.kind == "decimal"},
}
WINDOWS: Sequence[Windows] = (
    tumbling("10 s", grace="5 s"),
    hopping("10 s", advance="5 s", grace="5 s"),
    sliding("4 s", grace="5 s"),
    session("3 s", grace="5 s"),
)
AGGREGATES: Mapping[str, Callable[[str], Aggregate]] = {
    "total": total,
    "average": average,
    "smallest": smallest,
    "largest": largest,
    "first": first,
    "last": last,
}


@st.composite
def logs(draw: st.DrawFn) -> tuple[str, list[tuple[int, int, Any]], list[int]]:
    """A field, (partition, time, value) of each record, and where the log is cut."""
    field = draw(st.sampled_from(sorted(FIELDS)))
    one = st.tuples(st.integers(0, 1), st.integers(0, 12_000), st.none() | VALUES[field] | VALUES[field])
    records = draw(st.lists(one, min_size=1, max_size=8))
    return field, records, sorted(draw(st.sets(st.integers(1, len(records)))))


def _event(partition: int, at_ms: int, field: str, value: Any) -> LogRecord:
    told = f"{value:f}" if isinstance(value, Decimal) else json.dumps(value)
    text = f'{{"{field}":{told}}}'.encode()
    return LogRecord(partition=partition, timestamp_ms=at_ms, key=b"a", value=text)


def _rows(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[tuple[int, int], list[Any]]:
    return {(row["window_start"], row["window_end"]): [row[name] for name in names] for row in rows}


def _same(one: Any, other: Any) -> bool:
    """Exactly the same, or doubles that may have been added up in another order."""
    if isinstance(one, str) or isinstance(other, str) or one.keys() != other.keys():
        return bool(one == other)
    pairs = [pair for window in one for pair in zip(one[window], other[window], strict=True)]
    return all(mine == said or (isinstance(mine, float) and isclose(mine, said, rel_tol=1e-9)) for mine, said in pairs)


@pytest.mark.parametrize("windows", WINDOWS, ids=lambda one: type(one).__name__)
@settings(max_examples=30, deadline=None)
@given(drawn=logs(), names=st.sets(st.sampled_from(sorted(AGGREGATES)), min_size=1))
def test_values_near_the_ends_of_their_types_come_to_the_same_whatever_the_cuts(
    windows: Windows, drawn: tuple[str, list[tuple[int, int, Any]], list[int]], names: set[str]
) -> None:
    field, records, cuts = drawn
    aggregates = {name: AGGREGATES[name](field) for name in sorted(names)}
    flow = stream(PAID).windowed_by(windows).aggregate(**aggregates).emit_final()
    topology = Topology(name="summed", sinks=[flow.to(OUT)])
    closing = [(partition, END_MS, None) for partition in (0, 1)]
    batches = [records[start:end] for start, end in pairwise([0, *cuts, len(records)])] + [closing]
    runs: dict[str, Callable[[], list[Mapping[str, Any]]]] = {
        "driver": lambda: _by_driver(topology, field, [*records, *closing]),
        "operators": lambda: _by_operators(topology, field, batches),
    }
    if plan_of(topology) is not None:
        runs["tasks"] = lambda: _by_tasks(topology, field, batches)
    said: dict[str, Any] = {}
    for by, run in runs.items():
        try:
            said[by] = _rows([row for row in run() if row["window_start"] < END_MS - 10_000], sorted(names))
        except SumTooLarge:
            said[by] = "a sum is too large"
    assert all(_same(one, said["driver"]) for one in said.values()), said


def _by_driver(topology: Topology, field: str, records: Sequence[tuple[int, int, Any]]) -> list[Mapping[str, Any]]:
    driver = TopologyDriver(topology, partitions={"paid": 2})
    for partition, at_ms, value in records:
        driver.pipe(
            "paid", key="a", value=_event(partition, at_ms, field, value).value, timestamp_ms=at_ms, partition=partition
        )
    return [one.value for one in driver.read("out") if one.value is not None]


def _by_operators(topology: Topology, field: str, batches: Sequence[Any]) -> list[Mapping[str, Any]]:
    engine = TopologyEngine(topology, {"paid": 2})
    for batch in batches:
        engine.batch({"paid": [_event(partition, at_ms, field, value) for partition, at_ms, value in batch]})
        engine.restart()
    return engine.emitted("out").to_dicts()


def _by_tasks(topology: Topology, field: str, batches: Sequence[Any]) -> list[Mapping[str, Any]]:
    engine = Engine(topology, partitions=2)
    for batch in batches:
        engine.batch(*(_event(partition, at_ms, field, value) for partition, at_ms, value in batch))
    return engine.emitted.to_dicts()
