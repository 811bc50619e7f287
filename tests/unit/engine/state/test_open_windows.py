"""Open windows of a partial aggregation: when results leave, what is read after a start, how rows are held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.engine import NOW_MS, Engine, LogRecord

from recount.declare.aggregates import count
from recount.declare.columns import REVISION
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.engine.state.open_windows import OpenWindows, SortedRuns, StoredWindows

CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(page=STRING))
COUNTS = Topic(name="counts", key="user")
IDLE_AFTER_MS = 60_000
RESULTS = stream(CLICKS).windowed_by(tumbling("10 s", grace="2 s")).aggregate(clicks=count())
FINAL = Topology(name="final", sinks=[RESULTS.emit_final().to(COUNTS)], idle_after="60 s")
EACH_BATCH = Topology(name="each-batch", sinks=[RESULTS.emit_each_batch().to(COUNTS)], idle_after="60 s")


def click(second: float, partition: int = 0, user: bytes = b"ann") -> LogRecord:
    return LogRecord(timestamp_ms=round(second * 1_000), partition=partition, key=user)


def results(emitted: pl.DataFrame) -> list[tuple[Any, ...]]:
    """(key, start of the window in seconds, clicks, revision)."""
    return [
        (row["__key"], row["window_start"] // 1_000, row["clicks"], row[REVISION])
        for row in emitted.iter_rows(named=True)
    ]


@pytest.mark.parametrize(("second", "emitted"), [(11.999, []), (12, [("ann", 0, 1, 0)]), (12.001, [("ann", 0, 1, 0)])])
def test_a_final_result_leaves_when_the_frontier_reaches_the_end_and_the_grace(
    second: float, emitted: list[tuple[Any, ...]]
) -> None:
    engine = Engine(FINAL)
    engine.batch(click(1))
    assert results(engine.batch(click(second, user=b"bob"))) == emitted


def test_a_final_result_waits_for_the_slowest_partition() -> None:
    engine = Engine(FINAL, partitions=2)
    assert results(engine.batch(click(1), click(90), click(1, partition=1))) == []
    assert results(engine.batch(click(30, partition=1))) == [("ann", 0, 2, 0)]


def test_a_partition_that_speaks_after_being_idle_revises_what_was_final() -> None:
    engine = Engine(FINAL, partitions=2)
    engine.batch(click(1), click(2, partition=1))
    assert results(engine.batch(click(30), now_ms=NOW_MS + IDLE_AFTER_MS)) == [("ann", 0, 2, 0)]
    again = engine.batch(click(3, partition=1), now_ms=NOW_MS + IDLE_AFTER_MS + 1)
    assert results(again) == [("ann", 0, 3, 1)]
    assert results(engine.batch(click(4, partition=1), now_ms=NOW_MS + IDLE_AFTER_MS + 2)) == [("ann", 0, 4, 2)]
    assert engine.counts["late"] == 0


def test_a_closed_window_without_a_result_gets_its_first_from_a_partition_that_was_idle() -> None:
    engine = Engine(FINAL, partitions=2)
    engine.batch(click(2, partition=1), click(14))
    engine.batch(click(50), now_ms=NOW_MS + IDLE_AFTER_MS)
    late_comer = engine.batch(click(20, partition=1, user=b"eve"), now_ms=NOW_MS + IDLE_AFTER_MS + 1)
    assert results(late_comer) == [("eve", 20, 1, 0)]


@pytest.mark.parametrize("topology", [FINAL, EACH_BATCH])
def test_a_closed_window_is_not_kept(topology: Topology) -> None:
    engine = Engine(topology)
    engine.batch(click(1), click(2, user=b"bob"))
    engine.batch(click(60))
    assert engine.windows.rows["window_start"].to_list() == [60_000]


FIRST = [click(1), click(2, user=b"bob"), click(11)]
"""Two keys in the window [0, 10 s), which closes at 12 s, and one in the next."""


class Reader:
    """Reads from rows in memory, and remembers how many rows each read gave."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows = rows
        self.given: list[int] = []

    def __call__(self, condition: pl.Expr) -> pl.DataFrame:
        found = self.rows.filter(condition)
        self.given.append(found.height)
        return found


def restarted(topology: Topology) -> tuple[Engine, Reader]:
    """An engine after a batch of ``FIRST``, its open windows stored."""
    engine = Engine(topology)
    engine.batch(*FIRST)
    reader = Reader(engine.windows.rows)
    none = OpenWindows.none(engine.windows.node, engine.windows.grace_ms)
    engine.windows = replace(none, stored=StoredWindows("__key", none.held, reader))
    return engine, reader


