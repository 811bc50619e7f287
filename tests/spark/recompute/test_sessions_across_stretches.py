"""Sessions that left in one stretch of a log and change in the next: in sinks, and in what is made of them below."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.graph_logs import EVENTS, OUT, Arrival, frames
from tests.spark.recompute.stretches import (
    SIDES,
    ParquetFrames,
    Stretched,
    between,
    differences,
    stretch_by_stretch,
    whole,
)
from tests.spark.recompute.test_graph import IDLE_JOINS, idling, one_by_one, sides

from recount.audit.compare.identity import identity_of
from recount.declare.aggregates import count, largest, total
from recount.declare.expressions import Expression, col
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
        found += [row["timestamp_ms"] for row in done.ledgers["beyond"].rows()]
        if carried is None:
            for name, frame in done.kept().items():
                pq.write_table(frame.arrow(), tmp_path / name)
            carried = ParquetFrames(tmp_path)
        done.release()
    assert found == [79]


CUTS = {"outer": 110, "windows on the left": 42, "windows on the right": 150}
"""The batches of the joins after which the next brings the first partner of a row that has left."""


@pytest.mark.parametrize("name", CUTS)
def test_what_left_alone_is_taken_back_in_the_stretch_that_brings_its_partner(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """Without lateness, in each sink; with it the row stays, and the stretches name the partners that the log names."""
    flow, partitions = IDLE_JOINS[name]
    below = flow, flow.filter(col("what").is_null()).select("what").select_key(of=col("what"))
    sinks = [one.to(replace(OUT, name=f"out-{number}")) for number, one in enumerate(below)]
    topology = Topology(name="law", sinks=sinks)
    log, batches, _ = idling(topology, partitions, random.Random(1))
    raw, identities = frames(spark, [log], ["events", "others"]), [identity_of(node) for node in topology.written]
    for lateness in (False, True):
        one = Stretched(
            topology=topology,
            logs=raw,
            batches=batches,
            identities=identities,
            look_back_ms=1_000_000,
            lateness=lateness,
            sides=(*SIDES, "unread"),
        )
        (folder := tmp_path / str(lateness)).mkdir()
        found = stretch_by_stretch(spark, one, [CUTS[name]], folder)
        assert not differences(found, whole(spark, one), topology)
        assert bool(found.taken_back) != lateness


def test_the_partner_is_named_where_more_is_made_of_what_left_alone_than_can_be_taken_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The window [0, 10) counts the row of 1 ms that left alone before the cut; its partner comes behind it."""
    at = [("events", "a", 1), ("events", "z", 90), ("others", "z", 90), ("others", "a", 2), ("events", "z", 95)]
    log = [Arrival(topic=t, partition=0, key=k, value={"n": 1, "what": 1}, timestamp_ms=ms) for t, k, ms in at]
    flow = sides[0].left_join(sides[1], before="5 ms", after="5 ms", grace="0 ms")
    counted = flow.windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(n=count()).emit_final()
    for below, named in ((flow, []), (counted, [("others", 0, 1, 2)])):
        topology = Topology(name="law", sinks=[below.to(OUT)])
        one = Stretched(
            topology=topology,
            logs=frames(spark, [log], ["events", "others"]),
            batches=one_by_one(log, ["events", "others"]),
            identities=[identity_of(node) for node in topology.written],
            look_back_ms=1_000,
            lateness=False,
            sides=("beyond",),
        )
        (folder := tmp_path / str(len(named))).mkdir()
        found = stretch_by_stretch(spark, one, [3], folder)
        assert [row[:4] for row in found.sides["beyond"]] == named
        assert found.taken_back == 1 - len(named)


@pytest.mark.parametrize("key", [col("rows") * 0, col("rows")])
def test_windows_under_another_key_are_said_again_whole_after_a_late_record(
    spark: SparkSession, tmp_path: Path, key: Expression
) -> None:
    """Results of two windows share a row's key and window, and one of them leaves it; the other stays as it was."""
    at = [("a", 1), ("b", 2), ("z", 90), ("a", 3), ("z", 95)]
    log = [Arrival(topic="events", partition=0, key=k, value={"n": 1, "what": 1}, timestamp_ms=ms) for k, ms in at]
    counted = sides[0].windowed_by(tumbling("10 ms", grace="0 ms")).aggregate(rows=count()).emit_final()
    topology = Topology(name="law", sinks=[counted.select_key(of=key).to(OUT)])
    one = Stretched(
        topology=topology,
        logs=frames(spark, [log], ["events"]),
        batches=one_by_one(log, ["events"]),
        identities=[identity_of(node) for node in topology.written],
        look_back_ms=1_000,
        lateness=False,
        sides=("beyond",),
    )
    expected = whole(spark, one)
    assert expected.rows["out"].total() == 2
    assert not differences(stretch_by_stretch(spark, one, [3], tmp_path), expected, topology)
