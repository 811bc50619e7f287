"""Keys that lie in several partitions, as the cause of a difference names them."""

from __future__ import annotations

from pyspark.sql import SparkSession
from tests.spark.recompute.graph_logs import EVENTS, OUT, Arrival, frames

from recount.audit.compare.differences import with_partitions
from recount.audit.explain.causes import OUTPUT
from recount.certificate.finding import Difference
from recount.declare.operators.nodes import KEY
from recount.declare.topology import Topology, stream
from recount.recompute.operators.recomputed import recomputed

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
