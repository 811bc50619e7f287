"""Reports of a stream from its driver: statuses in its topic, and metrics over HTTP."""

import logging
import socket
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psutil
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql import SparkSession

from recount.engine.driver.signs_of_work import SignsOfWork
from recount.engine.driver.stream_query import BatchProgress
from recount.engine.exchange.work import BatchResult
from recount.engine.source.unread_records import Unread, with_unread
from recount.engine.state.keyed_rows import StateUse
from recount.engine.upkeep.memory import DriverMemory
from recount.kafka.connection import Connection
from recount.kafka.leases import Lease
from recount.kafka.status import StreamStatus, gauge, of_status, status_of, status_of_group
from recount.runtime.errors import RecountError, Terminal
from recount.runtime.times import clock_ms, told_time

_LOG = logging.getLogger(__name__)
_LOOPBACK = "127.0.0.1"
_OF_OPERATOR = ["stream", "operator"]
States = Callable[[], Mapping[str, StateUse]]
_LONG_BATCH_MS = 5_000
"""From then on Spark is asked what the tasks of a batch do."""
_LAST_JOBS = 4


class DriverMetrics(Collector):
    """Metrics of the streams of this process. Used by the threads of streams and by those that answer scrapes."""

    def __init__(self) -> None:
        self._statuses: dict[str, StreamStatus] = {}
        self._states: dict[str, States] = {}

    def told(self, status: StreamStatus) -> None:
        self._statuses[status.stream] = status

    @contextmanager
    def of_states(self, stream: str, states: States) -> Iterator[None]:
        """Tell meanwhile what the operators of ``stream`` keep; nothing of it is held any longer afterwards."""
        self._states[stream] = states
        try:
            yield
        finally:
            del self._states[stream]

    def describe(self) -> Iterator[Metric]:
        """Nothing: which operators there are is known once streams run."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield from of_status(dict(self._statuses))
        used = {
            (stream, operator): use
            for stream, states in list(self._states.items())
            for operator, use in states().items()
        }
        rows = [(place, use.rows) for place, use in used.items()]
        yield gauge("operator_state_rows", "Rows that an operator keeps", _OF_OPERATOR, rows)
        sizes = [(place, use.bytes) for place, use in used.items()]
        yield gauge("operator_state_bytes", "Bytes of these rows in memory, without indexes", _OF_OPERATOR, sizes)
        puts = CounterMetricFamily("recount_operator_puts", "Rows written to state, or forgotten", labels=_OF_OPERATOR)
        gets = CounterMetricFamily("recount_operator_gets", "Identities looked for in state", labels=_OF_OPERATOR)
        for place, use in used.items():
            puts.add_metric(place, use.puts)
            gets.add_metric(place, use.gets)
        yield puts
        yield gets

    @contextmanager
    def served(self, port: int | None) -> Iterator[None]:
        """Answer scrapes at ``port`` of the loopback address meanwhile (None: at none).

        A port that is taken is logged, and nothing is answered: a stream does not stop for its metrics.
        """
        if port is None:
            yield
            return
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            server, thread = start_http_server(port, _LOOPBACK, registry)
        except OSError as error:
            _LOG.error("no metrics are served at port %d: %s", port, error.strerror)
            yield
            return
        _LOG.info("metrics at http://%s:%d/metrics", _LOOPBACK, port)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@dataclass(frozen=True, kw_only=True)
class StreamReports:
    """Publishes how the stream of ``lease`` is, at least every ``heartbeat_s`` seconds.

    ``memory`` and ``unread`` tell what is left to the driver and to read. Used by several threads.
    """

    lease: Lease
    metrics: DriverMetrics
    session: SparkSession
    heartbeat_s: float
    memory: Callable[[], DriverMemory]
    unread: Callable[[], Unread | None]

    def tell(self, status: StreamStatus) -> None:
        self.lease.publish(status)
        self.metrics.told(status)

    def looked(self, status: StreamStatus, signs: SignsOfWork, job_group: str) -> StreamStatus:
        """``status`` as of now: what is unread, and since when nothing was done about it.

        Signs of work are those that ``signs`` has had, and what Spark says of the jobs of ``job_group``.
        """
        begun_ms = signs.batch_begun_ms
        is_long = begun_ms is not None and clock_ms() - begun_ms > _LONG_BATCH_MS
        signs.look(task_counts(self.session, job_group) if is_long else None)
        unread = self.unread()
        if unread is not None:
            signs.unread(unread.lag.readable, unread.lag.at_ms)
            status = with_unread(status, unread)
        return replace(
            with_memory(status, self.memory()), heartbeat_ms=clock_ms(), waiting_since_ms=signs.waiting_since_ms
        )

    @contextmanager
    def speaking(self, status: StreamStatus, signs: SignsOfWork, job_group: str) -> Iterator[None]:
        """Publish ``status`` as of now, again and again, while this thread waits for what may take long.

        That says that the driver is there; whether it goes on, ``signs`` tell.
        """
        over = threading.Event()

        def speak() -> None:
            while not over.wait(self.heartbeat_s):
                try:
                    self.tell(self.looked(status, signs, job_group))
                except RecountError as error:
                    _LOG.warning("the status could not be published: %s", error)

        thread = threading.Thread(target=speak, name=f"heartbeat {status.stream}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def with_memory(status: StreamStatus, memory: DriverMemory) -> StreamStatus:
    """``status`` with what is left to the driver."""
    return replace(status, memory_used=memory.used, memory_left=memory.left, memory_limit=memory.limit)


def progressed(status: StreamStatus, progress: BatchProgress, last: BatchResult | None) -> StreamStatus:
    """``status`` after a batch, from Spark's progress and the proof of the ``last`` batch, which may be a later one."""
    status = replace(
        status,
        batch=progress.batch,
        records_total=status.records_total + progress.records,
        records_per_second=progress.records_per_second,
        batch_duration_ms=progress.duration_ms,
        last_progress_ms=clock_ms(),
    )
    if last is None:
        return status
    times = [part.stream_time_ms for part in last.proof.partitions if part.stream_time_ms is not None]
    lookup, asked, missed = last.worst_lookup or (None, 0, 0)
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
        lookup=lookup,
        lookup_records=asked,
        lookup_misses=missed,
        lookup_cause=last.newer_tables.get(lookup) if lookup else None,
    )


