"""A query that is stopped and started again between two batches loses none and repeats none."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from tests.batch_proofs import a_proof

from recount.engine.driver.stream_query import StreamQuery
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


def test_it_goes_on_with_another_size_and_the_same_processor() -> None:
    processor = Batches()
    query, sizes = query_of(processor, [0], [1])
    query.await_end()
    query.go_on(BatchLimit(records=50))
    query.await_end()
    assert (sizes, query.limit.records, processor.processed) == ([100, 50], 50, [0, 1])


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


def test_what_a_processor_raised_is_what_the_query_failed_with() -> None:
    query = StreamQuery(
        lambda _, process: cast(StreamingQuery, Failing(process, [7])), Breaking(), BatchLimit(records=100)
    )
    with pytest.raises(Broken, match="batch 7"):
        query.await_end()


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
    query = StreamQuery(
        lambda _, process: cast(StreamingQuery, starts.pop(0)(process)), processor, BatchLimit(records=100)
    )
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
    query = StreamQuery(
        lambda _, process: cast(StreamingQuery, Failing(process, [0, 1])),
        processor,
        BatchLimit(records=100),
        limited,
    )
    with pytest.raises(Terminal, match="no memory is left for another batch"):
        query.await_end()
    assert processor.processed == begun
