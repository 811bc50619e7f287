"""What the driver of a stream says of it, to its topic and to its metrics."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from recount.core.errors import RecountError
from recount.kafka.lease import Lease
from recount.kafka.status import StreamStatus
from recount.spark.driver_memory import DriverMemory
from recount.spark.driver_metrics import DriverMetrics
from recount.spark.progress import BatchProgress
from recount.spark.signs_of_work import SignsOfWork, now_ms
from recount.spark.unread_records import Unread, with_unread
from recount.spark.work import BatchResult

_LOG = logging.getLogger(__name__)
_LONG_BATCH_MS = 5_000
"""From then on Spark is asked what the tasks of a batch do."""
_LAST_JOBS = 4


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
        """Publish ``status``."""
        self.lease.publish(status)
        self.metrics.told(status)

    def looked(self, status: StreamStatus, signs: SignsOfWork, job_group: str) -> StreamStatus:
        """``status`` as of now: what is unread, and since when nothing was done about it.

        Signs of work are those that ``signs`` has had, and what Spark says of the jobs of ``job_group``.
        """
        begun_ms = signs.batch_begun_ms
        is_long = begun_ms is not None and now_ms() - begun_ms > _LONG_BATCH_MS
        signs.look(task_counts(self.session, job_group) if is_long else None)
        unread = self.unread()
        if unread is not None:
            signs.unread(unread.lag.readable, unread.lag.at_ms)
            status = with_unread(status, unread)
        return replace(self.with_memory(status), heartbeat_ms=now_ms(), waiting_since_ms=signs.waiting_since_ms)

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

    def with_memory(self, status: StreamStatus) -> StreamStatus:
        """``status`` with what is left to the driver now."""
        memory = self.memory()
        return replace(status, memory_used=memory.used, memory_left=memory.left, memory_limit=memory.limit)


def first_status(name: str, lease_epoch: int, session: SparkSession) -> StreamStatus:
    """What the driver of this process says of ``name`` when it has just taken the lease."""
    at_ms = now_ms()
    return StreamStatus(
        stream=name,
        driver_id=str(uuid.uuid4()),
        lease_epoch=lease_epoch,
        host=socket.gethostname(),
        pid=os.getpid(),
        state="starting",
        started_at_ms=at_ms,
        heartbeat_ms=at_ms,
        application_id=session.sparkContext.applicationId,
    )


def progressed(status: StreamStatus, progress: BatchProgress, last: BatchResult | None) -> StreamStatus:
    """``status`` after a batch, from Spark's progress and the proof of the ``last`` batch, which may be a later one."""
    status = replace(
        status,
        batch=progress.batch,
        records_total=status.records_total + progress.records,
        records_per_second=progress.records_per_second,
        batch_duration_ms=progress.duration_ms,
        last_progress_ms=now_ms(),
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
    """Of the last jobs of ``group`` which tasks have ended, and how many records the others have read.

    Executors say the latter with their heartbeats, every ten seconds. None where Spark cannot be asked.
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
