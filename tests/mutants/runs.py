"""What the stream, the interpreter and the recompute say of a scene, to be compared as the audit compares."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession
from tests.mutants.scene import Scene
from tests.spark.recompute.graph_logs import Arrival, frames
from tests.unit.engine.topology_engine import TopologyEngine
from tests.unit.engine.topology_runs import engine_rows, interpreter_row, row_of, text_of

from recount.audit.compare.identity import Identity, identity_of
from recount.audit.cut.audited_ledger import Ledger, ledger_faults
from recount.audit.cut.scope import batch_ends, table_ends
from recount.declare.aggregates import SumTooLarge
from recount.declare.columns import IS_NULL, RESULT_TIME, TIMESTAMP
from recount.declare.fingerprint import Declared
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.stage.intake import LATE_SCHEMA
from recount.recompute.frames.duck_database import NotComputable
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.recomputed import recomputed
from recount.reference.topology_driver import TopologyDriver
from recount.tables.ledger import BatchProof, PartitionProof

Row = tuple[Any, ...]
_BAD = ("topic", "partition", "offset", "timestamp_ms", "reason")
_REJECTED = ("topic", "partition", "offset", TIMESTAMP, "reason")


@dataclass(frozen=True, kw_only=True)
class Told:
    """The rows of the sink, the late ledger, the rejected records, and what the batch ledger says wrongly by itself.

    ``gaps``: the keys and windows whose revisions are not 0, 1, 2 and so on, each there once. ``held_after_ms``: later
    changes may be held. ``refused``: a sum was too large for its type.
    """

    rows: Counter[Row] = field(default_factory=Counter)
    late: Counter[Row] = field(default_factory=Counter)
    rejected: Counter[Row] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    gaps: Counter[Row] = field(default_factory=Counter)
    held_after_ms: int | None = None
    refused: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a stream said, and its batch ledger, from which the audit knows what had been read when."""

    told: Told
    ledger: Ledger

    @property
    def reading(self) -> tuple[Any, ...]:
        """All of the ledger that the recompute is told."""
        return tuple(
            (proof.batch_timestamp_ms, *((p.topic, p.partition, p.start, p.end, p.idle) for p in proof.partitions))
            for proof in self.ledger.proofs
        )


def differences(one: Told, other: Told) -> list[str]:
    """The parts in which the stream differs from ``other``; keys that a suppression may still hold are not compared."""
    if one.refused or other.refused:
        return [] if one.refused == other.refused else ["refusal"]
    limit_ms = other.held_after_ms
    held = set() if limit_ms is None else {row[:2] for row in other.rows if row[2] > limit_ms}
    rows, gaps = (
        [Counter({row: n for row, n in bag.items() if row[:2] not in held}) for bag in bags]
        for bags in ((one.rows, other.rows), (one.gaps, other.gaps))
    )
    parts = {
        "rows": rows,
        "late": [one.late, other.late],
        "rejected": [one.rejected, other.rejected],
        "ledger": [one.faults, other.faults],
        "revisions": gaps,
    }
    return [name for name, (left, right) in parts.items() if left != right]


def fingerprint_of(scene: Scene) -> str:
    """By which the audit knows whether the batches were made by the deployed declaration."""
    return Declared.of(scene.topology).fingerprint


def by_engine(scene: Scene, *, restarts: bool = False) -> Run:
    """By the operators of the engine, which ``restarts`` before every second batch."""
    return _run(scene, _Graph(scene, restarts))


class _Graph:
    def __init__(self, scene: Scene, restarts: bool) -> None:
        self.scene, self.restarts, self.rejected = scene, restarts, Counter[Row]()
        self.engine = TopologyEngine(scene.topology, scene.partitions)

    def batch(self, number: int) -> PartitionClock:
        if self.restarts and number % 2:
            self.engine.restart()
        batch = self.scene.batches[number]
        by_topic = {topic: [one.record for one in batch if one.topic == topic] for topic in self.scene.partitions}
        computed = self.engine.batch(by_topic, now_ms=self.scene.time_ms(number))
        self.rejected.update(computed.rejected.select(_REJECTED).rows())
        return computed.after

    def told(self, identity: Identity) -> Told:
        rows = list(engine_rows(identity.written, self.engine.emitted(identity.written.table)))
        late = Counter(self.engine.late.select(list(LATE_SCHEMA)).rows())
        return Told(rows=_that_count(rows, identity), late=late, rejected=self.rejected, gaps=_gaps(rows, identity))


def _run(scene: Scene, engine: _Graph) -> Run:
    proofs: list[BatchProof] = []
    try:
        for number in range(len(scene.batches)):
            clock = engine.batch(number)
            proofs.append(_proof(scene, number, tuple(clock.partitions.values()), clock.frontier_ms))
        told = engine.told(identity_of(scene.topology.written[0]))
    except SumTooLarge:
        return Run(told=Told(refused=True), ledger=_as_planned(scene))
    found = ledger_faults(None, tuple(proofs), scene.topology)
    faults = Counter(f"{fault.place}: {fault.verdict}" for fault in found)
    return Run(told=replace(told, faults=faults), ledger=Ledger(tuple(proofs)))


