"""A query loses no batch and repeats none where it is stopped and started, and its progress is followed."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery
from tests.batch_proofs import a_proof

from recount.engine.driver.group_host import answer_to
from recount.engine.driver.stream_query import ProgressListener, StreamQuery, Turns
from recount.engine.exchange.work import BatchResult
from recount.engine.source.kafka_source import BatchLimit
from recount.engine.upkeep.memory import DriverMemory, Headroom
from recount.runtime.errors import Terminal

Process = Callable[[DataFrame, int], None]
NO_RECORDS = cast(DataFrame, None)


class Batches:
    """A processor that remembers which batches it was called for; ``gate`` holds it up in the middle of each."""

    def __init__(self) -> None:
        self.last: BatchResult | None = None
        self.held: dict[str, int] = {}
        self.processed: list[int] = []
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, records: DataFrame, batch: int) -> None:  # noqa: ARG002 - there are none
        self.begun.set()
        assert self.gate.wait(5)
        self.processed.append(batch)
        proof = a_proof(batch)
        self.last = BatchResult(proof=proof, kafka_ms=0, delta_ms=0)


class FakeQuery:
    """Calls for ``batches`` in a thread of its own, as Spark does; ``stop`` waits for the call at hand, as Spark's."""

    def __init__(self, process: Process, batches: Sequence[int]) -> None:
        self._stopped = threading.Event()
        self._raised: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(process, batches), daemon=True)
        self._thread.start()

    def _run(self, process: Process, batches: Sequence[int]) -> None:
        for batch in batches:
            try:
                process(NO_RECORDS, batch)
            except Exception as error:
                self._raised = error
                return
            if self._stopped.is_set():
                return

    @property
    def isActive(self) -> bool:  # noqa: N802  (Spark's name)
        return self._thread.is_alive()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def awaitTermination(self) -> None:  # noqa: N802  (Spark's name)
        self._thread.join()
        if self._raised:
            raise RuntimeError("[STREAM_FAILED] a page of it") from self._raised


def query_of(processor: Batches, *plans: Sequence[int]) -> tuple[StreamQuery, list[int]]:
    """A query whose starts call for the batches of one plan after the other, and the sizes it was started with."""
    sizes: list[int] = []
    left: Iterator[Any] = iter(plans)

    def start(limit: BatchLimit, process: Process) -> StreamingQuery:
        sizes.append(limit.records)
        return cast(StreamingQuery, FakeQuery(process, next(left)))

    return StreamQuery(start, processor, BatchLimit(records=100)), sizes


def test_a_batch_that_was_done_but_not_noted_is_not_processed_twice() -> None:
    processor = Batches()
    query, _ = query_of(processor, [0, 1], [1, 2])
    query.await_end()
    query.go_on(BatchLimit(records=50))
    query.await_end()
    assert processor.processed == [0, 1, 2]


def test_a_stop_waits_for_the_batch_at_hand() -> None:
    processor = Batches()
    processor.gate.clear()
    query, _ = query_of(processor, [0, 1])
    assert processor.begun.wait(5)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    stopping.join(0.1)
    assert stopping.is_alive()
    processor.gate.set()
    stopping.join(5)
    assert not query.is_active
    assert processor.processed == [0]


def test_what_spark_calls_keeps_nothing_of_a_query_that_has_ended() -> None:
    """Py4J keeps it for the life of the process."""
    kept: list[Process] = []

    def start(_limit: BatchLimit, process: Process) -> StreamingQuery:
        kept.append(process)
        return cast(StreamingQuery, FakeQuery(process, [0]))

    processor = Batches()
    query = StreamQuery(start, processor, BatchLimit(records=100))
    query.await_end()
    ended = weakref.ref(processor)
    del processor, query
    gc.collect()
    assert ended() is None


class Broken(Exception):
    """What a processor raises."""


class Breaking(Batches):
    def __call__(self, records: DataFrame, batch: int) -> None:
        raise Broken(f"batch {batch} of {records}")


class Failing(FakeQuery):
    """Fails with Spark's own account of what the processor raised."""

    def _run(self, process: Process, batches: Sequence[int]) -> None:
        with contextlib.suppress(Broken, Terminal):
            for batch in batches:
                process(NO_RECORDS, batch)

    def awaitTermination(self) -> None:  # noqa: N802  (Spark's name)
        self._thread.join()
        raise RuntimeError("[STREAM_FAILED] a page of it")


def started_as(start: Callable[[Process], FakeQuery], processor: Batches, *limits: Headroom) -> StreamQuery:
    return StreamQuery(
        lambda _, process: cast(StreamingQuery, start(process)), processor, BatchLimit(records=100), *limits
    )


def test_what_a_processor_raised_is_what_the_query_failed_with() -> None:
    with pytest.raises(Broken, match="batch 7"):
        started_as(lambda process: Failing(process, [7]), Breaking()).await_end()


