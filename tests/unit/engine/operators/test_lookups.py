"""Joins of a stream with a table: each record finds what the interpreter finds that reads the table's changes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from tests.batch_proofs import a_proof
from tests.statuses import a_status
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.operators.feeding import (
    LEFT,
    RIGHT,
    Batches,
    Event,
    assert_same,
    by_partition,
    closing,
    cut,
    cuts,
    fed,
    interpreted,
    keyed,
    law,
    logs,
    restarts,
    topology,
)
from tests.unit.engine.topology_engine import TopologyEngine

from recount.declare.aggregates import largest
from recount.declare.expressions import col
from recount.engine.driver.stream_query import BatchProgress
from recount.engine.driver.stream_reports import progressed
from recount.engine.exchange.work import BatchResult

left, table = keyed(LEFT), keyed(RIGHT).to_table()
versions = keyed(RIGHT).to_table(versioned=True)
WAITING = "70 ms"
"""Longer than any change of the table is late in these logs."""
LOOKUPS = {
    "inner": topology(left.join_table(table)),
    "left": topology(left.left_join_table(table)),
    "by an expression": topology(left.left_join_table(table, by=col("word"))),
    "of a running total": topology(left.left_join_table(keyed(RIGHT).aggregate(r=largest("r")))),
    "as of arrival, inner": topology(left.join_table(table, as_of="arrival")),
    "as of arrival": topology(left.left_join_table(table, as_of="arrival")),
    "as of arrival, by an expression": topology(left.left_join_table(table, by=col("word"), as_of="arrival")),
    "versioned": topology(left.left_join_table(versions)),
    "versioned, by an expression": topology(left.join_table(versions, by=col("word"))),
    "part of a versioned table": topology(
        left.left_join_table(versions.filter(col("r") > 1).with_fields(more=col("r") + 1))
    ),
    "with grace": topology(left.left_join_table(versions, grace=WAITING)),
    "unversioned, with grace": topology(left.left_join_table(table, grace=WAITING)),
    "with grace, by an expression": topology(left.join_table(versions, grace=WAITING, by=col("word"))),
    "history": topology(left.left_join_table(table, history="9 ms")),
    "no history": topology(left.join_table(table, history="0 ms")),
    "long history, by an expression": topology(left.left_join_table(table, by=col("word"), history="40 ms")),
    "history, with grace": topology(left.left_join_table(table, grace=WAITING, history="9 ms")),
}


def table_first(batches: Batches) -> list[Event]:
    """The log as the engine reads it: of each batch the table's changes, then the records."""
    return [event for batch in batches for event in by_partition(batch, first="right")]


@pytest.mark.parametrize("name", LOOKUPS)
@law
@given(log=logs, at=cuts, again=restarts)
def test_records_find_what_the_interpreter_finds_that_reads_the_table_first(
    name: str, log: Sequence[Event], at: Sequence[int], again: frozenset[int]
) -> None:
    batches = [*cut(log, at), closing("left", "right")]
    assert_same(fed(LOOKUPS[name], batches, again), interpreted(LOOKUPS[name], table_first(batches)))


@pytest.mark.parametrize("name", [name for name in LOOKUPS if "grace" in name])
@law
@given(log=logs, one=cuts, other=cuts)
def test_with_a_grace_the_result_does_not_depend_on_where_batches_are_cut(
    name: str, log: Sequence[Event], one: Sequence[int], other: Sequence[int]
) -> None:
    runs = [fed(LOOKUPS[name], [*cut(log, at), closing("left", "right")]) for at in (one, other)]
    assert sorted(runs[0].written, key=str) == sorted(runs[1].written, key=str)


def found(lookup: str, *batches: Sequence[Event]) -> list[object]:
    """The values ``r`` that the records found."""
    return [dict(value)["r"] for _, value, _, _ in fed(LOOKUPS[lookup], batches).written]


def change(at: int, r: int | None, partition: int = 0) -> Event:
    return Event(at, "a", None if r is None else {"r": r}, partition, "right")


def test_of_versions_with_one_time_the_one_of_the_higher_order_is_found_whatever_the_batches() -> None:
    changes = [change(10, 1, partition=1), change(10, 2, partition=0)]
    assert found("versioned", changes, [Event(10)]) == [1]
    assert found("versioned", changes[:1], changes[1:], [Event(10)]) == [1]


def test_a_deleted_row_is_not_found_and_an_older_version_still_is() -> None:
    assert found("versioned", [change(10, 1), change(20, None)], [Event(19), Event(20)]) == [1, None]
    assert found("left", [change(10, 1), change(20, None)], [Event(19), Event(20)]) == [1, None]
    assert found("as of arrival", [change(10, 1), change(20, None)], [Event(19)]) == [None]


