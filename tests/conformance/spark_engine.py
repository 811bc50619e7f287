"""Conformance cases through the Spark engine: its map stage in Spark, its graph, its state in Delta tables.

Every input record is a micro-batch of its own, and every batch starts from what the ones before it have written: the
cuts that are hardest to get right. Only Kafka is left out; a case says nothing about it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from pyspark.sql import SparkSession
from tests.conformance.cases import Case, Result, topology_of
from tests.conformance.outcome import Outcome, fields_of, key_of, result_of

from recount.declare.columns import IS_NULL, RESULT_TIME, REVISION
from recount.declare.operators.nodes import KEY, WINDOW_END, WINDOW_START
from recount.declare.output import encode_key, encode_value
from recount.declare.topology import Topology, Written
from recount.engine.commit.stream_tables import BatchRows, StreamTables
from recount.engine.exchange.graph_computation import GraphComputation
from recount.engine.exchange.work import Computed
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange, Partition
from recount.reference.record_clock import Output
from recount.reference.records import Fate
from recount.tables.ledger import BatchProof, PartitionProof

_RECORDED_MS = 2**53
"""The recorded time of every batch: no event time is too far ahead of it, and no partition falls idle."""
_INPUT = "topic string, partition int, offset long, timestamp_ms long, key binary, value binary"
_CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
}
_FATES: Mapping[str, Fate] = {
    "counted": "counted",
    "late": "late",
    "deduplicated": "deduplicated",
    "null_value": "null value",
    "null_key": "null key",
    "filtered": "filtered",
    "waiting": "waiting",
    "dead_lettered": "dead-lettered",
}


@dataclass(frozen=True)
class SparkEngine:
    """Runs cases in ``session``."""

    session: SparkSession

    def run(self, case: Case) -> Outcome:
        """Run ``case`` record by record."""
        with tempfile.TemporaryDirectory(prefix="recount-conformance-") as root:
            return _Run(self.session, case, topology_of(case), root).outcome()


@contextmanager
def local_engine() -> Iterator[SparkEngine]:
    """An engine on a local session of its own, which is stopped in the end."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[1]").appName("recount conformance")
    for name, value in _CONFIGURATION.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield SparkEngine(session)
    finally:
        session.stop()


@dataclass
class _Run:
    """One case under way."""

    session: SparkSession
    case: Case
    topology: Topology
    root: str
    ends: dict[Partition, int] = field(init=False)

    def __post_init__(self) -> None:
        self.ends = {(source.topic.name, 0): 0 for source in self.topology.sources}

    def outcome(self) -> Outcome:
        """All records, one after the other."""
        made = [self._batch(index, record) for index, record in enumerate(self.case.input)]
        place_of: dict[tuple[str, int], int] = {}
        sent: dict[str, int] = {}
        for index, record in enumerate(self.case.input):
            place_of[record["topic"], sent.get(record["topic"], 0)] = index
            sent[record["topic"]] = sent.get(record["topic"], 0) + 1
        late = pl.concat([computed.late for computed in made]) if made else pl.DataFrame()
        return Outcome(
            emitted=[self._results(computed) for computed in made],
            fates=[_fate(computed, record) for computed, record in zip(made, self.case.input, strict=True)],
            late_windows=frozenset(
                (place_of[row["topic"], row["offset"]], row[WINDOW_START], row[WINDOW_END])
                for row in late.iter_rows(named=True)
            ),
        )

    def _batch(self, batch: int, record: Mapping[str, Any]) -> Computed:
        computation = GraphComputation(self.topology)
        outputs = {sink.table: computation.output_schema(sink) for sink in computation.sinks}
        tables = StreamTables(self.topology.name, self.root, state=computation.state_schema, outputs=outputs)
        if batch == 0:
            tables.create()
        clock = PartitionClock.after(tables.history.last_before((0, batch)))
        computation.recover(tables, (0, batch), clock)
        place = (record["topic"], 0)
        start = dict(self.ends)
        self.ends[place] += 1
        value = fields_of(self.topology, record)
        row = (
            *place,
            start[place],
            record["ts"],
            encode_key(key_of(record)),
            None if value is None else encode_value(value),
        )
        records = self.session.createDataFrame([row], _INPUT)
        span = BatchRange(batch=batch, timestamp_ms=_RECORDED_MS, start=start, end=dict(self.ends))
        computed = computation.compute(records, span, clock, (0, batch))
        rows = BatchRows(state=computed.state, late=computed.late, rejected=computed.rejected, emitted=computed.emitted)
        tables.append(rows, self._proof(batch, computed))
        return computed

    def _proof(self, batch: int, computed: Computed) -> BatchProof:
        return BatchProof(
            stream=self.topology.name,
            generation=0,
            batch=batch,
            checkpoint_id="conformance",
            lease_epoch=1,
            batch_timestamp_ms=_RECORDED_MS,
            partitions=tuple(computed.after.partitions.values()),
            frontier_ms=computed.after.frontier_ms,
        )

    def _results(self, computed: Computed) -> list[Result]:
        [sink] = self.topology.sinks
        rows = computed.emitted[sink.table]
        return [result_of(self.case, _output(sink, row)) for row in rows.iter_rows(named=True)]


def _output(sink: Written, row: Mapping[str, Any]) -> Output:
    value = {name: row[name] for name in sink.fields if name != KEY}
    return Output(
        key=row[sink.key],
        value=None if row.get(IS_NULL) else value,
        timestamp_ms=row[RESULT_TIME],
        revision=row[REVISION],
        window=(row[WINDOW_START], row[WINDOW_END]) if WINDOW_START in sink.fields else None,
    )


def _fate(computed: Computed, record: Mapping[str, Any]) -> Fate:
    """What became of the one record of a batch."""
    proof: PartitionProof = computed.after.partitions[record["topic"], 0]
    [fate] = [fate for name, fate in _FATES.items() if getattr(proof, name)]
    return fate
