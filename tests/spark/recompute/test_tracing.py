"""Late records are followed to the rows that they change, through every operator, and to no row of another log."""

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.graph_logs import EVENTS, OUT, PARTITIONS, Arrival, frames
from tests.spark.recompute.test_graph import CASES, END_MS, Case

from recount.audit.compare.differences import with_partitions
from recount.audit.explain.causes import OUTPUT
from recount.certificate.finding import Difference
from recount.declare.columns import IS_NULL, ORIGIN
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START
from recount.declare.topology import Topology, stream
from recount.recompute.frames.duck_frames import Frame
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
        reached = Tracing(sides=(truth, complete), records=late).results(sink).rows()
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
    return row[key], row.get(WINDOW_START), row.get(WINDOW_END), row[ORIGIN]


def rows_of(found: Frame, key: str) -> Counter[Any]:
    """Each row with what tells it apart; a deletion is no row."""
    return Counter((identity(row, key), str(row)) for row in found.rows() if not row[IS_NULL])


FIRSTS = Topology(name="firsts", sinks=[stream(EVENTS).deduplicate(KEY, horizon="1 h").select("n").to(OUT)])
WINDOWS = Topology(name="all", sinks=[stream(EVENTS).select("n").to(OUT)])
LOG = [
    Arrival(topic="events", partition=partition, key=key, value={"n": 1}, timestamp_ms=at_ms)
    for partition, key, at_ms in [(1, "b", 1), (2, "k", 1), (0, "k", 2), (2, "k", 3), (1, "b", 4)]
]


def found(key: str | None, kind: str = OUTPUT) -> Difference:
    return Difference(kind=kind, place="topic out", verdict="altered", key=key, cause="another value", evidence=("a",))


def test_a_difference_of_a_key_in_several_partitions_names_them(spark: SparkSession) -> None:
    truth = recomputed(spark, FIRSTS, frames(spark, [LOG], ["events"]))
    try:
        given = [found("k"), found("b"), found("k", "batch ledger"), found(None)]
        told, *others = with_partitions(given, FIRSTS, truth)
        assert told.cause == (
            "another value; this key is in several partitions, whose order counts: first at events-0@0, events-2@0"
        )
        assert told.evidence == ("a", "events-0@0", "events-2@0")
        assert others == given[1:]
        assert with_partitions(given, WINDOWS, truth) == given
    finally:
        truth.release()