def _as_planned(scene: Scene) -> Ledger:
    """What a stream would have read had it not stopped."""
    ends = {(topic, partition): 0 for topic, many in scene.partitions.items() for partition in range(many)}
    proofs = []
    for number, batch in enumerate(scene.batches):
        starts = dict(ends)
        for event in batch:
            ends[event.topic, event.record.partition] += 1
        parts = tuple(
            PartitionProof(topic=topic, partition=p, start=starts[topic, p], end=end)
            for (topic, p), end in ends.items()
        )
        proofs.append(_proof(scene, number, parts, None))
    return Ledger(tuple(proofs))


def _proof(scene: Scene, number: int, partitions: tuple[PartitionProof, ...], frontier_ms: int | None) -> BatchProof:
    return BatchProof(
        stream=scene.topology.name,
        generation=0,
        batch=number,
        checkpoint_id="scene",
        lease_epoch=1,
        batch_timestamp_ms=scene.time_ms(number),
        partitions=partitions,
        frontier_ms=frontier_ms,
    )


def by_interpreter(scene: Scene) -> Told:
    """Batch by batch, each topic in turn, as the engine reads them."""
    identity = identity_of(scene.topology.written[0])
    driver = TopologyDriver(scene.topology, partitions=scene.partitions)
    read_ms: dict[tuple[str, int], int] = {}
    try:
        for number, batch in enumerate(scene.batches):
            driver.wall_clock_ms = scene.time_ms(number)
            with driver.batch():
                for event in sorted(batch, key=lambda one: (one.topic not in _TABLES, one.topic, one.record.partition)):
                    record = event.record
                    read_ms[event.topic, record.partition] = scene.time_ms(number)
                    driver.pipe(
                        event.topic,
                        key=record.key,
                        value=record.value,
                        timestamp_ms=record.timestamp_ms,
                        partition=record.partition,
                        headers=record.headers,
                    )
            for place, at_ms in read_ms.items():
                if scene.time_ms(number) - at_ms >= scene.topology.idle_after_ms:
                    driver.idle(*place)
    except SumTooLarge:
        return Told(refused=True)
    rows = [interpreter_row(out) for out in driver.outputs(identity.written.topic.name)]
    late = Counter(
        tuple(text_of(one.key) if name == "key" else getattr(one, name) for name in LATE_SCHEMA) for one in driver.late
    )
    rejected = Counter(
        (bad.topic, bad.partition, bad.offset, bad.timestamp_ms, bad.reason) for bad in driver.dead_letters
    )
    return Told(rows=_that_count(rows, identity), late=late, rejected=rejected, gaps=_gaps(rows, identity))


_TABLES = ("table", "versions")


def by_recompute(spark: SparkSession, scene: Scene, ledger: Ledger) -> Told:
    """From the raw log, as it was after the last batch; of the ``ledger`` it knows what the audit tells it."""
    identity = identity_of(scene.topology.written[0])
    log = [
        Arrival(
            topic=event.topic,
            partition=event.record.partition,
            key=event.record.key,
            value=event.record.value,
            timestamp_ms=event.record.timestamp_ms,
            headers=event.record.headers,
        )
        for event in scene.log
    ]
    done = recomputed(
        spark,
        scene.topology,
        frames(spark, [log], sorted(scene.partitions)),
        limits={topic: ledger.limits(topic, scene.topology.max_future_ms, {}) for topic in scene.partitions},
        table_ends=table_ends(ledger, scene.topology),
        batches=batch_ends(ledger),
    )
    try:
        held_ms = None if identity.suppression is None else done.held_after_ms[identity.suppression]
        return Told(
            rows=_rows_of(done.results[identity.written], identity),
            late=_bag(done.late, *LATE_SCHEMA),
            rejected=_bag(done.ledgers["rejected"], *_BAD),
            held_after_ms=held_ms,
        )
    except NotComputable as error:
        if "a sum of " not in str(error):
            raise
        return Told(refused=True)
    finally:
        done.release()


def _that_count(rows: Iterable[Row], identity: Identity) -> Counter[Row]:
    """Every row, or of those with one key and window the last, unless that is a deletion; without revisions."""
    timed = identity.is_timed
    told = [(key, window, at_ms if timed else 0, 0, cells) for key, window, at_ms, _, cells in rows]
    if not identity.is_latest:
        return Counter(told)
    latest = {row[:2]: row for row in told}
    return Counter(row for row in latest.values() if row[4] is not None)


def _gaps(rows: Iterable[Row], identity: Identity) -> Counter[Row]:
    """The results whose revisions do not count up from 0, where every revision leaves."""
    revisions: dict[Row, list[int]] = {}
    for key, window, _, revision, _ in rows if identity.is_dense else ():
        revisions.setdefault((key, window), []).append(revision)
    return Counter(place for place, found in revisions.items() if sorted(found) != list(range(len(found))))


def _rows_of(frame: Frame, identity: Identity) -> Counter[Row]:
    fields: Mapping[str, Any] = identity.written.fields
    found: Sequence[Row] = [
        row_of(
            row[identity.written.key],
            (row[WINDOW_START], row[WINDOW_END]) if WINDOW_START in fields else None,
            row[RESULT_TIME],
            0,
            None if row[IS_NULL] else {name: row[name] for name in fields if name != KEY},
        )
        for row in frame.rows()
    ]
    return _that_count(found, identity)


def _bag(frame: Frame, *names: str) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in frame.select(*names).rows())