@pytest.mark.parametrize("topology", [FINAL, EACH_BATCH])
@pytest.mark.parametrize("read_between_batches", [True, False])
@pytest.mark.parametrize("seconds", [(3, 4), (12, 3), (13, 30), (40, 41)])
def test_the_results_are_those_of_an_engine_that_went_on(
    topology: Topology, read_between_batches: bool, seconds: tuple[float, ...]
) -> None:
    went_on = Engine(topology)
    went_on.batch(*FIRST)
    engine, _ = restarted(topology)
    for second in seconds:
        batch: list[LogRecord] = [click(second, user=b"bob"), click(second, user=b"new")]
        assert results(engine.batch(*batch)) == results(went_on.batch(*batch))
        if read_between_batches and engine.windows.stored:
            engine.windows.stored.all()
    if read_between_batches:
        assert engine.windows.stored is None
        assert sorted(engine.windows.rows.rows()) == sorted(went_on.windows.rows.rows())


def test_a_batch_reads_the_windows_that_it_adds_to_and_no_others_and_none_twice() -> None:
    engine, reader = restarted(EACH_BATCH)
    for second, clicks, revision in ((3, 2, 1), (4, 3, 2)):
        assert results(engine.batch(click(second, user=b"bob"))) == [("bob", 0, clicks, revision)]
        assert reader.given == [1]


def test_final_results_that_are_due_leave_with_those_that_no_batch_has_touched() -> None:
    engine, _ = restarted(FINAL)
    assert results(engine.batch(click(12, user=b"new"))) == [("ann", 0, 1, 0), ("bob", 0, 1, 0)]
    assert engine.windows.stored is None, "all were read"


SCHEMA = {"key": pl.String(), "start": pl.Int64(), "n": pl.Int64()}
EMPTY = SortedRuns(schema=SCHEMA, identity=["key", "start"], small=2)
"""Few rows make several runs, as millions do by default."""

Rows = dict[tuple[str, int], int]
SOME_ROWS = st.dictionaries(
    st.tuples(st.sampled_from(["ann", "bob", "eve", ""]), st.integers(0, 5)), st.integers(0, 99), max_size=12
)


def frame(rows: Rows) -> pl.DataFrame:
    return pl.DataFrame([(*place, n) for place, n in rows.items()], EMPTY.schema, orient="row")


def content(rows: pl.DataFrame) -> Rows:
    found = {(key, start): n for key, start, n in rows.rows()}
    assert len(found) == rows.height, "an identity is there once"
    return found


class AllAlike(SortedRuns):
    """Every hash is the same."""

    def _hashed(self, rows: pl.DataFrame) -> pl.DataFrame:
        return super()._hashed(rows).with_columns(pl.lit(7, pl.UInt64).alias("__hash"))


@settings(max_examples=40, deadline=None)
@given(st.lists(SOME_ROWS), SOME_ROWS, st.integers(0, 5))
def test_the_last_row_of_an_identity_counts_and_a_filter_shows_none_that_was_hidden(
    puts: list[Rows], wanted: Rows, start: int
) -> None:
    runs, expected = EMPTY, Rows()
    for rows in puts:
        runs = runs.put(frame(rows))
        expected.update(rows)
    assert content(runs.rows) == expected
    assert content(runs.of(frame(wanted))) == {place: expected[place] for place in wanted if place in expected}
    later = {place: n for place, n in expected.items() if place[1] > start}
    assert content(runs.filter(pl.col("start") > start).rows) == later
    assert content(runs.without(pl.col("start") <= start).rows) == later


@settings(max_examples=40, deadline=None)
@given(SOME_ROWS, SOME_ROWS, SOME_ROWS)
def test_rows_put_below_show_where_nothing_was_put_above(below: Rows, above: Rows, wanted: Rows) -> None:
    runs = EMPTY.put(frame(above)).above(EMPTY.put(frame(below)))
    expected = {**below, **above}
    assert content(runs.rows) == expected
    assert content(runs.of(frame(wanted))) == {place: expected[place] for place in wanted if place in expected}


@pytest.mark.parametrize(("rows", "runs"), [(4, 1), (5, 1), (20, 2)])
def test_a_run_is_joined_with_one_that_has_outgrown_a_quarter_of_it(rows: int, runs: int) -> None:
    large = EMPTY.put(frame({("ann", start): 0 for start in range(rows)}))
    assert len(large.put(frame({("bob", start): 0 for start in range(5)})).runs) == runs


def test_rows_whose_hashes_are_alike_are_told_apart() -> None:
    empty = AllAlike(schema=SCHEMA, identity=["key", "start"], small=2)
    runs = empty.put(frame({("ann", 1): 1, ("bob", 1): 2, ("eve", 1): 3})).put(frame({("bob", 1): 4}))
    assert content(runs.of(frame({("ann", 1): 0, ("bob", 1): 0}))) == {("ann", 1): 1, ("bob", 1): 4}
    assert content(runs.rows) == {("ann", 1): 1, ("bob", 1): 4, ("eve", 1): 3}
