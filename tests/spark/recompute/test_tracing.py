"""Late records are followed to the rows that they change, through every operator, and to no row of another log."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.recompute.graph_logs import PARTITIONS, frames
from tests.spark.recompute.test_graph import CASES, END_MS, Case

from recount.declare.columns import IS_NULL, ORIGIN
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.recompute.operators.recomputed import recomputed
from recount.recompute.operators.tracing import RECORD, Tracing

TRIED = ("regrouped table", "outer join", "first by offset", "first by event time, then sessions")


@pytest.mark.parametrize("case", [one for one in CASES if one.name in TRIED], ids=lambda case: case.name)
def test_a_row_that_lateness_changes_is_reached_by_a_late_record_and_by_none_of_another_log(
    spark: SparkSession, case: Case
) -> None:
    topology, raw = case.topology, frames(spark, case.logs(), case.topics)
    truth = recomputed(spark, topology, raw, frontier_ms=END_MS)
    complete = recomputed(spark, topology, raw, frontier_ms=END_MS, lateness=False, same_logs=truth)
    try:
        late = truth.late.select("topic", "partition", "offset").distinct()
        [sink] = topology.sinks
        reached = Tracing(sides=(truth, complete), records=late).results(sink).collect()
        key = case.flow.node.key
        there, instead = (rows_of(one.result("out"), key) for one in (truth, complete))
        changed = {row[0] for row in (there - instead) | (instead - there)}
        assert changed <= {identity(row, key) for row in reached}
        logs_of = {(row[RECORD]["partition"] // PARTITIONS, str(row[key]).partition(":")[0]) for row in reached}
        # a key says of which log it is, but for keys such as a tier or a number
        assert all(str(log) == said for log, said in logs_of if said.isdigit() and ":" in str(reached[0][key]))
    finally:
        complete.release()
        truth.release()


def identity(row: Any, key: str) -> tuple[Any, ...]:
    said = row.asDict()
    return said[key], said.get(WINDOW_START), said.get(WINDOW_END), said[ORIGIN]


def rows_of(found: DataFrame, key: str) -> Counter[Any]:
    """Each row with what tells it apart; a deletion is no row."""
    return Counter((identity(row, key), str(row)) for row in found.collect() if not row[IS_NULL])
