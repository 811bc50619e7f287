"""When results leave, and with which revision.

One topic of two partitions, windows of 10 s with a grace of 2 s::

    frontier   0 ....... 10 s .. 12 s ........ 22 s
    [0, 10)    open .............| final
    [10, 20)              open ................| final
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from tests.unit.engine.engine import NOW_MS, Engine, LogRecord

from recount.declare.aggregates import count
from recount.declare.columns import REVISION
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling

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


def test_a_final_result_leaves_once() -> None:
    engine = Engine(FINAL)
    first = engine.batch(click(1), click(15))
    assert results(first) == [("ann", 0, 1, 0)]
    assert results(engine.batch(click(16))) == []
    assert results(engine.batch(click(25))) == [("ann", 10, 2, 0)]


def test_a_window_that_opens_and_closes_within_one_batch_is_emitted() -> None:
    assert results(Engine(FINAL).batch(click(1), click(40), click(41))) == [("ann", 0, 1, 0)]


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
