"""Spark's query of one stream, which can be restarted between two batches, and its progress as plain values."""

import json
import logging
import math
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakMethod

from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from recount.engine.driver.signs_of_work import SignsOfWork
from recount.engine.exchange.work import Processor
from recount.engine.source.kafka_source import BatchLimit
from recount.engine.upkeep.memory import Headroom
from recount.kafka.connection import refusals_told
from recount.runtime.log_lines import about
from recount.runtime.times import clock_ms

Turn = AbstractContextManager[None]
_LOG = logging.getLogger(__name__)
StartQuery = Callable[[BatchLimit, Callable[[DataFrame, int], None]], StreamingQuery]
"""Starts a query with batches within a limit, given what ``foreachBatch`` calls."""


class Turns:
    """Lets ``most`` batches of the streams of one driver be processed at once.

    More would not be done sooner, and take memory at the same time. Nobody waits longer than ``patience_s``: a batch
    that hangs holds up no other stream for good.
    """

    def __init__(self, most: int, patience_s: float = 120.0) -> None:
        self._free = threading.Semaphore(most)
        self._patience_s = patience_s

    @contextmanager
    def __call__(self) -> Iterator[None]:
        has_turn = self._free.acquire(timeout=self._patience_s)
        try:
            yield
        finally:
            if has_turn:
                self._free.release()


def at_once() -> Turn:
    return nullcontext()


class _Stopped(Exception):
    """A batch that was planned and not begun before the query was stopped; the next query begins with it."""


@dataclass(eq=False)
class StreamQuery:
    """The query that ``start`` starts, with batches within ``limit``, and its ``processor``.

    Spark reads the limit when a query starts. A query that is started again goes on from its checkpoint, with
    the same processor and its state: a batch that Spark had planned keeps its range, one that it had not yet noted as
    done is not processed twice. A batch for which ``headroom`` sees no memory is not begun. Each batch waits for its
    ``turn``; ``batch_begun_ms`` is when the last one had it, by the clock of this process. Batches, and starts of the
    query, are ``signs`` of work.
    """

    start: StartQuery
    processor: Processor
    limit: BatchLimit
    headroom: Headroom = field(default_factory=Headroom)
    turn: Callable[[], Turn] = at_once
    signs: SignsOfWork = field(default_factory=SignsOfWork)

    def __post_init__(self) -> None:
        self._between_batches = threading.Lock()
        self.batch_begun_ms: int | None = None
        self._failed: Exception | None = None
        self._called_by: Any = None
        self._is_stopping = self._left_one_out = False
        self._query = self.start(self.limit, _held_weakly(self._process))

    @property
    def is_active(self) -> bool:
        return self._query.isActive

    @property
    def job_group(self) -> str:
        """Under which Spark runs the jobs of its batches."""
        return str(self._query.runId)

    def go_on(self, limit: BatchLimit) -> None:
        begun_s = time.monotonic()
        self.stop()
        self.await_end()
        self.limit, self._is_stopping, self._left_one_out = limit, False, False
        self._query = self.start(limit, _held_weakly(self._process))
        self.signs.did()
        took_s = time.monotonic() - begun_s
        _LOG.info(
            "batches of at most %d records of layer %d; stopped and started in %.1f s",
            limit.records,
            limit.layer,
            took_s,
        )

    def stop(self) -> None:
        """Stop when the batch at hand is done; returns when it has ended.

        Spark interrupts the thread of a batch: one that came now would fail wherever it was.
        """
        self._is_stopping = True
        with self._between_batches:
            pass  # the batch at hand has ended
        self._query.stop()

    def await_end(self) -> None:
        """Wait for its end; raises what it failed with: what the processor raised, not Spark's account of it."""
        with refusals_told():
            try:
                self._query.awaitTermination()
            except Exception:
                if self._failed is None and not self._left_one_out:
                    raise
            finally:
                end_calls(self._called_by)
                self._called_by = None
            if self._failed is not None:
                raise self._failed

    def _process(self, records: DataFrame, batch: int) -> None:
        self._called_by = connection_of_this_thread()
        self.signs.did()
        with about(batch=batch), self.turn(), self._between_batches, self.signs.batch():
            if self._is_stopping:
                self._left_one_out = True
                raise _Stopped
            self.batch_begun_ms = clock_ms()
            last = self.processor.last
            if last is None or batch > last.proof.batch:
                try:
                    self.headroom.require(lambda: self.processor.held)
                    with self.headroom.measured():
                        self.processor(records, batch)
                except Exception as error:
                    self._failed = error
                    raise


