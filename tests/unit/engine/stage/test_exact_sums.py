"""Aggregates near the ends of their types are the interpreter's; a sum is exact, or an error that names it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from math import isclose
from typing import Any

import polars as pl
import polars.selectors as cs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import Aggregate, SumTooLarge, average, first, largest, last, reduce, smallest, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream, Table
from recount.declare.schema import DOUBLE, LONG, LONG_MAX, LONG_MIN, FieldType, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import Windows, hopping, session, sliding, tumbling
from recount.engine.stage.intake import from_ipc
from recount.engine.state.graph_state import ROWS, packed
from recount.reference.topology_driver import TopologyDriver
from recount.runtime.errors import Terminal

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
NINES, NEGATIVE = Decimal("9" * 38), Decimal("-" + "9" * 38)
BIG, MANY = 1.7e308, Decimal("9" * 20)


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


def one_by_one(field: str, *values: Any) -> tuple[str, list[tuple[int, int, Any]], list[int]]:
    """These values in one window, each in a batch of its own."""
    return field, [(0, number, value) for number, value in enumerate(values)], list(range(1, len(values)))


@pytest.mark.parametrize("windows", WINDOWS, ids=lambda one: type(one).__name__)
@settings(max_examples=20, deadline=None)
@given(drawn=logs(), names=st.sets(st.sampled_from(sorted(AGGREGATES)), min_size=1))
@example(one_by_one("d", NEGATIVE, NEGATIVE, NINES, NINES, Decimal(-5)), {"total", "average"})
@example(one_by_one("m", MANY, MANY, -MANY, Decimal("0.000000000000000001")), {"total"})
@example(one_by_one("n", LONG_MIN, LONG_MIN, LONG_MAX, LONG_MAX), {"total", "average"})
@example(one_by_one("x", BIG, BIG, -BIG, 5.0), {"average"})
@example(one_by_one("x", BIG, BIG, -BIG), {"total"})
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


SECOND = tumbling("1 s", grace="0 s")


def summed(field: str, windows: object = SECOND) -> RecordStream:
    return stream(PAID).windowed_by(windows).aggregate(sum=total(field)).emit_each_batch()  # type: ignore[arg-type]


def finally_summed(field: str) -> RecordStream:
    return stream(PAID).windowed_by(SECOND).aggregate(sum=total(field)).emit_final()


def record(field: str, value: object, timestamp_ms: int = 1) -> LogRecord:
    text = f'{{"{field}": {value}}}' if isinstance(value, Decimal) else json.dumps({field: value})
    return LogRecord(timestamp_ms=timestamp_ms, key=b"a", value=text.encode())


def by_operators(flow: RecordStream | Table, field: str, batches: list[list[object]]) -> object:
    engine = TopologyEngine(Topology(name="summed", sinks=[flow.to(OUT)]), {"paid": 1})
    for batch in batches:
        engine.batch({"paid": [record(field, value) for value in batch]})
    return engine.emitted("out")["sum"][-1]


def by_interpreter(flow: RecordStream, field: str, values: list[object]) -> object:
    driver = TopologyDriver(Topology(name="summed", sinks=[flow.to(OUT)]))
    for value in values:
        driver.pipe("paid", key="a", value={**dict.fromkeys(FIELDS), field: value}, timestamp_ms=1)
    driver.advance_to(10_000)
    return driver.read("out")[-1].value["sum"]  # type: ignore[index]


def test_a_group_of_a_table_adds_up_exactly_or_stops_the_stream() -> None:
    rows = table(PAID).group_by(all=col("n") * 0).aggregate(sum=total("n"))
    engine = TopologyEngine(Topology(name="summed", sinks=[rows.to(OUT)]), {"paid": 1})
    records = [
        LogRecord(timestamp_ms=1, key=key, value=json.dumps({"n": LONG_MAX - n}).encode())
        for n, key in enumerate((b"a", b"b"))
    ]
    engine.batch({"paid": records[:1]})
    assert engine.emitted("out")["sum"].to_list() == [LONG_MAX]
    with pytest.raises(SumTooLarge):
        engine.batch({"paid": records[1:]})


def test_a_function_that_makes_more_than_a_long_of_it_stops_the_stream() -> None:
    flow = stream(PAID).windowed_by(SECOND).aggregate(sum=reduce("n", lambda one, other: one + other)).emit_each_batch()
    with pytest.raises(Terminal) as refused:
        by_operators(flow, "n", [[5 * 10**18, 5 * 10**18]])
    assert "sum" in str(refused.value.given)


def without_beyond(blob: bytes) -> bytes:
    """The rows of a state as they were before there was anything beyond a sum."""
    rows = from_ipc(blob)
    large = [pl.lit(BIG).alias(name) for name in rows.columns if name == "accumulated sum of x"]
    return packed(rows.with_columns(large).select(~cs.starts_with("accumulated beyond")))


def test_state_of_an_earlier_release_which_had_nothing_beyond_a_sum_goes_on() -> None:
    flow = stream(PAID).windowed_by(SECOND).aggregate(d=total("d"), m=average("m"), x=total("x")).emit_final()
    engine = TopologyEngine(Topology(name="summed", sinks=[flow.to(OUT)]), {"paid": 1})
    value = f'{{"d": {NINES}, "m": {MANY}, "x": {BIG}}}'.encode()
    engine.batch({"paid": [LogRecord(timestamp_ms=1, key=b"a", value=value)]})
    assert any("accumulated beyond" in name for blob in engine.state[ROWS] for name in from_ipc(blob).columns)
    engine.state = engine.state.with_columns(pl.Series(ROWS, map(without_beyond, engine.state[ROWS])))
    engine.restart()
    engine.batch({"paid": [LogRecord(timestamp_ms=2, key=b"a", value=value)]})
    less = f'{{"d": -{NINES}, "m": {MANY}, "x": -{BIG}}}'.encode()
    engine.batch({"paid": [LogRecord(timestamp_ms=3, key=b"a", value=less), record("n", 1, 60_000)]})
    [row] = engine.emitted("out").to_dicts()
    assert (row["d"], row["m"], row["x"]) == (NINES, pytest.approx(1e20), BIG)


def test_a_sum_that_is_too_large_names_the_record_of_the_batch_that_adds_most() -> None:
    values = [Decimal(7), NINES, Decimal(9)]
    by_other = stream(PAID).select_key(other=col("n")).windowed_by(SECOND).aggregate(sum=total("m")).emit_final()
    sinks = [by_other.to(Topic(name="other", key="other")), summed("d").to(OUT)]
    engine = TopologyEngine(Topology(name="summed", sinks=sinks), {"paid": 1})
    with pytest.raises(SumTooLarge, match=r"paid-0@1 adds most"):
        engine.batch({"paid": [record("d", value) for value in values]})
    with pytest.raises(SumTooLarge, match=r"paid-0@1 adds most") as by_driver:
        by_interpreter(finally_summed("d"), "d", list(values))
    assert "window_start=0" in str(by_driver.value.given)
