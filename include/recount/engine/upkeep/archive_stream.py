"""The archive stream: the raw log of a topic to Delta, exactly once, by event date."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import polars as pl
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.declare.fingerprint import Declared
from recount.declare.groups import Archive
from recount.declare.operators.event_time import Layers
from recount.engine.commit.delta_table import LEDGER_PROPERTIES
from recount.engine.driver.signs_of_work import worked
from recount.engine.exchange.work import Attempt, BatchResult
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange, Partition
from recount.engine.state.keyed_rows import StateUse
from recount.runtime.times import roughly
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables

_LOG = logging.getLogger(__name__)

ARCHIVE_SCHEMA = (
    "topic STRING, partition INT, offset BIGINT, timestamp_ms BIGINT, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, event_date DATE"
)


_STATISTICS = {"delta.dataSkippingStatsColumns": "partition,offset"}
"""An audit reads the files that hold its offsets and no others."""


class ArchiveWork:
    """Appends every batch to ``archive/<topic>``; the commit carries the offset ranges as its proof."""

    with_headers = True
    delta_first = True

    def __init__(self, session: SparkSession, archive: Archive, root: str) -> None:
        self._session = session
        self.name = archive.name
        self.topics: tuple[str, ...] = (archive.topic.name,)
        self.outputs: tuple[str, ...] = ()
        self.layers: Layers = (self.topics,)
        self.path = Tables(root).archive(archive.topic.name)
        self.history = Proofs(state=self.path)
        self.declared = Declared.of(archive)

    def require_schemas(self) -> None:
        """None: what is archived stays as it is."""

    def require_new(self) -> None:
        """None: a topic has one archive, whatever it is called."""

    def create(self) -> None:
        if DeltaTable.isDeltaTable(self._session, self.path):
            return
        columns = self._session.createDataFrame([], ARCHIVE_SCHEMA).schema
        builder = DeltaTable.createIfNotExists(self._session).location(self.path).addColumns(columns)
        for name, value in {**LEDGER_PROPERTIES, **_STATISTICS}.items():
            builder = builder.property(name, value)
        builder.partitionedBy("event_date").execute()

    def lacks(self, last: BatchProof, *, in_flight: bool) -> bool:  # noqa: ARG002 - its one table is its ledger
        """Nothing: its one table is its ledger."""
        return False

    def settle(self) -> None:
        """Nothing: it has no upkeep."""

    def processor(self, attempt: Attempt) -> ArchiveProcessor:
        self._session.conf.set("spark.databricks.delta.stats.collect", "true")
        return ArchiveProcessor(self, attempt)


class ArchiveProcessor:
    """One batch: append, then commit the input offsets so that every Kafka tool sees the lag."""

    def __init__(self, work: ArchiveWork, attempt: Attempt) -> None:
        self._work = work
        self._attempt = attempt
        self.last: BatchResult | None = None
        self.held: Mapping[str, int] = {}
        self.used: Mapping[str, StateUse] = {}

    def __call__(self, records: DataFrame, batch: int) -> None:
        """Append ``batch`` unless the table has it."""
        span = self._attempt.checkpoint.range_of(batch)
        started = time.monotonic()
        ranges = PartitionClock.after(None).advanced(span, pl.DataFrame(), idle_after_ms=0)
        proof = BatchProof(
            stream=self._work.name,
            generation=self._attempt.generation,
            batch=batch,
            checkpoint_id=self._attempt.checkpoint.identity,
            lease_epoch=self._attempt.lease_epoch,
            batch_timestamp_ms=span.timestamp_ms,
            partitions=tuple(ranges.partitions.values()),
            frontier_ms=None,
            fingerprint=self._attempt.fingerprint,
            topic_ids=self._attempt.topic_ids(),
        )
        dated = records.withColumn("event_date", F.to_date(F.timestamp_millis("timestamp_ms")))
        options = {
            "txnAppId": f"recount/{proof.stream}/{proof.checkpoint_id}",
            "txnVersion": str(batch),
            "userMetadata": proof.to_json(),
        }
        dated.write.format("delta").mode("append").options(**options).save(self._work.path)
        worked()
        self._attempt.observer("delta committed", batch)
        appended = time.monotonic()
        self._attempt.transaction.commit_once(
            [],
            start_offsets=self._committed(span),
            end_offsets=span.end,
            batch=f"{proof.generation}/{batch}",
            timestamp_ms=span.timestamp_ms,
            checkpoint_id=proof.checkpoint_id,
        )
        self._attempt.observer("kafka committed", batch)
        delta_ms, kafka_ms = round((appended - started) * 1_000), round((time.monotonic() - appended) * 1_000)
        self.last = BatchResult(proof=proof, kafka_ms=kafka_ms, delta_ms=delta_ms)
        _LOG.info("batch %d: delta %s, kafka %s", batch, roughly(delta_ms), roughly(kafka_ms))

    def _committed(self, span: BatchRange) -> dict[Partition, int]:
        """Where Kafka stands before the batch; further back than its start where the plan of the last one was lost."""
        if span.batch:
            return dict(span.start)
        committed = self._attempt.transaction.committed(span.start)
        return {
            key: min(start, committed[key].offset if key in committed else start) for key, start in span.start.items()
        }