@pytest.mark.parametrize(
    "name", ["inner", "left", "by an expression", "versioned", "part of a versioned table", "history", "no history"]
)
@law
@given(log=logs, one=cuts, other=cuts, again=restarts)
def test_of_a_table_that_lies_in_the_log_all_records_find_the_same_wherever_batches_are_cut(
    name: str, log: Sequence[Event], one: Sequence[int], other: Sequence[int], again: frozenset[int]
) -> None:
    changes, records = ([event for event in log if (event.topic == "right") == is_table] for is_table in (True, False))
    runs = [fed(LOOKUPS[name], [changes, *cut(records, at), closing("left", "right")], again) for at in (one, other)]
    assert sorted(runs[0].written, key=str) == sorted(runs[1].written, key=str)


def test_a_change_that_comes_last_and_is_older_is_history_for_the_event_and_the_answer_on_arrival() -> None:
    batches = [change(30, 3), change(10, 1)], [Event(20), Event(40)]
    assert found("left", *batches) == [1, 3]
    assert found("as of arrival", *batches) == [1, 1]


def test_a_version_that_no_record_can_ask_for_any_more_is_forgotten_and_the_newest_before_that_is_not() -> None:
    #  right   10 ── 20 ── 30        left   29: 20 is the newest at 29 - 9; 28 still finds it, and so does 1
    changes = [change(at, at, partition) for at in (10, 20, 30) for partition in (0, 1)]
    fed_ = fed(LOOKUPS["history"], [changes])
    assert fed_.held()["table"] == 3
    fed_.batch([Event(28), Event(28, partition=1)])
    assert fed_.held()["table"] == 3
    fed_.batch([Event(29), Event(29, partition=1)])
    assert fed_.held()["table"] == 2
    fed_.restart()
    fed_.batch([Event(1), Event(20), Event(30)])
    assert [dict(value)["r"] for _, value, _, _ in fed_.written[-3:]] == [20, 20, 30]


def test_a_deletion_is_kept_as_the_newest_so_that_an_older_change_that_comes_late_is_not_found() -> None:
    batches = [[change(10, 1), change(20, None)], [Event(40), Event(40, partition=1)], [change(15, 2)], [Event(20)]]
    assert found("history", *batches) == [None, None, None]


def test_what_a_waiting_record_asks_for_is_kept_until_it_leaves() -> None:
    #  left   8, which waits for 78        right   1 ── 5 ── 50 ── 60: now 51 is the history's end, but 8 asks for 5
    waiting = fed(LOOKUPS["history, with grace"], [[change(1, 1), change(5, 5), Event(8), Event(200, partition=1)]])
    waiting.batch([Event(200), change(50, 50), change(60, 60), change(60, 60, partition=1)])
    assert waiting.written == [] and waiting.held()["table"] == 3
    waiting.batch([change(120, 120), change(120, 120, partition=1)])
    assert [(at, dict(value)["r"]) for _, value, at, _ in waiting.written] == [(8, 5)]
    assert waiting.held()["table"] == 2


def test_a_record_further_behind_its_partition_than_the_history_is_in_the_late_ledger_and_counts() -> None:
    late = fed(LOOKUPS["history"], [[change(0, 0), change(21, 1)], [Event(30), Event(21), Event(20), Event(22, "b")]])
    assert [row[2:] for row in late.late] == [(2, 20, 30, "a", None, None, 0)]
    assert late.fates["left", 0, 2] == "counted"
    assert [dict(value)["r"] for _, value, _, _ in late.written] == [1, 1, 1, None]


def test_a_record_waits_for_the_tables_time_and_keeps_its_place_in_the_log() -> None:
    waiting = fed(LOOKUPS["with grace"], [[Event(10), change(80, 1), change(79, 2, partition=1)]])
    assert waiting.written == [] and waiting.fates["left", 0, 0] == "waiting" and waiting.held()["waiting"] == 1
    waiting.batch([change(80, 2, partition=1)])
    assert len(waiting.written) == 1 and waiting.fates["left", 0, 0] == "counted" and waiting.held()["waiting"] == 0


@pytest.mark.parametrize("kind", ["left", "inner"])
def test_a_lookup_counts_the_rows_that_asked_and_those_that_found_none(kind: str) -> None:
    engine = TopologyEngine(LOOKUPS[kind], {"left": 1, "right": 1})
    row = LogRecord(timestamp_ms=5, key=b"ann", value=b'{"r": 1}')
    asking = [LogRecord(timestamp_ms=6, key=key, value=b'{"l": 1}') for key in (b"ann", b"bob", b"cy")]
    first = engine.batch({"right": [row], "left": asking})
    name = f"{kind} lookup in right"
    assert first.lookups == {name: (3, 2)}
    results = [BatchResult(proof=a_proof(0), kafka_ms=0, delta_ms=0, lookups=first.lookups)] * 2
    both = replace(results[1].after(results[0]), newer_tables={name: "right is newer"})
    assert both.worst_lookup == (name, 6, 4)
    status = progressed(
        a_status(), BatchProgress(batch=1, records=8, records_per_second=1.0, duration_ms=1, lags=None), both
    )
    assert (status.lookup, status.lookup_cause) == (name, "right is newer")
