"""What a recompute carries of tables is what its lookups can still ask for, and enough of it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.recompute.graph_logs import EVENTS, OUT, USERS, Arrival, Log, frames, table_ends
from tests.spark.recompute.stretches import Stretched, differences, stretch_by_stretch, whole
from tests.spark.recompute.test_graph import one_by_one

from recount.audit.topologies.identity import identity_of
from recount.core.flow import RecordStream
from recount.core.topology import Topology, stream, table

pytestmark = pytest.mark.usefixtures("tiny")
TOPICS = ["events", "users"]
STEP_MS, STEPS, LATE_MS = 5, 48, 40
CUTS = [50, 75]
BEFORE_LAST = "1/*-table"
"""The frames in which the second stretch kept the table."""


def log_of(seed: int) -> Log:
    """Events and changes of a table in turn, of two keys; each up to 40 ms late in its partition."""
    dice = random.Random(seed)
    log = []
    for step in range(STEPS):
        for topic in TOPICS:
            at_ms = LATE_MS + step * STEP_MS - dice.choice([0, 0, 0, dice.randrange(LATE_MS)])
            partition = dice.randrange(2)
            value = {"n": step} if topic == "events" else {"tier": f"{step}"}
            log.append(Arrival(topic=topic, partition=partition, key="uv"[partition], value=value, timestamp_ms=at_ms))
    return log


def lookup(history: str | None, grace: str | None = None) -> RecordStream:
    return stream(EVENTS).select("n").left_join_table(table(USERS), history=history, grace=grace)


def stretched(spark: SparkSession, flow: RecordStream, seed: int, look_back_ms: int) -> Stretched:
    topology, log = Topology(name="law", sinks=[flow.to(OUT)]), log_of(seed)
    return Stretched(
        topology=topology,
        logs=frames(spark, [log], TOPICS),
        batches=one_by_one(log, TOPICS),
        identities=[identity_of(topology.written[0])],
        look_back_ms=look_back_ms,
        table_ends=table_ends([log]),
    )


def carried_versions(spark: SparkSession, folder: Path) -> int:
    [kept] = folder.glob(BEFORE_LAST)
    return spark.read.parquet(str(kept)).count()


@pytest.mark.parametrize("lateness", [True, False])
@pytest.mark.parametrize(("history", "grace"), [("10 ms", None), ("10 ms", "30 ms")])
def test_stretches_together_are_the_whole_log_and_carry_the_versions_of_the_history(
    spark: SparkSession, tmp_path: Path, history: str, grace: str | None, lateness: bool
) -> None:
    one = replace(stretched(spark, lookup(history, grace), 1, LATE_MS), lateness=lateness)
    assert not differences(stretch_by_stretch(spark, one, CUTS, tmp_path), whole(spark, one), one.topology)
    assert 2 < carried_versions(spark, tmp_path) < 30


def test_without_a_history_all_versions_are_carried(spark: SparkSession, tmp_path: Path) -> None:
    one = stretched(spark, lookup(None), 1, 0)
    stretch_by_stretch(spark, one, CUTS, tmp_path)
    log = log_of(1)[: CUTS[-1]]
    versions = {(change.key, change.timestamp_ms) for change in log if change.topic == "users"}
    assert carried_versions(spark, tmp_path) == len(versions)


@pytest.mark.parametrize("lateness", [True, False])
def test_a_version_stays_while_a_record_that_is_looked_up_again_had_not_read_what_replaced_it(
    spark: SparkSession, tmp_path: Path, lateness: bool
) -> None:
    """gold is read after the event of 25 ms, and is older than all that can be asked for; again the event finds tin."""
    told = [
        *(("users", "tin", 1), ("events", "", 25), ("users", "gold", 10), ("events", "", 26), ("users", "iron", 20)),
        *(("events", "", 27), ("events", "", 60), ("events", "", 61)),
    ]
    values = {"events": {"n": 1}}
    log = [
        Arrival(topic=topic, partition=0, key="u", value=values.get(topic, {"tier": tier}), timestamp_ms=at_ms)
        for topic, tier, at_ms in told
    ]
    one = replace(
        stretched(spark, lookup("0 ms"), 1, 100),
        logs=frames(spark, [log], TOPICS),
        batches=one_by_one(log, TOPICS),
        table_ends=table_ends([log]),
        lateness=lateness,
    )
    found = stretch_by_stretch(spark, one, [5, 7], tmp_path)
    assert not differences(found, whole(spark, one), one.topology)
    assert carried_versions(spark, tmp_path) == (3 if lateness else 1)
