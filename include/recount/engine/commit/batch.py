"""One micro-batch, step by step; every step is safe to repeat.

1. The batch is computed (``computation``): tasks map the records, the driver merges and emits what is due.
2. Output records, dead letters and the input offsets go out in one Kafka transaction, unless a topic that was read has
   been recreated.
3. Late and rejected records, outputs, and last the state with the batch's proof, are appended to Delta.

A replay starts from the state of the batches before it, so it computes the same; Kafka's committed offsets and Delta's
transaction versions make the steps that were already taken do nothing.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

import polars as pl
from pyspark.sql import DataFrame

from recount.declare.columns import RESULT_TIME, TIMESTAMP
from recount.declare.fingerprint import Declared
from recount.declare.operators.event_time import newer_tables
from recount.declare.output import deleted_at_once, oldest_kept_ms
from recount.declare.topology import Topology, Written
from recount.engine.commit.delta_table import DELTA_LOG_KEPT_MS
from recount.engine.commit.former_windows import bring_up_windows
from recount.engine.commit.output_records import output_records
from recount.engine.commit.stream_tables import BatchRows, StreamTables
from recount.engine.driver.signs_of_work import worked
from recount.engine.exchange.graph_computation import GraphComputation
from recount.engine.exchange.work import Attempt, BatchResult, Computed, Step
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.engine.state.keyed_rows import StateUse
from recount.engine.upkeep.trimming import AgeingRows
from recount.formats.record_decoder import reads_headers
from recount.formats.registry_encoders import encoder_of
from recount.kafka.dead_letters import KafkaRecord, dead_letter
from recount.runtime.errors import OfARecord, Terminal
from recount.runtime.times import quantity, roughly
from recount.tables.ledger import BatchProof, warnings_of_seconds
from recount.tables.places import ageing
from recount.tables.signed_orders import SET_ASIDE, RecordPlace, set_aside_command

_LOG = logging.getLogger(__name__)
_MOST_PARTITIONS = 4
_A_PLACE = re.compile(r"[a-zA-Z0-9._-]+-\d{1,9}@\d{1,18}")


class TopologyWork:
    """The work of one topology below ``root``; earlier versions of its tables stay for ``delta_log_kept_ms``.

    What audits have released is removed where their certificates lie below ``reports``.
    """

    delta_first = False

    def __init__(
        self, topology: Topology, root: str, *, reports: str | None = None, delta_log_kept_ms: int = DELTA_LOG_KEPT_MS
    ) -> None:
        self._topology = topology
        computation = GraphComputation(topology)
        outputs = {sink.table: computation.output_schema(sink) for sink in computation.sinks}
        self.tables = StreamTables(
            topology.name,
            root,
            state=computation.state_schema,
            outputs=outputs,
            ageing={node.table: AgeingRows(by=ageing(node), key=node.key) for node in topology.written},
            reports=reports,
            delta_log_kept_ms=delta_log_kept_ms,
        )
        self.name = topology.name
        self.topics = tuple(source.topic.name for source in topology.sources)
        letters = (source.topic.dead_letter_name for source in topology.sources)
        self.outputs = tuple(dict.fromkeys([*(node.topic.name for node in topology.written), *letters]))
        self.with_headers = any(reads_headers(source.topic) for source in topology.sources)
        self.layers = topology.layers
        self.history = self.tables.history
        self.declared = Declared.of(topology)

    def require_schemas(self) -> None:
        """Have a schema registry know those of the outputs; raises ``SchemaRefused``."""
        for node in self._topology.written:
            encoder_of(node)

    def require_new(self) -> None:
        self.tables.require_new()

    def create(self) -> None:
        """Create the tables that do not exist; a state of an earlier release gets the form of today."""
        bring_up_windows(self._topology, self.tables)
        self.tables.create()

    def lacks(self, last: BatchProof, *, in_flight: bool) -> bool:
        """Whether a table lacks the rows of ``last``."""
        return self.tables.lack(last, self.history.newest(last.order), in_flight=in_flight)

    def settle(self) -> None:
        self.tables.compaction.wait()

    def processor(self, attempt: Attempt) -> BatchProcessor:
        return BatchProcessor(self._topology, self.tables, attempt)


class BatchProcessor:
    """The function that ``foreachBatch`` calls. Holds the state after the last batch; a failure discards it."""

    def __init__(self, topology: Topology, tables: StreamTables, attempt: Attempt) -> None:
        self._topology = topology
        self._tables = tables
        self._attempt = attempt
        self._clock: PartitionClock | None = None
        self._appended: Mapping[str, tuple[str, int]] = {}
        self._computation = GraphComputation(topology, attempt.added, attempt.closed_ms, memory=attempt.memory)
        self._dead_letters = {source.topic.name: source.topic.dead_letter_name for source in topology.sources}
        self._warned: set[str] = set()
        self._in_seconds: set[str] = set()
        self.last: BatchResult | None = None

    @property
    def held(self) -> Mapping[str, int]:
        return self._computation.held

    @property
    def used(self) -> Mapping[str, StateUse]:
        """How each operator uses what it keeps."""
        return self._computation.used

    def __call__(self, records: DataFrame, batch: int) -> None:
        """Process batch ``batch``; an error leaves nothing half-done that a replay would not complete."""
        with self._tables.writing():
            self._process(records, batch)

    def _process(self, records: DataFrame, batch: int) -> None:
        order = (self._attempt.generation, batch)
        span = replace(self._attempt.checkpoint.range_of(batch), set_aside=self._attempt.set_aside)
        clock = self._clock or self._recovered(order, span)
        marks = [time.monotonic()]

        def mark(step: Step) -> None:
            marks.append(time.monotonic())
            worked()
            self._attempt.observer(step, batch)

        with without_its_record(self._topology.name, span):
            computed = self._computation.compute(records, span, clock, order)
        self._refuse_bad_records(computed.rejected)
        rows = BatchRows(
            state=computed.state,
            late=computed.late,
            rejected=computed.rejected,
            emitted=computed.emitted,
            files=computed.files,
        )
        self._warn_of_old_results(computed, span.timestamp_ms)
        self._warn_of_seconds(computed)
        proof = self._proof(span, computed, rows)
        mark("mapped")
        with without_its_record(self._topology.name, span):
            written = "published before" if self._attempt.published else self._publish(span, computed, proof)
        mark("kafka committed")
        self._tables.append(rows, proof)
        mark("delta committed")
        self._clock, self._appended = computed.after, proof.appended
        map_ms, kafka_ms, delta_ms = (round((b - a) * 1_000) for a, b in pairwise(marks))
        result = BatchResult(
            proof=proof,
            kafka_ms=kafka_ms,
            delta_ms=delta_ms,
            lookups=computed.lookups,
            newer_tables=newer_tables(self._topology.nodes(), proof.partitions) if computed.lookups else {},
        )
        self.last = result.after(self.last)
        _LOG.info(
            "batch %d %s: %d records, %d late, %d rejected, %d emitted; map %s, kafka %s, delta %s",
            batch,
            written,
            sum(partition.records for partition in proof.partitions),
            computed.late.height,
            computed.rejected.height,
            sum(proof.emitted.values()),
            *map(roughly, (map_ms, kafka_ms, delta_ms)),
        )

    def _publish(self, span: BatchRange, computed: Computed, proof: BatchProof) -> str:
        transaction = self._attempt.transaction
        return transaction.commit_once(
            BatchRecords(
                sinks=self._computation.sinks,
                computed=computed,
                dead_letters=self._dead_letters,
                group=transaction.group,
                version=self._attempt.version,
                limits=transaction.limits,
            ),
            start_offsets=span.start,
            end_offsets=span.end,
            batch=f"{proof.generation}/{proof.batch}",
            timestamp_ms=span.timestamp_ms,
            checkpoint_id=proof.checkpoint_id,
        )

    def _recovered(self, order: tuple[int, int], span: BatchRange) -> PartitionClock:
        """The clock as it stood before the batch, from the ledger; the state from the state table."""
        last = self._tables.history.newest(order)
        clock = PartitionClock.after(last)
        astray = {key: part.end for key, part in clock.partitions.items() if span.start.get(key, part.end) != part.end}
        if astray:
            raise Terminal.of(
                "batch-not-behind-the-ledger",
                given={key: span.start[key] for key in astray},
                generation=order[0],
                batch=order[1],
                name=self._topology.name,
                expected=str(astray),
            )
        self._appended = last.appended if last else {}
        self._computation.recover(self._tables, order, clock)
        return clock

    def _warn_of_old_results(self, computed: Computed, now_ms: int) -> None:
        """Say, once for each sink, that its topic does not keep what it is given."""
        for sink in self._computation.sinks:
            oldest_ms, times = oldest_kept_ms(sink.topic, now_ms), computed.records[sink.table][RESULT_TIME]
            if oldest_ms is None or sink.table in self._warned or not (old := int((times < oldest_ms).sum())):
                continue
            self._warned.add(sink.table)
            _LOG.warning("%s", deleted_at_once(sink.topic, old, len(times), int(times.min())))  # type: ignore[arg-type]

    def _warn_of_seconds(self, computed: Computed) -> None:
        """Say, once for each topic, that its event times look like seconds."""
        for topic, said in warnings_of_seconds(computed.after.partitions.values()).items():
            if topic not in self._in_seconds:
                _LOG.warning("%s", said)
            self._in_seconds.add(topic)

    def _refuse_bad_records(self, rejected: pl.DataFrame) -> None:
        """Under the policy ``fail``, a bad record stops the stream before anything of its batch is committed."""
        rejected = rejected.filter(pl.col("reason") != SET_ASIDE)
        if self._topology.on_bad_record == "dead-letter" or rejected.is_empty():
            return
        first = rejected.sort("topic", "partition", "offset").row(0, named=True)
        place = RecordPlace(topic=first["topic"], partition=first["partition"], offset=first["offset"])
        raise Terminal.of(
            "bad-records-fail-the-stream",
            given=f"{place}: {first['reason']}, {first['detail']}",
            records=quantity(rejected.height, "bad record"),
            name=self._topology.name,
            command=set_aside_command(self._topology.name, place),
        )

    def _proof(self, span: BatchRange, computed: Computed, rows: BatchRows) -> BatchProof:
        checkpoint_id = self._attempt.checkpoint.identity
        return BatchProof(
            stream=self._topology.name,
            generation=self._attempt.generation,
            batch=span.batch,
            checkpoint_id=checkpoint_id,
            lease_epoch=self._attempt.lease_epoch,
            batch_timestamp_ms=span.timestamp_ms,
            partitions=tuple(computed.after.partitions.values()),
            frontier_ms=computed.after.frontier_ms,
            emitted={table: records.height for table, records in computed.records.items()},
            fingerprint=self._attempt.fingerprint,
            topic_ids=self._attempt.topic_ids(),
            appended={**self._appended, **dict.fromkeys(rows.filled, (checkpoint_id, span.batch))},
        )


@dataclass(frozen=True, kw_only=True)
class BatchRecords:
    """The records of the batch ``computed``, dead letters last; ``dead_letters`` names their topic by source topic,
    ``group`` the stream, ``version`` which one of it, ``limits`` the sizes that topics take, of some.

    Made again at each iteration: a million of them held at once are half a gigabyte, in which Python's
    garbage collector spends longer than it takes to make them.
    """

    sinks: Sequence[Written]
    computed: Computed
    dead_letters: Mapping[str, str]
    group: str
    version: int = 1
    limits: Mapping[str, int] = field(default_factory=dict)

    def __iter__(self) -> Iterator[KafkaRecord]:
        """From the first; each is a sign of work."""
        for record in self._records():
            worked()
            yield record

    def _records(self) -> Iterator[KafkaRecord]:
        for sink in self.sinks:
            yield from output_records(sink, self.computed.records[sink.table], version=self.version)
        for row in self.computed.rejected.sort("topic", "partition", "offset").iter_rows(named=True):
            yield dead_letter(
                destination=self.dead_letters[row["topic"]],
                stream=self.group,
                topic=row["topic"],
                partition=row["partition"],
                offset=row["offset"],
                timestamp_ms=row[TIMESTAMP],
                key=row["record_key"],
                value=row["record_value"],
                reason=row["reason"],
                error=row["detail"],
                limit=self.limits.get(self.dead_letters[row["topic"]]),
            )


@contextmanager
def without_its_record(stream: str, span: BatchRange) -> Iterator[None]:
    """Add to the remedy of an ``OfARecord`` how ``stream`` goes on without the record, one of those in ``span``."""
    try:
        yield
    except OfARecord as error:
        error.remedy = f"{error.remedy}; {_way_out(stream, span, error.record)}"
        raise


def _way_out(stream: str, span: BatchRange, record: str | None) -> str:
    places = [RecordPlace.from_text(text) for text in _A_PLACE.findall(record or "")]
    if not places:
        place = "TOPIC-PARTITION@OFFSET"
        return f"to go on without a record of this batch, {_spans(span)}: {set_aside_command(stream, place)}"
    unread = [place for place in places if _is_in(span, place)]
    if not unread:
        read = ", ".join(map(str, places))
        return f"an earlier batch has read {read}, so that no record can be set aside: mend the declaration"
    return f"to go on without this record: {set_aside_command(stream, unread[-1])}"


def _is_in(span: BatchRange, place: RecordPlace) -> bool:
    partition = place.topic, place.partition
    return span.start.get(partition, 0) <= place.offset < span.end.get(partition, 0)


def _spans(span: BatchRange) -> str:
    read = {place: (span.start.get(place, 0), end) for place, end in span.end.items()}
    told = [f"{topic}-{part}@[{start}, {end})" for (topic, part), (start, end) in sorted(read.items()) if start < end]
    more = len(told) - _MOST_PARTITIONS
    return ", ".join(told[:_MOST_PARTITIONS]) + (f" and of {more} more partitions" if more > 0 else "")
