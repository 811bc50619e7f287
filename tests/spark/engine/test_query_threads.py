"""What is left of a query of Spark that has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.eventually import eventually

from recount.engine.driver.stream_query import StreamQuery
from recount.engine.exchange.work import Processor
from recount.engine.source.kafka_source import BatchLimit


class Counting:
    """Counts the records of all batches."""

    last = None
    held: dict[str, int] = {}

    def __init__(self) -> None:
        self.records = 0

    def __call__(self, records: DataFrame, _batch: int) -> None:
        self.records += records.count()


def test_a_query_that_goes_on_again_and_again_leaves_no_thread_behind(spark: SparkSession, tmp_path: Path) -> None:
    """Py4J gives each thread of the JVM that calls Python one of Python, for the life of the process.

    It looks through the connections of all of them at every call of the JVM.
    """
    lines = files_below(tmp_path / "lines")

    def start(_limit: BatchLimit, process: Callable[[DataFrame, int], None]) -> StreamingQuery:
        next(lines)
        writer = spark.readStream.text(str(tmp_path / "lines")).writeStream.trigger(availableNow=True)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(process).start()

    processor = Counting()
    query = StreamQuery(start, cast(Processor, processor), BatchLimit(records=100))
    query.await_end()
    client = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    before, connections = threading.active_count(), len(client.deque)
    for _ in range(3):
        query.go_on(BatchLimit(records=100))
        query.await_end()
    assert processor.records == 4
    assert eventually(threading.active_count, before) <= before
    assert len(client.deque) <= connections


def files_below(folder: Path) -> Iterator[Path]:
    """One more file with one line for each step."""
    folder.mkdir()
    number = 0
    while True:
        path = folder / f"{number}.txt"
        path.write_text(f"{number}\n")
        yield path
        number += 1
