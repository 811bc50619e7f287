"""A stream from lease to last batch: acquire, recover, run, report, stop."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from confluent_kafka import KafkaException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from recount.engine.driver.signs_of_work import SignsOfWork, worked
from recount.engine.driver.stream_query import ProgressListener, StreamQuery, Turn, at_once
from recount.engine.driver.stream_reports import DriverMetrics, NotAlone, StreamReports, progressed, with_memory
from recount.engine.exchange.work import Attempt, Observer, Work, unobserved
from recount.engine.source.checkpoint import Checkpoint, OneBatch
from recount.engine.source.kafka_source import BatchLimit, BatchSize, backlog, kafka_range, kafka_source, layer_to_read
from recount.engine.source.resumption import Known, Planned, Resumption, SameTopics, Standing, Unfinished
from recount.engine.source.unread_records import UnreadRecords, producer_at
from recount.engine.upkeep.memory import DriverMemory, Headroom
from recount.kafka.connection import Connection, NotAllowed, Refused
from recount.kafka.leases import ControlChannel, Lease, StandingOrders
from recount.kafka.offsets import (
    MissingTopics,
    Partition,
    deleted_before,
    partitions_of,
    require_kept,
    require_topics,
    require_unread_kept,
)
from recount.kafka.security import NotAdmitted
from recount.kafka.status import MOST_CHARACTERS, StreamStatus
from recount.kafka.transaction import TRANSACTION_TIMEOUT_MS, OutputTransaction
from recount.runtime.errors import RecountError, Terminal, says_all
from recount.runtime.log_lines import about, told_of
from recount.runtime.settings import Settings
from recount.runtime.times import clock_ms
from recount.tables.decisions import AsideLog, DeclarationLog, Enacted, ErasureLog
from recount.tables.ledger import BatchProof

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a stream is run, not what it means: none of these changes an output.

    ``available_now`` ends once everything that was there at the start is processed; otherwise a batch starts every
    ``trigger_interval_ms`` (0: as soon as the last one is done) until a stop is asked for. A batch has at most
    ``max_offsets`` records, and with a ``target_batch_ms`` (0: none) as many as take that time, see ``BatchSize``. The
    brokers abort the transaction of a batch after ``transaction_timeout_ms``. The driver's processes may hold
    ``memory_limit`` bytes (0: what its container or machine has). A status is published after each batch, and at least
    every ``heartbeat_s`` seconds.
    """

    max_offsets: int = 1_000_000
    target_batch_ms: int = 0
    trigger_interval_ms: int = 0
    available_now: bool = False
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    memory_limit: int = 0
    heartbeat_s: float = 2.0

    def memory(self) -> DriverMemory:
        found = DriverMemory.now()
        return found.within(self.memory_limit) if self.memory_limit else found


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Shared objects of the streams of one driver. ``is_stopping`` says whether a stream is to stop after its batch."""

    orders: StandingOrders
    unread: UnreadRecords
    is_stopping: Callable[[str], bool]
    turn: Callable[[], Turn] = at_once


@dataclass(eq=False)
class StreamRunner:
    """Drives the work of one stream; ``run`` returns when the stream has stopped and raises when it failed.

    ``shared`` where its driver runs other streams, too. ``has_spoken`` once it has published a status: then the last
    one says how it ended.
    """

    session: SparkSession
    settings: Settings
    work: Work
    options: RunOptions
    observer: Observer = unobserved
    shared: Shared | None = None
    metrics: DriverMetrics = field(default_factory=DriverMetrics)

    def __post_init__(self) -> None:
        self.has_spoken = False
        self._connection = Connection.of(self.settings)
        self._declarations = DeclarationLog(self.settings.data, self.work.name)
        self._erasures = ErasureLog(self.settings.data, self.work.name)
        self._last: BatchProof | None = None
        self._signs = SignsOfWork()

    def run(self) -> None:
        """Acquire the lease and run; the last status says ``stopped`` or ``failed``."""
        # asked before the lease is taken: a start that is refused must not fence the driver that is at work
        self._erasures.require_finished()
        self._declarations.require(self.work.declared, self.work.history.newest())
        with ExitStack() as held:
            lease = Lease.acquire(self._connection, self.work.name)
            held.callback(lease.release)
            held.enter_context(about(stream=self.work.name, lease_epoch=lease.epoch))
            status = self._first_status(lease.epoch)
            _LOG.info("stream %s, lease epoch %d", self.work.name, lease.epoch)
            listener = ProgressListener(self.work.name)
            unread = self.shared.unread if self.shared else held.enter_context(self._asking())
            reports = StreamReports(
                lease=lease,
                metrics=self.metrics,
                session=self.session,
                heartbeat_s=self.options.heartbeat_s,
                memory=self.options.memory,
                unread=lambda: unread.of(self.work.name),
            )
            starting, job_group = SignsOfWork(), f"recount start of {self.work.name}"
            try:
                transaction = held.enter_context(closing(self._outputs(lease)))
                reports.tell(status)
                self.has_spoken = True
                control = held.enter_context(closing(self._control(lease)))
                self.session.streams.addListener(listener)
                held.callback(lambda: self.session.streams.removeListener(listener))
                self.session.sparkContext.setJobGroup(job_group, job_group)
                with reports.speaking(status, starting, job_group), starting.batch():
                    query = self._start(transaction, lease.epoch)
                held.enter_context(unread.following(self.work.name, self.work.topics, lambda: self._read_to(query)))
                held.enter_context(self.metrics.of_states(self.work.name, lambda: query.processor.used))
                status = self._watch(query, reports, control, listener, replace(status, state="running"))
                reports.tell(replace(status, state="stopped", heartbeat_ms=clock_ms()))
            except BaseException as error:
                _LOG.error("stream %s failed", self.work.name, exc_info=None if says_all(error) else error)
                last = with_memory(status, reports.memory())
                failed = replace(last, state="failed", error=str(error)[:MOST_CHARACTERS], final=is_final(error))
                try:
                    reports.tell(replace(failed, heartbeat_ms=clock_ms()))
                    self.has_spoken = True
                except RecountError as unheard:
                    _LOG.warning("the failure could not be published, a lost lease for instance: %s", unheard)
                raise

    @contextmanager
    def _asking(self) -> Iterator[UnreadRecords]:
        """The reader of unread records, which asks the brokers; the streams of a group share one."""
        unread = UnreadRecords(self._connection, partial(producer_at, self.session, self._connection.of_spark))
        with unread.asking():
            yield unread

    def _read_to(self, query: StreamQuery) -> Mapping[Partition, int]:
        """Up to where the stream has read, by its last batch."""
        last = query.processor.last.proof if query.processor.last else self._last
        return last.ends if last else {}

    def _control(self, lease: Lease) -> ControlChannel:
        orders = self.shared.orders if self.shared else None
        return ControlChannel(self._connection, self.work.name, lease.epoch, shared=orders)

    def _outputs(self, lease: Lease) -> OutputTransaction:
        """Opened before the first status is published, which a driver cannot do that has lost its lease meanwhile."""
        return OutputTransaction(
            self._connection,
            self.work.name,
            transaction_timeout_ms=self.options.transaction_timeout_ms,
            confirm=lease.confirm,
        )

    def _start(self, transaction: OutputTransaction, lease_epoch: int) -> StreamQuery:
        """Recover and start; a start that is refused has written nothing."""
        # asked again, for an erasure that began before this driver took the lease is not done
        self._erasures.require_finished()
        require_topics(self._connection, self.work.topics, self.work.outputs)
        last = self.work.history.newest()
        self._declarations.require(self.work.declared, last)
        topics = SameTopics(self.settings, self.work, last)
        topics.require()
        worked()
        known = self._declarations.last()
        location = checkpoint_location(self.settings, self.work.name, known.version if known else 1)
        checkpoint = Checkpoint(self.session, location, sources=len(self.work.layers))
        resumption = self._resumption(transaction, checkpoint, last, known)
        repeated = self._repeated(resumption, last, known)
        worked()
        if known is None and last is None:
            self.work.require_new()
            partitions = [found for topic in self.work.topics for found in partitions_of(self._connection, topic)]
            if warning := deleted_before(self._connection, self.work.name, partitions):
                _LOG.warning("%s", warning)
        self.work.require_schemas()
        enacted = self._declarations.admit(self.work.declared, last)
        self.work.create()
        worked()
        attempt = Attempt(
            checkpoint=checkpoint,
            transaction=transaction,
            generation=resumption.generation,
            lease_epoch=lease_epoch,
            topic_ids=topics,
            fingerprint=enacted.fingerprint,
            closed_ms=enacted.closed_ms,
            added=enacted.additions,
            version=enacted.version,
            set_aside=AsideLog(self.settings.data, self.work.name).offsets(enacted.version),
            observer=self.observer,
            memory=self.options.memory,
        )
        for unfinished in repeated:
            self._repeat(unfinished, attempt)
            worked()
        self._last = self.work.history.newest()
        processor = self.work.processor(attempt)
        start = resumption.start

        def started(limit: BatchLimit, process: Callable[[DataFrame, int], None]) -> StreamingQuery:
            source = kafka_source(
                self.session,
                self._connection.of_spark,
                self.work.layers,
                start=start,
                limit=limit,
                headers=self.work.with_headers,
            )
            writer = source.writeStream.queryName(self.work.name).option("checkpointLocation", location)
            if self.options.available_now:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=f"{self.options.trigger_interval_ms} milliseconds")
            return writer.foreachBatch(told_of(process, stream=self.work.name, lease_epoch=lease_epoch)).start()

        turn = self.shared.turn if self.shared else at_once
        return StreamQuery(started, processor, self._first_limit(), Headroom(self.options.memory), turn, self._signs)

    def _first_limit(self) -> BatchLimit:
        """Where tables have more to be read than a batch takes, batches read those first."""
        layer, records = 0, self.options.max_offsets
        if len(self.work.layers) > 1:
            last = self.work.history.newest()
            layer = layer_to_read(backlog(self._connection, self.work.layers, last.ends if last else {}), records)
        return BatchLimit(records=records, layer=layer)

    def _resumption(
        self, transaction: OutputTransaction, checkpoint: Checkpoint, last: BatchProof | None, enacted: Enacted | None
    ) -> Resumption:
        """Where the stream goes on, by its ledger, by Kafka and by its checkpoint; raises where it cannot."""
        partitions = [found for topic in self.work.topics for found in partitions_of(self._connection, topic)]
        starts = enacted.starts if enacted else None
        planned = checkpoint.last_planned()
        known = Known(
            stream=self.work.name,
            last=last,
            kafka=Standing.of(transaction.committed(partitions)),
            checkpoint=Planned(identity=checkpoint.identity, span=planned, folder=checkpoint.folder)
            if planned
            else None,
            # a partition that was added since the version began is read from its first record
            beginning={} if starts is None else {partition: starts.get(partition, 0) for partition in partitions},
            was_planned_by=lambda identity: any(
                entry.proof.checkpoint_id == identity for entry in self.work.history.newest_first()
            ),
            delta_first=self.work.delta_first,
            partitions=partitions,
        )
        resumption = known.resumption()
        places = {place: at for place, at in known.next_offsets(resumption).items() if place in partitions}
        require_unread_kept(self._connection, self.work.name, places)
        return resumption

    def _repeated(
        self, resumption: Resumption, last: BatchProof | None, enacted: Enacted | None
    ) -> tuple[Unfinished, ...]:
        """Batches to repeat under their own names before anything new begins; raises where that is not possible."""
        repeated = []
        if last is not None and self.work.lacks(last, in_flight=resumption.in_flight is not None):
            if enacted is not None and enacted.after is not None and last.order <= enacted.after:
                raise Terminal.of(
                    "table-lacks-a-batch-of-before",
                    given=f"batch {last.generation}/{last.batch}, upgraded after it",
                    name=self.work.name,
                )
            repeated.append(Unfinished.of_proof(last))
        if resumption.unfinished is not None:
            repeated.append(resumption.unfinished)
        for unfinished in repeated:
            require_kept(self._connection, unfinished.span.start, unfinished.span.end)
        return tuple(repeated)

    def _repeat(self, unfinished: Unfinished, attempt: Attempt) -> None:
        """Append a batch that Kafka has to the tables that lack it; all else is as if its driver had not stopped."""
        span, name = unfinished.span, f"{unfinished.generation}/{unfinished.span.batch}"
        _LOG.info("completing batch %s, which Kafka has and not all tables: %s to %s", name, span.start, span.end)
        plan = OneBatch(identity=unfinished.checkpoint_id, span=span)
        records = kafka_range(
            self.session,
            self._connection.of_spark,
            self.work.topics,
            start=span.start,
            end=span.end,
            headers=self.work.with_headers,
        )
        again = replace(attempt, checkpoint=plan, generation=unfinished.generation, published=True)
        self.work.processor(again)(records, span.batch)

    def _watch(
        self,
        query: StreamQuery,
        reports: StreamReports,
        control: ControlChannel,
        listener: ProgressListener,
        status: StreamStatus,
    ) -> StreamStatus:
        """Report until the query ends; a requested stop waits for the batch at hand. Returns the last status."""
        heartbeat_due = 0.0
        size = BatchSize.first(query.limit.records, self.options.target_batch_ms)
        last_layer = len(self.work.layers) - 1
        while query.is_active or (self.options.available_now and query.limit.layer < last_layer):
            limit = query.limit
            if not query.is_active:
                limit = replace(limit, layer=limit.layer + 1)
            if control.stop_requested() or (self.shared and self.shared.is_stopping(self.work.name)):
                _LOG.info("stop requested")
                status = replace(status, state="stopping", heartbeat_ms=clock_ms())
                reports.tell(status)
                with reports.speaking(status, self._signs, query.job_group):
                    query.stop()
                break
            for progress in listener.take(timeout_s=0.5):
                status = progressed(status, progress, query.processor.last)
                size = size.after(progress.records, progress.duration_ms, progress.lag)
                if progress.lags and not self.options.available_now:
                    # not by the size at hand: a busy table could always have more left than a small batch takes
                    layer = layer_to_read(progress.lags, self.options.max_offsets)
                    limit = replace(limit, layer=max(limit.layer, layer))
                heartbeat_due = 0.0
            if not self.options.available_now:
                limit = replace(limit, records=size.records)
            if limit != query.limit:
                with reports.speaking(status, self._signs, query.job_group):
                    query.go_on(limit)
            if time.monotonic() >= heartbeat_due:
                now = replace(status, batch_begun_ms=query.batch_begun_ms)
                status = reports.looked(now, self._signs, query.job_group)
                reports.tell(status)
                heartbeat_due = time.monotonic() + self.options.heartbeat_s
        query.await_end()
        for progress in listener.rest(timeout_s=2.0):
            status = progressed(status, progress, query.processor.last)
        return status

    def _first_status(self, lease_epoch: int) -> StreamStatus:
        return replace(
            StreamStatus.first(self.work.name, lease_epoch, self.session.sparkContext.applicationId),
            fingerprint=self.work.declared.fingerprint,
            stream_version=self._declarations.version(),
            trigger_interval_ms=self.options.trigger_interval_ms,
        )


def checkpoint_location(settings: Settings, stream: str, version: int) -> str:
    """Where a version of a stream has its checkpoint: one of its own, for it begins with other offsets."""
    return f"{settings.checkpoints}/{stream}" + ("" if version == 1 else f"/version-{version}")


def is_final(error: BaseException) -> bool:
    """Whether a human must act: what Kafka's client calls fatal is over with a new one, and topics may be created.

    What the brokers refuse they would refuse of the next driver, too. A driver that is at work is no fault.
    """
    if isinstance(error, NotAllowed | NotAdmitted | Refused):
        return True
    passes = isinstance(error, MissingTopics | NotAlone) or isinstance(error.__cause__, KafkaException)
    return isinstance(error, Terminal) and not passes
