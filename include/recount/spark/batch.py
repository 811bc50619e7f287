"""One micro-batch, step by step; every step is safe to repeat.

1. The map stage reduces the batch's records to partials, partition by partition.
2. Partition clocks and open windows advance; what is due is emitted.
3. Output records, dead letters and the input offsets go out in one Kafka transaction.
4. State with the batch's proof, late and rejected records and the output are appended to Delta.

A replay starts from the state of the batches before it, so it computes the same; Kafka's committed offsets and Delta's
transaction versions make the steps that were already taken do nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from itertools import pairwise

import polars as pl
from pyspark.sql import DataFrame

from recount.core.errors import Terminal
from recount.core.ledger import BatchProof
from recount.core.output import output_record
from recount.core.topology import Topology
from recount.kafka.dead_letters import dead_letter
from recount.kafka.transaction import KafkaRecord
from recount.spark.checkpoint import BatchRange
from recount.spark.intake import INPUT_COLUMNS
from recount.spark.open_windows import REVISION, OpenWindows
from recount.spark.partials import TIMESTAMP
from recount.spark.partition_clock import PartitionClock
from recount.spark.plan import AggregationPlan, plan_of
from recount.spark.stage import OUTPUT_SCHEMA, MapStage, from_ipc, map_function
from recount.spark.stream_tables import BatchRows, StreamTables
from recount.spark.work import Attempt, BatchResult, Step

_LOG = logging.getLogger(__name__)


class AggregationWork:
    """The work of one topology below ``root``."""

    with_headers = False

    def __init__(self, topology: Topology, root: str) -> None:
        self.plan = plan_of(topology)
        self.tables = StreamTables(self.plan, root)
        self.name = topology.name
        self.topic = self.plan.source.topic.name
        self.history = self.tables.history

    def create(self) -> None:
        """Create the tables that do not exist."""
        self.tables.create()

    def processor(self, attempt: Attempt) -> BatchProcessor:
        """The processor of one run."""
        return BatchProcessor(self.plan, self.tables, attempt)


class BatchProcessor:
    """What ``foreachBatch`` calls. Holds the state after the last batch; built anew after any failure."""

    def __init__(self, plan: AggregationPlan, tables: StreamTables, attempt: Attempt) -> None:
        self._plan = plan
        self._tables = tables
        self._attempt = attempt
        self._clock: PartitionClock | None = None
        self._windows = OpenWindows.none(plan.aggregate, plan.windows.grace_ms)
        self.last: BatchResult | None = None

    def __call__(self, records: DataFrame, batch: int) -> None:
        """Process batch ``batch``; an error leaves nothing half-done that a replay would not complete."""
        clock = self._clock or self._recovered(batch)
        span = self._attempt.checkpoint.range_of(batch)
        marks = [time.monotonic()]

        def mark(step: Step) -> None:
            marks.append(time.monotonic())
            self._attempt.observer(step, batch)

        mapped = self._mapped(records, span, clock)
        self._refuse_bad_records(mapped["rejected"])
        after = clock.advanced(span, mapped["totals"], self._plan.topology.idle_after_ms)
        windows, emitted = self._windows.advanced(
            mapped["partials"],
            clock.frontier_ms,
            after.frontier_ms,
            lambda wanted: self._tables.emitted_before((self._attempt.generation, batch), wanted),
        )
        proof = self._proof(span, after, emitted)
        mark("mapped")
        written = self._attempt.transaction.commit_once(
            [*self._output(emitted), *self._dead_letters(mapped["rejected"])],
            start_offsets=span.start,
            end_offsets=span.end,
            batch=f"{self._attempt.generation}/{batch}",
        )
        mark("kafka committed")
        rows = BatchRows(partials=mapped["partials"], late=mapped["late"], rejected=mapped["rejected"], emitted=emitted)
        self._tables.append(rows, proof)
        mark("delta committed")
        self._clock, self._windows = after, windows
        map_ms, kafka_ms, delta_ms = (round((b - a) * 1_000) for a, b in pairwise(marks))
        self.last = BatchResult(proof=proof, map_ms=map_ms, kafka_ms=kafka_ms, delta_ms=delta_ms)
        _LOG.info(
            "batch %d %s: %d records, %d late, %d rejected, %d emitted; map %d ms, kafka %d ms, delta %d ms",
            batch,
            written,
            sum(partition.records for partition in proof.partitions),
            mapped["late"].height,
            mapped["rejected"].height,
            emitted.height,
            map_ms,
            kafka_ms,
            delta_ms,
        )

    def _recovered(self, batch: int) -> PartitionClock:
        """The clock and the open windows as they stood before ``batch``, from the ledger and the state table."""
        order = (self._attempt.generation, batch)
        clock = PartitionClock.after(self._tables.history.last_before(order))
        if clock.partitions:
            self._windows = self._tables.open_windows(order, clock.frontier_ms)
            _LOG.info("recovered %d open windows before batch %d", self._windows.rows.height, batch)
        return clock

    def _mapped(self, records: DataFrame, span: BatchRange, clock: PartitionClock) -> dict[str, pl.DataFrame]:
        """The four tables of the map stage, of all partitions together."""
        stage = MapStage(
            plan=self._plan,
            stream_times=clock.stream_times,
            latest_ms=span.timestamp_ms + self._plan.topology.max_future_ms,
        )
        sent = records.select(*INPUT_COLUMNS).mapInArrow(map_function(stage), OUTPUT_SCHEMA).collect()
        tables = stage.empty_tables()
        for row in sent:
            tables[row.name].append(from_ipc(row.ipc))
        return {name: pl.concat(parts) for name, parts in tables.items()}

    def _refuse_bad_records(self, rejected: pl.DataFrame) -> None:
        """Under the policy ``fail``, a bad record stops the stream before anything of its batch is committed."""
        if self._plan.topology.on_bad_record == "dead-letter" or rejected.is_empty():
            return
        first = rejected.sort("topic", "partition", "offset").row(0, named=True)
        raise Terminal(
            f"{rejected.height} bad record(s), and {self._plan.topology.name} is declared to fail on them",
            given=f"{first['topic']}-{first['partition']}@{first['offset']}: {first['reason']}, {first['detail']}",
            expected="records as the topic's schema declares them",
            remedy='mend the producer and skip the record, or declare on_bad_record="dead-letter"',
        )

    def _proof(self, span: BatchRange, after: PartitionClock, emitted: pl.DataFrame) -> BatchProof:
        return BatchProof(
            stream=self._plan.topology.name,
            generation=self._attempt.generation,
            batch=span.batch,
            checkpoint_id=self._attempt.checkpoint.identity,
            lease_epoch=self._attempt.lease_epoch,
            batch_timestamp_ms=span.timestamp_ms,
            partitions=tuple(after.partitions.values()),
            frontier_ms=after.frontier_ms,
            emitted={self._plan.sink.table: emitted.height},
        )

    def _output(self, emitted: pl.DataFrame) -> Iterator[KafkaRecord]:
        sink = self._plan.sink
        for row in emitted.iter_rows(named=True):
            record = output_record(
                row,
                key=sink.key,
                fields=list(sink.fields),
                timestamp_ms=row[TIMESTAMP],
                revision=row[REVISION],
                origin="stream",
            )
            yield KafkaRecord(
                topic=sink.topic.name,
                key=record.key,
                value=record.value,
                headers=tuple(record.headers),
                timestamp_ms=record.timestamp_ms,
            )

    def _dead_letters(self, rejected: pl.DataFrame) -> Iterator[KafkaRecord]:
        for row in rejected.sort("topic", "partition", "offset").iter_rows(named=True):
            yield dead_letter(
                destination=self._plan.source.topic.dead_letter_name,
                topic=row["topic"],
                partition=row["partition"],
                offset=row["offset"],
                timestamp_ms=row[TIMESTAMP],
                key=row["record_key"],
                value=row["record_value"],
                reason=row["reason"],
                error=row["detail"],
            )
