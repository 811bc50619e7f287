"""Sessions that left in one stretch of a log and change in the next: in sinks, and in what is made of them below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.graph_logs import EVENTS, Arrival, frames
from tests.spark.recompute.stretches import ParquetFrames, Stretched, between, differences, stretch_by_stretch, whole

from recount.audit.compare.identity import identity_of
from recount.declare.aggregates import count, largest, total
from recount.declare.expressions import col
from recount.declare.flow import RecordStream
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import Windows, all_time, session, sliding, tumbling
from recount.recompute.operators.frontiers import BatchEnds
from recount.recompute.operators.recomputed import recomputed

SESSION = session("5 ms", grace="3 ms", reach="12 ms")
COUNTED = stream(EVENTS).select_key(who=col("who")).windowed_by(SESSION).aggregate(n=count())
BELOW: dict[str, Callable[[RecordStream], RecordStream]] = {
    "a filter": lambda sessions: sessions.filter(col("n") < 5),
    "windows": lambda sessions: summed(sessions.with_fields(m=col("n") + 1), tumbling("10 ms", grace="0 ms")),
    "sliding windows": lambda sessions: summed(sessions, sliding("30 ms", grace="0 ms")),
    "sessions": lambda sessions: summed(sessions, session("20 ms", grace="0 ms", reach="30 ms")),
    "windows over windows": lambda sessions: summed(
        summed(sessions, tumbling("10 ms", grace="0 ms")).filter(col("n") > 1), tumbling("40 ms", grace="0 ms")
    ),
    "all time": lambda sessions: (
        sessions.windowed_by(all_time()).aggregate(n=total("n"), most=largest("n")).emit_each_batch()
    ),
}
BEFORE = [74, 75, 100]
"""At 100 the session [74, 75] has left, and is carried: 80 can still join it."""


def summed(results: RecordStream, windows: Windows) -> RecordStream:
    return results.windowed_by(windows).aggregate(n=total("n"), most=largest("n"), rows=count()).emit_final()


def at(timestamp_ms: int, who: str | None = "a") -> Arrival:
    value = {"who": who, "n": 1}
    return Arrival(topic="events", partition=0, key=who, value=value, timestamp_ms=timestamp_ms)


def stretched(spark: SparkSession, after: Sequence[Arrival], flows: Mapping[str, RecordStream]) -> Stretched:
    sinks = [flow.to(Topic(name=name.replace(" ", "-"), key="id")) for name, flow in flows.items()]
    topology = Topology(name="sessions", sinks=sinks)
    log = [*map(at, BEFORE), *after, at(1_000, "z"), at(2_000, "z")]
    batches = [
        BatchEnds(ends={("events", 0): number}, awake=frozenset({("events", 0)})) for number in range(1, len(log) + 1)
    ]
    return Stretched(
        topology=topology,
        logs=frames(spark, [log], ["events"]),
        batches=batches,
        identities=[identity_of(node) for node in topology.written],
        look_back_ms=0,
    )


@pytest.mark.thorough
def test_a_session_that_had_left_is_joined_in_the_next_stretch(spark: SparkSession, tmp_path: Path) -> None:
    """The log begins with what is made of [74, 75] alone, which is taken back."""
    flows = {name: below(COUNTED.emit_final()) for name, below in BELOW.items()}
    one = stretched(spark, [at(92), at(87), at(82), at(80)], flows)
    expected = whole(spark, one)
    assert not differences(stretch_by_stretch(spark, one, [len(BEFORE)], tmp_path), expected, one.topology)


@pytest.mark.parametrize("cut", [len(BEFORE), len(BEFORE) + 2])
def test_records_without_the_key_in_one_stretch_change_nothing_of_what_is_carried(
    spark: SparkSession, tmp_path: Path, cut: int
) -> None:
    """Before the cut or behind it: stream times are found in another way where there is such a record."""
    flows = {"sessions": COUNTED.emit_final(), "a filter": BELOW["a filter"](COUNTED.emit_final())}
    one = stretched(spark, [at(92), at(120, None), at(87), at(82), at(80)], flows)
    expected = whole(spark, one)
    assert not differences(stretch_by_stretch(spark, one, [cut], tmp_path), expected, one.topology)


def test_without_lateness_what_is_out_of_reach_is_beyond_the_look_back(spark: SparkSession, tmp_path: Path) -> None:
    one, carried, found = stretched(spark, [at(92), at(87), at(80), at(79)], {"out": COUNTED.emit_final()}), None, []
    for first, last in ((0, len(BEFORE)), (len(BEFORE), len(one.batches))):
        logs = {topic: between(log, topic, one.batches, first, last) for topic, log in one.logs.items()}
        done = recomputed(
            spark, one.topology, logs, lateness=False, batches=one.batches[first:last], carried=carried, look_back_ms=0
        )
        found += [row["timestamp_ms"] for row in done.beyond.collect()]
        if carried is None:
            for name, frame in done.kept().items():
                frame.write.parquet(str(tmp_path / name))
            carried = ParquetFrames(spark, tmp_path)
        done.release()
    assert found == [79]
