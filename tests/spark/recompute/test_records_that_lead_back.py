"""Records that lead back, one by one, to sessions that were not carried: told before anything is judged by them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.graph_logs import EVENTS, OUT, Arrival, frames
from tests.spark.recompute.stretches import ParquetFrames, Stretched, between, differences, stretch_by_stretch, whole

from recount.audit.topologies.identity import identity_of
from recount.core.aggregates import count
from recount.core.expressions import col
from recount.core.topology import Topology, stream
from recount.core.windows import session
from recount.recompute.graph.carrying import NotIncremental
from recount.recompute.graph.frontiers import BatchEnds
from recount.recompute.graph.recomputed import recomputed

pytestmark = pytest.mark.usefixtures("tiny")
SESSIONS = Topology(
    name="sessions",
    sinks=[
        stream(EVENTS)
        .select_key(who=col("who"))
        .windowed_by(session("5 ms", grace="3 ms"))
        .aggregate(n=count())
        .emit_final()
        .to(OUT)
    ],
)
BEFORE = [78, 89, 100]
"""Carried at 100 are 100 and 89, which a record at 92 or later could join; 78 is more than two gaps before 89."""


def at(timestamp_ms: int, who: str = "a") -> Arrival:
    value = {"who": who, "n": 1}
    return Arrival(topic="events", partition=0, key=who, value=value, timestamp_ms=timestamp_ms)


def stretched(spark: SparkSession, after: Sequence[Arrival]) -> Stretched:
    log = [*map(at, BEFORE), *after, at(1_000, "z")]
    batches = [
        BatchEnds(ends={("events", 0): number}, awake=frozenset({("events", 0)})) for number in range(1, len(log) + 1)
    ]
    return Stretched(
        topology=SESSIONS,
        logs=frames(spark, [log], ["events"]),
        batches=batches,
        identities=[identity_of(node) for node in SESSIONS.written],
        look_back_ms=0,
    )


def test_a_session_may_grow_to_a_gap_before_what_was_carried_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """And the result at 89, which had left, is withdrawn though it was closed for longer than the look back."""
    one = stretched(spark, [at(92, "b"), at(92), at(87), at(84)])
    expected = whole(spark, one)
    assert sum(key[:2] == ("a", 84) for key, *_ in expected.rows["out"]) == 1
    assert not differences(stretch_by_stretch(spark, one, [len(BEFORE)], tmp_path), expected, SESSIONS)


@pytest.mark.parametrize("after", [[at(92), at(87), at(83)], [at(92, "b"), at(91, "b")]], ids=["carried", "new"])
def test_a_chain_of_records_further_back_than_that_is_told(
    spark: SparkSession, tmp_path: Path, after: list[Arrival]
) -> None:
    with pytest.raises(NotIncremental, match="lead back"):
        stretch_by_stretch(spark, stretched(spark, after), [len(BEFORE)], tmp_path)


def test_without_lateness_such_records_are_beyond_the_look_back(spark: SparkSession, tmp_path: Path) -> None:
    assert beyond(spark, [at(92), at(87), at(84), at(83)], tmp_path) == [83, 84, 87]


def beyond(spark: SparkSession, after: Sequence[Arrival], folder: Path) -> list[int]:
    """What comes to a second stretch, without lateness, too late for what was carried to it."""
    one, carried, found = stretched(spark, after), None, []
    for first, last in ((0, len(BEFORE)), (len(BEFORE), len(one.batches))):
        logs = {topic: between(log, topic, one.batches, first, last) for topic, log in one.logs.items()}
        done = recomputed(
            spark, SESSIONS, logs, lateness=False, batches=one.batches[first:last], carried=carried, look_back_ms=0
        )
        found += [row["timestamp_ms"] for row in done.beyond.collect()]
        if carried is None:
            for name, frame in done.kept().items():
                frame.write.parquet(str(folder / name))
            carried = ParquetFrames(spark, folder)
        done.release()
    return sorted(found)
