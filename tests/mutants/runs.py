"""What the stream, the interpreter and the recompute say of a scene, to be compared as the audit compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from tests.mutants.scenes import LATEST_MS, Scene
from tests.spark.recompute.graph_logs import Arrival, frames
from tests.unit.spark.engine import NOW_MS, Engine
from tests.unit.spark.topology_engine import TopologyEngine
from tests.unit.spark.topology_runs import engine_rows, interpreter_row, row_of

from recount.audit.topologies.identity import Identity, identity_of
from recount.core.interpreter.driver import TopologyDriver
from recount.core.nodes import KEY, WINDOW_END, WINDOW_START
from recount.core.own_columns import IS_NULL, RESULT_TIME
from recount.recompute.decoding import Limits
from recount.recompute.graph.frontiers import BatchEnds
from recount.recompute.graph.recomputed import recomputed
from recount.spark.columns import TIMESTAMP
from recount.spark.plan import plan_of
from recount.spark.stage import LATE_SCHEMA

Row = tuple[Any, ...]
_BAD = ("topic", "partition", "offset", "timestamp_ms", "reason")
_REJECTED = ("topic", "partition", "offset", TIMESTAMP, "reason")


@dataclass(frozen=True)
class Told:
    """The rows of the sink, the late ledger and the rejected records; ``held_after_ms``: later changes may be held."""

    rows: Counter[Row]
    late: Counter[Row]
    rejected: Counter[Row]
    held_after_ms: int | None = None


def differences(one: Told, other: Told) -> list[str]:
    """The parts in which the stream differs from ``other``; keys that a suppression may still hold are not compared."""
    limit_ms = other.held_after_ms
    held = set() if limit_ms is None else {row[:2] for row in other.rows if row[2] > limit_ms}
    rows = [Counter({row: n for row, n in told.rows.items() if row[:2] not in held}) for told in (one, other)]
    parts = {"rows": rows, "late": [one.late, other.late], "rejected": [one.rejected, other.rejected]}
    return [name for name, (left, right) in parts.items() if left != right]


def by_engine(scene: Scene) -> list[Told]:
    """By the operator graph and, where the topology is a single aggregation, by partial aggregation as well."""
    identity = identity_of(scene.topology.written[0])
    graph = TopologyEngine(scene.topology, scene.partitions)
    rejected: Counter[Row] = Counter()
    for batch in scene.batches:
        by_topic = {topic: [one.record for one in batch if one.topic == topic] for topic in scene.partitions}
        rejected.update(graph.batch(by_topic, now_ms=NOW_MS).rejected.select(_REJECTED).rows())
    node = identity.written
    rows = engine_rows(node, graph.emitted(node.table))
    told = [Told(_that_count(rows, identity), Counter(graph.late.select(list(LATE_SCHEMA)).rows()), rejected)]
    if plan_of(scene.topology) is not None:
        single = Engine(scene.topology, partitions=max(scene.partitions.values()))
        for batch in scene.batches:
            single.batch(*(one.record for one in batch))
        made, late = single.made, single.made["late"].select(list(LATE_SCHEMA)).rows()
        rows = engine_rows(node, single.emitted.with_columns(pl.lit(False).alias(IS_NULL)))
        told.append(
            Told(_that_count(rows, identity), Counter(late), Counter(made["rejected"].select(_REJECTED).rows()))
        )
    return told


def by_interpreter(scene: Scene) -> Told:
    """Batch by batch, each topic in turn, as the engine reads them."""
    identity = identity_of(scene.topology.written[0])
    driver = TopologyDriver(scene.topology, partitions=scene.partitions, wall_clock_ms=NOW_MS)
    for batch in scene.batches:
        with driver.batch():
            for event in sorted(batch, key=lambda one: (one.topic != "versions", one.topic, one.record.partition)):
                record = event.record
                driver.pipe(
                    event.topic,
                    key=record.key,
                    value=record.value,
                    timestamp_ms=record.timestamp_ms,
                    partition=record.partition,
                )
    rows = [interpreter_row(out) for out in driver.outputs(identity.written.topic.name)]
    late = Counter(
        tuple(str(getattr(one, name)) if name == "key" else getattr(one, name) for name in LATE_SCHEMA)
        for one in driver.late
    )
    rejected = Counter(
        (bad.topic, bad.partition, bad.offset, bad.timestamp_ms, bad.reason) for bad in driver.dead_letters
    )
    return Told(_that_count(rows, identity), late, rejected)


def by_recompute(spark: SparkSession, scene: Scene) -> Told:
    """From the raw log, as it was after the last batch."""
    identity = identity_of(scene.topology.written[0])
    log = [
        Arrival(
            topic=event.topic,
            partition=event.record.partition,
            key=event.record.key,
            value=event.record.value,
            timestamp_ms=event.record.timestamp_ms,
        )
        for event in scene.log
    ]
    latest = Limits(starts=[0], latest_ms=[LATEST_MS])
    done = recomputed(
        spark,
        scene.topology,
        frames(spark, [log], sorted(scene.partitions)),
        limits={topic: dict.fromkeys(range(many), latest) for topic, many in scene.partitions.items()},
        batches=_ends(scene),
    )
    try:
        held_ms = None if identity.suppression is None else done.held_after_ms[identity.suppression]
        return Told(
            _rows_of(done.results[identity.written], identity),
            _bag(done.late, *LATE_SCHEMA),
            _bag(done.rejected, *_BAD),
            held_ms,
        )
    finally:
        done.release()


def _ends(scene: Scene) -> list[BatchEnds]:
    ends = {(topic, partition): 0 for topic, many in scene.partitions.items() for partition in range(many)}
    found = []
    for batch in scene.batches:
        for event in batch:
            ends[event.topic, event.record.partition] += 1
        found.append(BatchEnds(ends=dict(ends), awake=frozenset(ends)))
    return found


def _that_count(rows: Iterable[Row], identity: Identity) -> Counter[Row]:
    """Every row, or of those with one key and window the last, unless that is a deletion; without revisions."""
    timed = identity.is_timed
    told = [(key, window, at_ms if timed else 0, 0, cells) for key, window, at_ms, _, cells in rows]
    if not identity.is_latest:
        return Counter(told)
    latest = {row[:2]: row for row in told}
    return Counter(row for row in latest.values() if row[4] is not None)


def _rows_of(frame: DataFrame, identity: Identity) -> Counter[Row]:
    fields: Mapping[str, Any] = identity.written.fields
    found: Sequence[Row] = [
        row_of(
            row[identity.written.key],
            (row[WINDOW_START], row[WINDOW_END]) if WINDOW_START in fields else None,
            row[RESULT_TIME],
            0,
            None if row[IS_NULL] else {name: row[name] for name in fields if name != KEY},
        )
        for row in frame.collect()
    ]
    return _that_count(found, identity)


def _bag(frame: DataFrame, *names: str) -> Counter[Row]:
    return Counter(tuple(row) for row in frame.select(*names).collect())
