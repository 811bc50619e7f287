"""What a recompute carries of tables is what its lookups can still ask for, and enough of it."""

import random
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.recompute.graph_logs import EVENTS, OUT, USERS, Arrival, Log, frames, table_ends
from tests.spark.recompute.stretches import ParquetFrames, Stretched, differences, stretch_by_stretch, whole
from tests.spark.recompute.test_graph import one_by_one

from recount.audit.compare.identity import identity_of
from recount.declare.columns import RESULT_TIME
from recount.declare.flow import RecordStream
from recount.declare.topology import Topology, stream, table
from recount.recompute.operators.recomputed import recomputed

TOPICS = ["events", "users"]
STEP_MS, STEPS, LATE_MS = 5, 48, 40
"""So a record is late by up to eight steps; a table has a version for every second step or so of each key."""
CUTS = [50, 75]


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


def stretched(spark: SparkSession, flow: RecordStream, log: Log, look_back_ms: int) -> Stretched:
    topology = Topology(name="law", sinks=[flow.to(OUT)])
    return Stretched(
        topology=topology,
        logs=frames(spark, [log], TOPICS),
        batches=one_by_one(log, TOPICS),
        identities=[identity_of(topology.written[0])],
        look_back_ms=look_back_ms,
        table_ends=table_ends([log]),
    )


def carried_versions(folder: Path) -> int:
    """How many versions were kept at the last cut."""
    number: int = pq.read_table(max(folder.glob("*/*-table"))).num_rows
    return number


@pytest.mark.parametrize(
    ("grace", "look_back_ms", "lateness"),
    [(None, 0, True), ("30 ms", 0, True), (None, LATE_MS, False), ("30 ms", LATE_MS, False)],
)
def test_stretches_together_are_the_whole_log_and_carry_the_versions_of_the_history(
    spark: SparkSession, tmp_path: Path, grace: str | None, look_back_ms: int, lateness: bool
) -> None:
    one = replace(stretched(spark, lookup("10 ms", grace), log_of(1), look_back_ms), lateness=lateness)
    assert not differences(stretch_by_stretch(spark, one, CUTS, tmp_path), whole(spark, one), one.topology)
    assert 2 < carried_versions(tmp_path) < 30


def test_the_oldest_version_that_can_be_asked_for_is_carried_and_none_before_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The events are at 29 ms, so that one of 1 ms asks as of 20 ms."""
    changes = [("users", 0, {"tier": f"{at_ms}"}, at_ms) for at_ms in range(15, 31)]
    events = [("events", partition, {"n": 1}, at_ms) for partition, at_ms in ((0, 29), (1, 29), (0, 1))]
    log = [Arrival(topic=t, partition=p, key="u", value=v, timestamp_ms=at_ms) for t, p, v, at_ms in changes + events]
    one = stretched(spark, lookup("9 ms"), log, 0)
    found = stretch_by_stretch(spark, one, [18], tmp_path)
    assert not differences(found, whole(spark, one), one.topology)
    assert carried_versions(tmp_path) == 11


def test_without_a_history_all_versions_are_carried(spark: SparkSession, tmp_path: Path) -> None:
    one = stretched(spark, lookup(None), log_of(1), 0)
    stretch_by_stretch(spark, one, CUTS, tmp_path)
    log = log_of(1)[: CUTS[-1]]
    versions = {(change.key, change.timestamp_ms) for change in log if change.topic == "users"}
    assert carried_versions(tmp_path) == len(versions)


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
    one = replace(stretched(spark, lookup("0 ms"), log, 100), lateness=lateness)
    found = stretch_by_stretch(spark, one, [5, 7], tmp_path)
    assert not differences(found, whole(spark, one), one.topology)
    assert carried_versions(tmp_path) == (3 if lateness else 1)
    since = {"events": 4, "users": 3}
    done = recomputed(
        spark,
        one.topology,
        {
            topic: replace(raw, frame=raw.frame.where(F.col("offset") >= since[topic]))
            for topic, raw in one.logs.items()
        },
        lateness=lateness,
        batches=one.batches[7:],
        table_ends=one.table_ends,
        carried=ParquetFrames(tmp_path / "1"),
        look_back_ms=100,
    )
    [again] = done.again.values()
    tiers = {row[RESULT_TIME]: row["tier"] for row in again.rows()}
    assert tiers == {
        **({25: "tin", 26: "gold"} if lateness else {25: "iron", 26: "iron"}),
        27: "iron",
        60: "iron",
        61: "iron",
    }
    done.release()