def task_counts(session: SparkSession, group: str) -> Hashable:
    """Tasks of the last jobs of ``group`` that have ended, and how many records the others have read.

    Executors report the latter with their heartbeats, every ten seconds. None where Spark cannot be asked.
    """
    context: Any = session.sparkContext
    tracker = context.statusTracker()
    try:
        found: list[Hashable] = []
        for job in sorted(tracker.getJobIdsForGroup(group))[-_LAST_JOBS:]:
            info = tracker.getJobInfo(job)
            if info is not None:
                found.append((job, info.status, *(_of_stage(context, stage) for stage in info.stageIds)))
        return tuple(found)
    except Exception:  # the application is ending, or the JVM does not answer
        return None


def _of_stage(context: Any, stage: int) -> Hashable:
    info = context.statusTracker().getStageInfo(stage)
    if info is None or not info.numActiveTasks:
        return stage, info and info.numCompletedTasks
    known = context._jsc.sc().statusStore().lastStageAttempt(stage)
    return stage, info.numCompletedTasks, known.inputRecords(), known.shuffleReadRecords()


class NotAlone(Terminal):
    """Another driver of the group is at work: nothing is wrong with it."""


_ANSWERS_WITHIN_MS = 30_000
"""A driver of which no status came for so long does not answer."""


def require_alone(connection: Connection, group: str) -> None:
    """Raise ``NotAlone`` where a driver of ``group`` is at work: a second one would take its streams away.

    One that is dead, or silent, may be succeeded.
    """
    status = status_of(connection, status_of_group(group))
    if status is None or not is_driven(status):
        return
    raise NotAlone.of(
        "group-has-a-driver",
        given=f"pid {status.pid} on {status.host}, heartbeat at {told_time(status.heartbeat_ms)} UTC",
        group=group,
    )


def is_driven(status: StreamStatus | None) -> bool:
    """Whether the process that said so is at work: it spoke lately, and is there if it is one of this host."""
    if status is None or status.is_over or clock_ms() - status.heartbeat_ms > _ANSWERS_WITHIN_MS:
        return False
    return status.host != socket.gethostname() or psutil.pid_exists(status.pid)
