"""What expectations look at of an audit's input, in full size: the batches that it judged, and what they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.conservation import OFFSETS
from recount.audit.delta_frames import delta_frame
from recount.audit.findings import Source
from recount.audit.kept import log_of, require_kept, sources_of
from recount.audit.ledger import Ledger, Order
from recount.audit.ledger_rules import LEDGER
from recount.audit.store import AuditStore, Run
from recount.core.finding import Finding
from recount.core.ledger import BatchProof
from recount.core.limits import LEAST_COUNT
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.kafka.connection import Connection
from recount.kafka.offsets import is_compacted
from recount.recompute.log import SCHEMA as LOG_SCHEMA

_LEDGER_SCHEMA = (
    "generation int, batch long, checkpoint_id string, topic string, partition int, start long, end long, offsets long,"
    " records long, fates long, late long, is_judged boolean, is_accepted boolean, late_limit double, least_count long"
)
_PARTITIONS_SCHEMA = (
    "topic string, partition int, start long, end long, told long, is_accepted boolean, dead_letters_limit double,"
    " least_count long"
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
        log = log_of(self.settings, sources)
        found = []
        for topic, ranges in self._judged.ranges.items():
            require_kept(connection, tables, topic, ranges, sources[topic])
            raw = log.read(self.session, topic, ranges)
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
        runs = AuditStore(self.session, Tables(self.settings.data), self.topology.name).runs()
        return next((run.order for run in runs if run.audit == self.run.seed), None)

    def _is_judged(self, proof: BatchProof) -> bool:
        return self._since is None or proof.order > self._since

    def _accepted(self, kind: str) -> list[str]:
        return [one.difference.place for one in self.accepted if one.difference.kind == kind]
