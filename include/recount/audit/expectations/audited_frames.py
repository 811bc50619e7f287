"""Frames that expectations check, in full size: batches and their records, output tables, compared rows.

No verdict of an audit is in these frames. They know which rows a person has accepted, for those are no failure.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_
from typing import cast

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.audit.carry.store import RECONCILIATION, AuditStore, Run
from recount.audit.compare.conservation import OFFSETS
from recount.audit.compare.fidelity import PLACES, SIDES
from recount.audit.compare.identity import identity_of
from recount.audit.compare.published import DELTA
from recount.audit.cut.audited_ledger import LEDGER, Ledger, Order
from recount.audit.cut.in_force import InForce
from recount.audit.cut.kept_log import log_of, require_kept, sources_of
from recount.audit.findings.finding_register import ROW, AcceptedRow, Source, accepted_corrections, accepted_rows
from recount.certificate.finding import Finding
from recount.declare.columns import AUDIT, BATCH, GENERATION, JUDGED_KEY, ORIGIN
from recount.declare.limits import LEAST_COUNT
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START
from recount.declare.topology import Topology, Written
from recount.kafka.connection import Connection
from recount.kafka.offsets import is_compacted
from recount.recompute.raw_log import SCHEMA as LOG_SCHEMA
from recount.recompute.raw_log import RawLog, in_one_task
from recount.recompute.spark_columns import named
from recount.runtime.settings import Settings
from recount.tables.ledger import BatchProof
from recount.tables.places import AGE_COLUMN, Released, Tables, ageing

_LEDGER_SCHEMA = (
    "generation int, batch long, checkpoint_id string, topic string, partition int, start long, end long, offsets long,"
    " records long, fates long, late long, is_judged boolean, is_accepted boolean, late_limit double, least_count long"
)
_PARTITIONS_SCHEMA = (
    "topic string, partition int, start long, end long, told long, is_accepted boolean, dead_letters_limit double,"
    " least_count long"
)
_ACCEPTED_SCHEMA = ", ".join(
    f"accepted_{name} {kind}" for name, kind in zip(ROW, ("string", "string", "long", "long", "string"), strict=True)
)


@dataclass(frozen=True, kw_only=True)
class AuditedLog:
    """The input of one complete audit; ``accepted`` are the findings that are accepted now."""

    session: SparkSession
    settings: Settings
    topology: Topology
    run: Run
    accepted: Sequence[Finding]

    @property
    def offsets(self) -> int:
        """How many offsets ``raw_log`` reads."""
        return self._judged.offsets

    def batch_ledger(self) -> DataFrame:
        """A row for each partition of each judged batch, and (``is_judged`` false) of the batch before the first."""
        accepted = {place.split(",")[0] for place in self._accepted(LEDGER)}
        rows = [
            (
                *(proof.generation, proof.batch, proof.checkpoint_id, part.topic, part.partition, part.start, part.end),
                *(part.end - part.start, part.records, part.fates, part.late),
                self._is_judged(proof),
                f"batch {proof.generation}/{proof.batch}" in accepted,
                float(self.topology.health.late),
                LEAST_COUNT,
            )
            for proof in self._proofs
            for part in proof.partitions
        ]
        return self.session.createDataFrame(rows, _LEDGER_SCHEMA)

    def raw_log(self) -> DataFrame:
        """The records at the audited offsets; keys and values by their lengths.

        Each partition has one more row, whose ``offset`` is null. ``told`` is how many records of it the ledger tells
        of, null where compaction may have taken some since. Raises ``Terminal`` where records have expired.
        """
        connection, tables = Connection.of(self.settings), Tables(self.settings.data)
        sources = sources_of(connection, tables, self.topology, cast("Source", self.run.source))
        shrinks = {topic for topic, where in sources.items() if where == "kafka" and is_compacted(connection, topic)}
        log = log_of(self.settings, sources, in_tasks=True)
        found = []
        for topic, ranges in self._judged.ranges.items():
            require_kept(connection, tables, topic, ranges, sources[topic])
            raw = log.read(self.session, topic, ranges)
            assert isinstance(raw, RawLog)
            records = raw.frame if raw.reading is None else raw.through(LOG_SCHEMA)
            lengths = [F.length(name).alias(f"{name}_bytes") for name in ("key", "value")]
            found.append(records.select(F.lit(topic).alias("topic"), "partition", "offset", "timestamp_ms", *lengths))
        place = ["topic", "partition", "offset"]
        rejected = delta_frame(self.session, tables.rejected(self.topology.name))
        marks = rejected.select(*place).distinct().withColumn("is_dead_lettered", F.lit(True))
        records = reduce(DataFrame.unionByName, found).join(marks, place, "left")
        partitions = self._partitions(shrinks)
        known = records.join(F.broadcast(partitions), place[:2])
        return known.unionByName(partitions, allowMissingColumns=True).fillna(False, ["is_dead_lettered"])

    def _partitions(self, shrinks: set[str]) -> DataFrame:
        told: Counter[tuple[str, int]] = Counter()
        for proof in self._judged.proofs:
            told.update({(part.topic, part.partition): part.records for part in proof.partitions})
        accepted = set(self._accepted(OFFSETS))
        rows = [
            (
                *(topic, partition, start, end),
                None if topic in shrinks else told[topic, partition],
                f"{topic}-{partition}" in accepted,
                float(self.topology.health.dead_letters),
                LEAST_COUNT,
            )
            for topic, ranges in self._judged.ranges.items()
            for partition, (start, end) in ranges.items()
        ]
        return self.session.createDataFrame(rows, _PARTITIONS_SCHEMA)

    @property
    def _judged(self) -> Ledger:
        judged = tuple(proof for proof in self._proofs if self._is_judged(proof))
        return Ledger(judged) if judged else Ledger(self._proofs).standing_at(self.run.order)

    @cached_property
    def _proofs(self) -> tuple[BatchProof, ...]:
        ledger = Ledger.read(Tables(self.settings.data), self.topology.name, self._since)
        return tuple(proof for proof in ledger.proofs if proof.order <= self.run.order)

    @cached_property
    def _since(self) -> Order | None:
        """The last batch that the audit before has judged."""
        runs = AuditStore(Tables(self.settings.data), self.topology.name).runs()
        return next((run.order for run in runs if run.audit == self.run.seed), None)

    def _is_judged(self, proof: BatchProof) -> bool:
        return self._since is None or proof.order > self._since

    def _accepted(self, kind: str) -> list[str]:
        return [one.difference.place for one in self.accepted if one.difference.kind == kind]


@dataclass(frozen=True, kw_only=True)
class AuditedRows:
    """The results of one complete audit; ``accepted`` are the findings that are accepted now.

    ``removed`` is what the stream may have removed from its tables by now.
    """

    session: SparkSession
    tables: Tables
    topology: Topology
    run: Run
    accepted: Sequence[Finding]
    removed: Released | None = None

    def reconciliation(self) -> DataFrame:
        """A row for each row that the audit judged, see ``audit.compare.fidelity``; ``<side>`` is one text here.

        ``<side>_rows`` are the single ones. ``<place>_is_accepted``: what differs there is.
        """
        path = self.tables.audit(self.topology.name, RECONCILIATION)
        rows = delta_frame(self.session, path).where(F.col(AUDIT) == self.run.audit)
        for side in SIDES:
            text = F.when(F.size(side) > 0, F.array_join(side, "\n"))
            rows = rows.withColumn(f"{side}_rows", F.col(side)).withColumn(side, text)
        row = {name: F.col(name) for name in ROW}
        for place in PLACES:
            marks = accepted_rows(self.topology, self.accepted, place)
            rows = self._marked(rows, f"{place}_is_accepted", marks, row)
        return self._marked(rows, "correction_is_accepted", accepted_corrections(self.accepted), row)

    def output(self, written: Written) -> DataFrame:
        """The sink's table up to the cut, whole, with own columns ``recount_*`` that those of all sinks have alike."""
        identity = identity_of(written)
        rows = delta_frame(self.session, self.tables.output(written.table))
        rows = rows.where(~F.coalesce(_is_after(self.run.order), F.lit(False)))
        is_kept = self._is_kept(written)
        bounds = (WINDOW_START, WINDOW_END)
        none = F.lit(None).cast("long")
        rows = rows.withColumns(
            {
                **{bound: none for bound in bounds if bound not in rows.columns},
                JUDGED_KEY: named(written.key).cast("string"),
                "recount_is_latest": F.lit(identity.is_latest),
                "recount_is_dense": F.lit(identity.is_dense) & is_kept,
                "recount_was_added": F.lit(written.topic.name in InForce.of(self.topology, self.tables.root).added),
            }
        )
        has_origin = not identity.is_latest and ORIGIN in rows.columns
        row = {
            "sink": F.lit(written.topic.name),
            "key": F.col(JUDGED_KEY),
            **{bound: F.col(bound) if identity.has_bounds else none for bound in bounds},
            "origin": F.col(ORIGIN) if has_origin else F.lit(None),
        }
        marks = accepted_rows(self.topology, self.accepted, DELTA)
        return self._marked(rows, "recount_is_accepted", marks, row)

    def _is_kept(self, written: Written) -> Column:
        """Whether the row is one of a key and window of which the stream has removed no revision."""
        found, by = self.removed, ageing(written)
        if found is None or by is None:
            return F.lit(True)
        if by == "table":
            return F.lit(False)
        return F.coalesce(F.col(AGE_COLUMN[by]) >= F.lit(found.before_ms), F.lit(True))

    def _marked(
        self, rows: DataFrame, name: str, accepted: Sequence[AcceptedRow], row: Mapping[str, Column]
    ) -> DataFrame:
        """``rows`` with the column ``name``: whether ``row``, what identifies one of them, is among ``accepted``."""
        if not accepted:
            return rows.withColumn(name, F.lit(False))
        known = self.session.createDataFrame(accepted, _ACCEPTED_SCHEMA)
        is_it = reduce(and_, (F.col(f"accepted_{part}").eqNullSafe(value) for part, value in row.items()))
        marked = rows.join(F.broadcast(known), is_it, "left").withColumn(name, F.col("accepted_sink").isNotNull())
        return marked.drop(*known.columns)


SMALL_BYTES = 2 * 2**20
"""Of the files of a table, compressed. Its rows lie in the plans of all queries that read it."""


def delta_frame(session: SparkSession, path: str) -> DataFrame:
    """The rows of the newest version of the table at ``path``, those of a small one through this process.

    Spark's reader runs jobs of its own for every query on a Delta table (which files, which version, its checkpoint): a
    tenth to a half of a second each, whatever the size of the table.
    """
    table = DeltaTable(path)
    if (
        table.protocol().min_reader_version > 1
        or sum(table.get_add_actions().column("size_bytes").to_pylist()) > SMALL_BYTES
    ):
        return session.read.format("delta").load(path)
    schema = T.StructType.fromJson(json.loads(table.schema().to_json()))
    rows = table.to_pyarrow_table()
    # Spark fails at nested columns without a row, and takes a batch without one for the end: the rest would be lost
    return in_one_task(session.createDataFrame(rows.combine_chunks() if rows.num_rows else [], schema))


def _is_after(order: Order) -> Column:
    """Whether a row was written by a batch after ``order``."""
    generation, batch = order
    same = (F.col(GENERATION) == generation) & (F.col(BATCH) > batch)
    return (F.col(GENERATION) > generation) | same