class OnItsWay(FakeQuery):
    """Its one batch comes when the stop has begun, and Spark tells of what was raised in it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._raised: Exception | None = None

    def stop(self) -> None:
        try:
            self._process(NO_RECORDS, 0)
        except Exception as error:
            self._raised = error

    def awaitTermination(self) -> None:  # noqa: N802  (Spark's name)
        if self._raised:
            raise RuntimeError("[STREAM_FAILED] a page of it") from self._raised


def test_a_batch_on_its_way_when_the_stop_comes_is_not_begun_and_the_next_query_begins_with_it() -> None:
    """Spark would interrupt it wherever it was."""
    processor = Batches()
    starts: list[Callable[[Process], FakeQuery]] = [OnItsWay, lambda process: FakeQuery(process, [0])]
    query = started_as(lambda process: starts.pop(0)(process), processor)
    query.stop()
    query.await_end()
    assert processor.processed == []
    query.go_on(BatchLimit(records=50))
    query.await_end()
    assert processor.processed == [0]


@pytest.mark.parametrize(("left", "begun"), [(0, []), (1, [0])])
def test_a_batch_without_memory_is_not_begun_and_the_query_fails_with_what_a_human_must_do(
    left: int, begun: list[int]
) -> None:
    processor = Batches()
    limited = Headroom(lambda: DriverMemory(used=1, left=left - len(processor.processed), limit=9, is_own=True))
    with pytest.raises(Terminal, match="no memory is left for another batch"):
        started_as(lambda process: Failing(process, [0, 1]), processor, limited).await_end()
    assert processor.processed == begun


NOW = "2026-11-21T00:00:00.000Z"
BEHIND = {"endOffset": {"orders": {"0": 10, "1": 5}}, "latestOffset": {"orders": {"0": 30, "1": 5}}}


def report(stream: str = "orders", rate: float = 2.0, **offsets: Any) -> QueryProgressEvent:
    source = {"description": "Kafka", "startOffset": None, "numInputRows": 10, **BEHIND, **offsets}
    source |= {"inputRowsPerSecond": 1.0, "processedRowsPerSecond": 2.0}
    ids = {name: f"3f4c2a10-0000-4000-8000-00000000000{number}" for number, name in enumerate(("id", "runId"))}
    document = {**ids, "name": stream, "timestamp": NOW, "batchId": 7, "batchDuration": 40, "sources": [source]}
    document |= {"durationMs": {"triggerExecution": 40}, "eventTime": {}, "stateOperators": [], "observedMetrics": {}}
    document |= {"sink": {"description": "ForeachBatch", "numOutputRows": -1}, "numInputRows": 10}
    document |= {"inputRowsPerSecond": 1.0, "processedRowsPerSecond": rate}
    return QueryProgressEvent(StreamingQueryProgress.fromJson(document))


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ({}, (10, 2.0, 20)),
        ({"latestOffset": None}, (10, 2.0, None)),
        ({"latestOffset": "None"}, (10, 2.0, None)),
        ({"rate": float("inf")}, (10, 0.0, 20)),
        ({"rate": float("nan")}, (10, 0.0, 20)),
        ({"stream": "payments"}, None),
        ({"stream": "order"}, None),
    ],
    ids=["behind", "replayed", "replayed, in words", "no time taken", "no rate", "another stream", "another name"],
)
def test_progress_is_of_this_stream_with_the_lag_that_spark_knows_and_a_rate_that_a_status_can_carry(
    said: dict[str, Any], heard: tuple[object, ...] | None
) -> None:
    listener = ProgressListener("orders")
    listener.onQueryProgress(report(**said))
    found = [(one.records, one.records_per_second, one.lag) for one in listener.take(timeout_s=0.01)]
    assert found == ([] if heard is None else [heard])


def test_what_comes_before_the_end_of_the_last_run_is_waited_for_and_no_longer() -> None:
    listener, query, runs = ProgressListener("orders"), uuid.uuid4(), [uuid.uuid4(), uuid.uuid4()]
    ends = [QueryTerminatedEvent(query, run, exception=None, errorClassOnException=None) for run in runs]
    for run in runs:
        listener.onQueryStarted(QueryStartedEvent(query, run, "orders", NOW, set()))
    listener.onQueryStarted(QueryStartedEvent(uuid.uuid4(), uuid.uuid4(), "payments", NOW, set()))
    listener.onQueryTerminated(ends[0])

    def last() -> None:
        listener.onQueryProgress(report())
        listener.onQueryTerminated(ends[1])

    later, begun_s = threading.Timer(0.1, last), time.monotonic()
    later.start()
    assert [progress.batch for progress in listener.rest(timeout_s=60)] == [7]
    assert list(listener.rest(timeout_s=60)) == []
    assert time.monotonic() - begun_s < 30
    later.join()


@pytest.mark.parametrize(
    ("last_epoch", "is_at_work", "has_spoken", "answer"),
    [
        (3, False, False, "run"),
        (3, True, False, "wait"),
        (3, True, True, "end"),
        (4, True, True, "done"),
        (4, False, False, "done"),
        (2, False, False, "run"),
    ],
    ids=["not at work", "starting", "to be run anew", "started since", "ended since", "a status that was lost"],
)
def test_a_stream_is_run_once_for_an_order_and_ended_first_where_a_new_run_is_wanted(
    last_epoch: int, is_at_work: bool, has_spoken: bool, answer: str
) -> None:
    assert answer_to(3, last_epoch, is_at_work=is_at_work, has_spoken=has_spoken) == answer


def test_a_batch_that_fails_or_hangs_does_not_hold_up_the_other_streams_for_good() -> None:
    turns = Turns(1, patience_s=0.05)
    with pytest.raises(ValueError, match="broken"), turns():
        raise ValueError("broken")
    begun_s = time.monotonic()
    with turns():
        assert time.monotonic() - begun_s < 0.05, "its turn was given back"
        for _ in range(2):
            with turns():
                assert time.monotonic() - begun_s >= 0.05, "it was waited for"
    with turns():
        assert not turns._free.acquire(blocking=False)
