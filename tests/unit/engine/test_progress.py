"""What the listener makes of Spark's progress reports."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

import pytest
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from recount.engine.driver.stream_query import BatchProgress, ProgressListener


def report(stream: str = "orders", rate: float = 2.0, **offsets: Any) -> QueryProgressEvent:
    source = {"description": "Kafka", "startOffset": None, "numInputRows": 10, **offsets}
    source |= {"inputRowsPerSecond": 1.0, "processedRowsPerSecond": 2.0}
    document = {
        "id": "3f4c2a10-0000-4000-8000-000000000001",
        "runId": "3f4c2a10-0000-4000-8000-000000000002",
        "name": stream,
        "timestamp": "2026-11-21T00:00:00.000Z",
        "batchId": 7,
        "batchDuration": 40,
        "durationMs": {"triggerExecution": 40},
        "eventTime": {},
        "stateOperators": [],
        "sources": [source],
        "sink": {"description": "ForeachBatch", "numOutputRows": -1},
        "numInputRows": 10,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": rate,
        "observedMetrics": {},
    }
    return QueryProgressEvent(StreamingQueryProgress.fromJson(document))


def heard(event: QueryProgressEvent) -> list[BatchProgress]:
    listener = ProgressListener("orders")
    listener.onQueryProgress(event)
    return list(listener.take(timeout_s=0.01))


def test_lag_is_what_the_broker_has_and_the_batch_has_not() -> None:
    event = report(endOffset={"orders": {"0": 10, "1": 5}}, latestOffset={"orders": {"0": 30, "1": 5}})
    assert heard(event) == [BatchProgress(batch=7, records=10, records_per_second=2.0, duration_ms=40, lags=(20,))]


@pytest.mark.parametrize("missing", [None, "None"])
def test_a_replayed_batch_is_heard_of_though_spark_does_not_say_what_the_broker_has(missing: str | None) -> None:
    [progress] = heard(report(endOffset={"orders": {"0": 10}}, latestOffset=missing))
    assert progress.lag is None


@pytest.mark.parametrize("stream", ["payments", "order"])
def test_another_stream_of_the_application_is_not_ours(stream: str) -> None:
    assert heard(report(stream, endOffset={"orders": {"0": 1}}, latestOffset={"orders": {"0": 1}})) == []


@pytest.mark.parametrize("rate", [float("inf"), float("nan")])
def test_a_batch_that_took_no_time_has_no_rate_that_a_status_could_not_carry(rate: float) -> None:
    offsets = {"endOffset": {"orders": {"0": 1}}, "latestOffset": {"orders": {"0": 1}}}
    [progress] = heard(report(rate=rate, **offsets))
    assert progress.records_per_second == 0.0


def test_what_comes_before_the_end_of_the_last_run_is_waited_for_and_no_longer() -> None:
    listener, query, runs = ProgressListener("orders"), uuid.uuid4(), [uuid.uuid4(), uuid.uuid4()]
    now = "2026-11-21T00:00:00.000Z"
    ends = [QueryTerminatedEvent(query, run, exception=None, errorClassOnException=None) for run in runs]
    for run in runs:
        listener.onQueryStarted(QueryStartedEvent(query, run, "orders", now, set()))
    listener.onQueryStarted(QueryStartedEvent(uuid.uuid4(), uuid.uuid4(), "payments", now, set()))
    listener.onQueryTerminated(ends[0])

    def last() -> None:
        offsets = {"endOffset": {"orders": {"0": 1}}, "latestOffset": {"orders": {"0": 1}}}
        listener.onQueryProgress(report(**offsets))
        listener.onQueryTerminated(ends[1])

    later, begun_s = threading.Timer(0.1, last), time.monotonic()
    later.start()
    assert [progress.batch for progress in listener.rest(timeout_s=60)] == [7]
    assert list(listener.rest(timeout_s=60)) == []
    assert time.monotonic() - begun_s < 30
    later.join()