def _held_weakly(process: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """``process`` for Spark: Py4J keeps what it calls as long as its process lives.

    A driver that starts streams again and again would keep the state and the Kafka clients of each one that ended.
    """
    method = WeakMethod(process)

    def called(records: DataFrame, batch: int) -> None:
        found = method()
        if found is None:
            raise _Stopped
        found(records, batch)

    return called


def connection_of_this_thread() -> Any:
    """Py4J's connection by which the JVM calls the current thread; None where no JVM does."""
    client = _client()
    return client and client.get_thread_connection()


def end_calls(connection: Any) -> None:
    """Let the thread of Python end that waits on ``connection``: the thread of the JVM that called has ended.

    Py4J keeps both sides for as long as the process lives, one more for each query that was ever started, and looks
    through all connections at every call of the JVM.
    """
    if (client := _client()) is None or connection is None:
        return
    with suppress(ValueError):  # it made no calls itself
        client.deque.remove(connection)
    # the waiting thread holds the lock of what it reads from: only the socket can be ended from here
    with suppress(OSError, AttributeError):  # it has ended already
        connection.socket.shutdown(socket.SHUT_RDWR)


def _client() -> Any:
    gateway = SparkContext._gateway
    return None if gateway is None else gateway._gateway_client


@dataclass(frozen=True, kw_only=True)
class BatchProgress:
    """One batch as Spark saw it.

    ``lag`` counts the records on the broker that were not read when it was planned; None for a batch that is replayed
    after a restart, which Spark plans from its checkpoint without asking the broker. ``lags`` are those of its sources
    by layer, the one that is read first first.
    """

    batch: int
    records: int
    records_per_second: float
    duration_ms: int
    lags: tuple[int, ...] | None

    @property
    def lag(self) -> int | None:
        return None if self.lags is None else sum(self.lags)


class ProgressListener(StreamingQueryListener):
    """Collects the progress of the query named ``stream``; Spark calls it from a thread of its own."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._queue: queue.SimpleQueue[BatchProgress] = queue.SimpleQueue()
        self._run: str | None = None
        self._has_ended = threading.Event()

    def take(self, timeout_s: float) -> Iterator[BatchProgress]:
        """Progress since the last call; waits up to ``timeout_s`` seconds for the first."""
        try:
            yield self._queue.get(timeout=timeout_s)
            while True:
                yield self._queue.get_nowait()
        except queue.Empty:
            return

    def rest(self, timeout_s: float) -> Iterator[BatchProgress]:
        """Progress up to the end of the query, as Spark reports it; waits up to ``timeout_s`` seconds for that."""
        self._has_ended.wait(timeout_s)
        return self.take(timeout_s=0)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  (Spark's name)
        """Its end is that of the last run: a query can be started again."""
        if event.name == self._stream:
            self._run = str(event.runId)
            self._has_ended.clear()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  (Spark's name)
        progress = event.progress
        if progress.name != self._stream or not progress.sources:
            return
        lags = [_lag(source.latestOffset, source.endOffset) for source in reversed(progress.sources)]
        known = tuple(lag for lag in lags if lag is not None)
        self._queue.put(
            BatchProgress(
                batch=progress.batchId,
                records=progress.numInputRows,
                records_per_second=_finite(progress.processedRowsPerSecond),
                duration_ms=progress.durationMs.get("triggerExecution", 0),
                lags=known if len(known) == len(lags) else None,
            )
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  (Spark's name)
        """No new records: the heartbeat says that the stream lives."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  (Spark's name)
        if str(event.runId) == self._run:
            self._has_ended.set()


def _finite(rate: float) -> float:
    """Spark divides by the duration of the batch, which can be 0: then there is no rate to tell."""
    return rate if math.isfinite(rate) else 0.0


def _lag(latest: str, end: str) -> int | None:
    """The difference of two of Spark's offsets; it words a missing one as None or null."""
    return None if latest in ("None", "null") else _total(latest) - _total(end)


def _total(offsets: str) -> int:
    topics: dict[str, dict[str, int]] = json.loads(offsets)
    return sum(offset for partitions in topics.values() for offset in partitions.values())
