"""Spark's query progress as a queue of plain values, one per batch."""

from __future__ import annotations

import json
import math
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)


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
        """All of it."""
        return None if self.lags is None else sum(self.lags)


class ProgressListener(StreamingQueryListener):
    """Collects the progress of the query named ``stream``; Spark calls it from a thread of its own."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._queue: queue.SimpleQueue[BatchProgress] = queue.SimpleQueue()
        self._run: str | None = None
        self._has_ended = threading.Event()

    def take(self, timeout_s: float) -> Iterator[BatchProgress]:
        """What has come since the last call; waits up to ``timeout_s`` seconds for the first."""
        try:
            yield self._queue.get(timeout=timeout_s)
            while True:
                yield self._queue.get_nowait()
        except queue.Empty:
            return

    def rest(self, timeout_s: float) -> Iterator[BatchProgress]:
        """What comes until Spark has said that the query has ended; waits up to ``timeout_s`` seconds for that."""
        self._has_ended.wait(timeout_s)
        return self.take(timeout_s=0)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  (Spark's name)
        """Its end is that of the last run: a query can be started again."""
        if event.name == self._stream:
            self._run = str(event.runId)
            self._has_ended.clear()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  (Spark's name)
        """A batch was committed."""
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
        """No more comes of this run."""
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
