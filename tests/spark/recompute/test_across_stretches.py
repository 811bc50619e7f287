"""Rows of one stretch of a log that the next one changes where nothing is late."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.graph_logs import OUT, Arrival, frames
from tests.spark.recompute.stretches import SIDES, Stretched, differences, stretch_by_stretch, whole
from tests.spark.recompute.test_graph import IDLE_JOINS, idling, one_by_one, sides

from recount.audit.compare.identity import identity_of
from recount.declare.aggregates import count
from recount.declare.expressions import Expression, col
from recount.declare.topology import Topology
from recount.declare.windows import tumbling

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
