"""The recompute is the interpreter where topics have plain values: on random logs, in both its ways."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.recompute.conftest import LogRecord, MemoryLog, told
from tests.spark.recompute.drawn_logs import by_interpreter, by_recompute, identities_of
from tests.spark.recompute.graph_logs import Arrival
from tests.spark.recompute.test_drawn_topologies import differences
from tests.unit.engine.plain_topics import FLOWS, plain_log, plain_topology
from tests.unit.engine.random_flows import TABLES
from tests.unit.engine.random_topologies import Drawn

from recount.declare.columns import IS_LATE
from recount.declare.operators.nodes import KEY, WINDOW_START
from recount.recompute.single_flow import Flow
from recount.recompute.single_recompute import recompute, results


def log_of(drawn: Drawn, name: str) -> list[Arrival]:
    """A long random log, tables first."""
    events = [event for cut in plain_log(drawn, random.Random(name), batches=25) for event in cut.events]
    log = [
        Arrival(
            topic=event.topic,
            partition=event.record.partition,
            key=event.record.key,
            value=event.record.value,
            timestamp_ms=event.record.timestamp_ms,
        )
        for event in events
    ]
    return sorted(log, key=lambda one: one.topic not in TABLES)


@pytest.mark.parametrize("name", FLOWS)
def test_the_recompute_is_the_interpreter_on_plain_values(spark: SparkSession, name: str) -> None:
    drawn = plain_topology(name)
    log, identities = log_of(drawn, name), identities_of(drawn)
    found = by_recompute(spark, drawn, log, identities, is_over=True, added={})
    expected = by_interpreter(drawn, log, identities, is_over=True, added={})
    assert len(expected.rows["out"]) > 1 and expected.rejected
    assert not differences(found, expected)


def test_the_recompute_of_a_single_aggregation_is_the_interpreters(spark: SparkSession) -> None:
    drawn = plain_topology("windows of times")
    log = [one for one in log_of(drawn, "single") if one.value is None or len(one.value) < 3]
    memory = MemoryLog(
        [LogRecord(partition=one.partition, timestamp_ms=0, key=one.key, value=one.value) for one in log]  # type: ignore[arg-type]
    )
    done = recompute(spark, Flow.of(drawn.topology), memory, memory.ranges)
    rows = results(done.partials.where(~F.col(IS_LATE)), done.flow).collect()
    [bag] = by_interpreter(drawn, log, identities_of(drawn), is_over=True, added={}).rows.values()
    cells = [(key, window[0], {name: cell for name, _, cell in value}) for key, window, _, _, value in bag]
    assert told(rows, KEY, WINDOW_START, "n", "at") == sorted((key, at, row["n"], row["at"]) for key, at, row in cells)
    assert len(cells) > 3
