"""A stream from lease to last batch: acquire, recover, run, report, stop."""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from recount.core.errors import Terminal, Transient
from recount.core.settings import Settings
from recount.declarations import DeclarationLog, Enacted
from recount.kafka.connection import Connection
from recount.kafka.control import ControlChannel
from recount.kafka.lease import Lease
from recount.kafka.offsets import lag, log_ranges, partitions_of, require_topics
from recount.kafka.status import StreamStatus
from recount.kafka.transaction import OutputTransaction
from recount.spark.batch_size import BatchSize
from recount.spark.catching_up import BatchLimit, backlog, layer_to_read
from recount.spark.checkpoint import BatchRange, Checkpoint, OneBatch, Partition
from recount.spark.driver_memory import DriverMemory
from recount.spark.progress import BatchProgress, ProgressListener
from recount.spark.source import kafka_range, kafka_source
from recount.spark.stream_query import StreamQuery
from recount.spark.work import Attempt, Observer, Processor, Work, unobserved

_LOG = logging.getLogger(__name__)
_HEARTBEAT_S = 2.0
_SILENCE_MS = 10_000


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a stream is run, not what it means: none of these changes an output.

    ``available_now`` ends once everything that was there at the start is processed; otherwise a batch starts every
    ``trigger_interval_ms`` (0: as soon as the last one is done) until a stop is asked for. A batch has at most
    ``max_offsets`` records, and with a ``target_batch_ms`` (0: none) as many as take that time, see ``BatchSize``.
    """

    max_offsets: int = 1_000_000
    target_batch_ms: int = 0
    trigger_interval_ms: int = 0
    available_now: bool = False


class StreamRunner:
    """Drives the work of one stream; ``run`` returns when the stream has stopped and raises when it failed."""

    def __init__(
        self,
        session: SparkSession,
        settings: Settings,
        work: Work,
        options: RunOptions,
        observer: Observer = unobserved,
    ) -> None:
        self._session = session
        self._settings = settings
        self._work = work
        self._options = options
        self._observer = observer
        self._connection = Connection.of(settings)
        self._declarations = DeclarationLog(settings.data, work.name)

    def run(self) -> None:
        """Acquire the lease and run; the last status says ``stopped`` or ``failed``."""
        # asked before the lease is taken: a start that is refused must not fence the driver that is at work
        self._declarations.require(self._work.declared, self._work.history.last_before())
        lease = Lease.acquire(self._connection, self._work.name)
        status = self._first_status(lease.epoch)
        lease.publish(status)
        _LOG.info("stream %s, lease epoch %d", self._work.name, lease.epoch)
        transaction = OutputTransaction(self._connection, self._work.name)
        control = ControlChannel(self._connection, self._work.name, lease.epoch)
        listener = ProgressListener(self._work.name)
        self._session.streams.addListener(listener)
        try:
            query = self._start(transaction, lease.epoch)
            status = self._watch(query, lease, control, listener, replace(status, state="running"))
            lease.publish(replace(status, state="stopped", heartbeat_ms=_now_ms()))
        except BaseException as error:
            _LOG.exception("stream %s failed", self._work.name)
            lease.publish(replace(status, state="failed", heartbeat_ms=_now_ms(), error=str(error)[:2_000]))
            raise
        finally:
            self._session.streams.removeListener(listener)
            control.close()
            transaction.close()
            lease.release()

    def _start(self, transaction: OutputTransaction, lease_epoch: int) -> StreamQuery:
        enacted = self._declarations.admit(self._work.declared, self._work.history.last_before())
        require_topics(self._connection, self._work.topics, self._work.outputs)
        self._work.create()
        location = checkpoint_location(self._settings, self._work.name, enacted.version)
        checkpoint = Checkpoint(self._session, location, sources=len(self._work.layers))
        checkpoint.require_sources()
        generation, start = self._generation(checkpoint, enacted)
        attempt = Attempt(
            checkpoint=checkpoint,
            transaction=transaction,
            generation=generation,
            lease_epoch=lease_epoch,
            fingerprint=enacted.fingerprint,
            closed_ms=enacted.closed_ms,
            added=enacted.additions,
            version=enacted.version,
            observer=self._observer,
        )
        if not checkpoint.exists() and self._completed(attempt, start):
            generation, start = self._generation(checkpoint, enacted)
        processor = self._work.processor(replace(attempt, generation=generation))

        def started(limit: BatchLimit, process: Callable[[DataFrame, int], None]) -> StreamingQuery:
            source = kafka_source(
                self._session,
                self._settings.bootstrap_servers,
                self._work.layers,
                start=start,
                limit=limit,
                headers=self._work.with_headers,
            )
            writer = source.writeStream.queryName(self._work.name).option("checkpointLocation", location)
            if self._options.available_now:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=f"{self._options.trigger_interval_ms} milliseconds")
            return writer.foreachBatch(process).start()

        return StreamQuery(started, processor, self._first_limit())

    def _first_limit(self) -> BatchLimit:
        """Where tables have more to be read than a batch takes, batches read those first."""
        layer, records = 0, self._options.max_offsets
        if len(self._work.layers) > 1:
            last = self._work.history.last_before()
            read = {} if last is None else {(part.topic, part.partition): part.end for part in last.partitions}
            layer = layer_to_read(backlog(self._connection, self._work.layers, read), records)
        return BatchLimit(records=records, layer=layer)

    def _completed(self, attempt: Attempt, start: Mapping[Partition, int] | None) -> bool:
        """Complete the batch that Kafka has and the ledger has not, whose plan is lost; False if there is none.

        What Kafka has committed says which offsets the batch read and when, so that it is computed as it was then.
        """
        partitions = [found for topic in self._work.topics for found in partitions_of(self._connection, topic)]
        committed = attempt.transaction.committed(partitions)
        end = {key: found.offset for key, found in committed.items()}
        known = start or {key: found.start for key, found in log_ranges(self._connection, partitions).items()}
        begun = {key: known.get(key, 0) for key in end}
        said = {(found.batch, found.timestamp_ms) for found in committed.values()}
        batch, timestamp_ms = said.pop() if len(said) == 1 else (None, None)
        is_next = batch in self._names_of_next() and end != begun and all(end[key] >= begun[key] for key in end)
        if timestamp_ms is None or not is_next:
            return False
        _LOG.info("completing batch %s, which Kafka has and the ledger has not: %s to %s", batch, begun, end)
        plan = OneBatch(
            identity=f"completed {batch}",
            span=BatchRange(batch=0, timestamp_ms=timestamp_ms, start=begun, end=end),
        )
        records = kafka_range(
            self._session,
            self._settings.bootstrap_servers,
            self._work.topics,
            start=begun,
            end=end,
            headers=self._work.with_headers,
        )
        self._work.processor(replace(attempt, checkpoint=plan))(records, 0)
        return True

    def _names_of_next(self) -> tuple[str, ...]:
        """What the batch after the last one in the ledger can be called: of its checkpoint, or the first of another."""
        last = self._work.history.last_before()
        if last is None:
            return ("0/0",)
        return f"{last.generation}/{last.batch + 1}", f"{last.generation + 1}/0"

    def _generation(self, checkpoint: Checkpoint, enacted: Enacted) -> tuple[int, dict[Partition, int] | None]:
        """The checkpoint's place in the stream's history, and where a new one starts.

        That is the end of the ledger, or where this version of the stream begins.
        """
        last = self._work.history.last_before()
        if last is None:
            return 0, self._beginning(enacted)
        if not checkpoint.exists():
            return last.generation + 1, {(part.topic, part.partition): part.end for part in last.partitions}
        if checkpoint.identity == last.checkpoint_id:
            return last.generation, None
        if any(proof.checkpoint_id == checkpoint.identity for proof in self._work.history.newest_first()):
            raise Terminal(
                "the checkpoint is older than the batch ledger",
                given=checkpoint.identity,
                expected=f"the checkpoint {last.checkpoint_id} of the last batch, or an empty folder",
                remedy="remove the checkpoint folder: the stream goes on from the ledger",
            )
        return last.generation + 1, None

    def _beginning(self, enacted: Enacted) -> dict[Partition, int] | None:
        """Where a version of the stream begins; a partition that was added since, at its first record."""
        if enacted.starts is None:
            return None
        partitions = [found for topic in self._work.topics for found in partitions_of(self._connection, topic)]
        return {partition: enacted.starts.get(partition, 0) for partition in partitions}

    def _watch(
        self,
        query: StreamQuery,
        lease: Lease,
        control: ControlChannel,
        listener: ProgressListener,
        status: StreamStatus,
    ) -> StreamStatus:
        """Report until the query ends; a requested stop waits for the batch at hand. Returns the last status."""
        heartbeat_due = 0.0
        size = BatchSize.first(query.limit.records, self._options.target_batch_ms)
        last_layer = len(self._work.layers) - 1
        while query.is_active or (self._options.available_now and query.limit.layer < last_layer):
            limit = query.limit
            if not query.is_active:
                limit = replace(limit, layer=limit.layer + 1)
            if control.stop_requested():
                _LOG.info("stop requested")
                lease.publish(replace(status, state="stopping", heartbeat_ms=_now_ms()))
                query.stop()
                break
            for progress in listener.take(timeout_s=0.5):
                status = _progressed(status, progress, query.processor)
                size = size.after(progress.records, progress.duration_ms, progress.lag)
                if progress.lags and not self._options.available_now:
                    # not by the size at hand: a busy table could always have more left than a small batch takes
                    layer = layer_to_read(progress.lags, self._options.max_offsets)
                    limit = replace(limit, layer=max(limit.layer, layer))
                heartbeat_due = 0.0
            if not self._options.available_now:
                limit = replace(limit, records=size.records)
            if limit != query.limit:
                query.go_on(limit)
            if time.monotonic() >= heartbeat_due:
                status = replace(_with_memory(status), heartbeat_ms=_now_ms(), lag=self._lag_between_batches(status))
                lease.publish(status)
                heartbeat_due = time.monotonic() + _HEARTBEAT_S
        query.await_end()
        for progress in listener.take(timeout_s=2.0):
            status = _progressed(status, progress, query.processor)
        return status

    def _lag_between_batches(self, status: StreamStatus) -> int | None:
        """The lag as Kafka knows it, when no batch has said it lately: Spark is silent with nothing to read."""
        if status.lag is not None and _now_ms() - (status.last_progress_ms or 0) < _SILENCE_MS:
            return status.lag
        try:
            parts = lag(self._connection, self._connection.group(self._work.name), self._work.topics)
        except Transient:
            return status.lag
        return sum(part.lag for part in parts.values())

    def _first_status(self, lease_epoch: int) -> StreamStatus:
        now_ms = _now_ms()
        return StreamStatus(
            stream=self._work.name,
            driver_id=str(uuid.uuid4()),
            lease_epoch=lease_epoch,
            host=socket.gethostname(),
            pid=os.getpid(),
            state="starting",
            started_at_ms=now_ms,
            heartbeat_ms=now_ms,
            application_id=self._session.sparkContext.applicationId,
            fingerprint=self._work.declared.fingerprint,
        )


def checkpoint_location(settings: Settings, stream: str, version: int) -> str:
    """Where a version of a stream has its checkpoint: one of its own, for it begins with other offsets."""
    return f"{settings.checkpoints}/{stream}" + ("" if version == 1 else f"/version-{version}")


def _with_memory(status: StreamStatus) -> StreamStatus:
    memory = DriverMemory.now()
    return replace(status, memory_used=memory.used, memory_left=memory.left, memory_limit=memory.limit)


def _progressed(status: StreamStatus, progress: BatchProgress, processor: Processor) -> StreamStatus:
    """``status`` after a batch, from Spark's progress and the proof of the last batch, which may be a later one."""
    status = replace(
        status,
        batch=progress.batch,
        lag=progress.lag,
        records_total=status.records_total + progress.records,
        records_per_second=progress.records_per_second,
        batch_duration_ms=progress.duration_ms,
        last_progress_ms=_now_ms(),
    )
    last = processor.last
    if last is None:
        return status
    times = [part.stream_time_ms for part in last.proof.partitions if part.stream_time_ms is not None]
    return replace(
        status,
        late_records=last.late_total,
        dead_letters=last.dead_letters_total,
        batch_records=sum(part.records for part in last.proof.partitions),
        batch_late_records=sum(part.late for part in last.proof.partitions),
        batch_dead_letters=sum(part.dead_lettered for part in last.proof.partitions),
        frontier_ms=last.proof.frontier_ms,
        stream_time_ms=max(times, default=None),
        commit_duration_ms=last.kafka_ms + last.delta_ms,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
