"""Spark's checkpoint, as this version of Spark writes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from threading import Event
from typing import cast

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.eventually import eventually

from recount.engine.driver.stream_query import StreamQuery
from recount.engine.driver.stream_reports import task_counts
from recount.engine.exchange.work import Processor
from recount.engine.source.checkpoint import BatchRange, Checkpoint
from recount.engine.source.kafka_source import BatchLimit
from recount.runtime.errors import Terminal

METADATA = '{"id":"3f4c2a10-0000-4000-8000-000000000001"}'


def write(folder: Path, name: str, *lines: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines))


def planned(folder: Path, batch: int, timestamp_ms: int, offsets: str) -> None:
    write(folder, f"offsets/{batch}", "v1", f'{{"batchWatermarkMs":0,"batchTimestampMs":{timestamp_ms}}}', offsets)


@pytest.fixture
def location(tmp_path: Path) -> Path:
    write(tmp_path, "metadata", METADATA)
    return tmp_path


def test_a_checkpoint_without_offsets_has_planned_nothing(spark: SparkSession, location: Path) -> None:
    assert Checkpoint(spark, str(location / "nowhere")).last_planned() is None
    write(location, "offsets/.0.tmp", "half")
    assert Checkpoint(spark, str(location)).last_planned() is None


def test_the_last_planned_batch_is_known_when_spark_has_removed_its_first_offsets(
    spark: SparkSession, location: Path
) -> None:
    for batch, offset in ((99, 5), (150, 7), (149, 6)):
        planned(location, batch, 1, f'{{"orders":{{"0":{offset}}}}}')
    last = Checkpoint(spark, str(location)).last_planned()
    assert last is not None
    assert (last.batch, last.start, last.end) == (150, {("orders", 0): 6}, {("orders", 0): 7})


def test_a_batch_reads_from_the_end_of_the_one_before_and_a_new_partition_from_its_first_record(
    spark: SparkSession, location: Path
) -> None:
    planned(location, 4, 1_000, '{"orders":{"0":10,"1":20}}')
    planned(location, 5, 2_000, '{"orders":{"0":15,"1":20,"2":3}}')
    assert Checkpoint(spark, str(location)).range_of(5) == BatchRange(
        batch=5,
        timestamp_ms=2_000,
        start={("orders", 0): 10, ("orders", 1): 20, ("orders", 2): 0},
        end={("orders", 0): 15, ("orders", 1): 20, ("orders", 2): 3},
    )


def test_the_first_batch_reads_from_where_the_source_began(spark: SparkSession, location: Path) -> None:
    write(location, "sources/0/0", "\x00v1", '{"orders":{"0":100}}')
    planned(location, 0, 1_000, '{"orders":{"0":110}}')
    assert Checkpoint(spark, str(location)).range_of(0).start == {("orders", 0): 100}


def test_the_identity_is_the_query_id(spark: SparkSession, location: Path) -> None:
    assert Checkpoint(spark, str(location)).identity == "3f4c2a10-0000-4000-8000-000000000001"


def test_missing_offsets_are_named(spark: SparkSession, location: Path) -> None:
    with pytest.raises(Terminal) as error:
        Checkpoint(spark, str(location)).range_of(7)
    assert error.value.given == f"{location}/offsets/7"


def test_item_1_7_a_batch_of_several_layers_reads_what_all_sources_planned(spark: SparkSession, location: Path) -> None:
    write(location, "sources/0/0", "\x00v1", '{"orders":{"0":100}}')
    write(location, "sources/1/0", "\x00v1", '{"customers":{"0":7}}')
    planned(location, 0, 1_000, '{"orders":{"0":110}}\n{"customers":{"0":9}}')
    assert Checkpoint(spark, str(location), sources=2).range_of(0) == BatchRange(
        batch=0,
        timestamp_ms=1_000,
        start={("orders", 0): 100, ("customers", 0): 7},
        end={("orders", 0): 110, ("customers", 0): 9},
    )


def test_item_1_7_a_checkpoint_that_knows_no_layers_is_refused_with_what_to_do(
    spark: SparkSession, location: Path
) -> None:
    assert Checkpoint(spark, str(location), sources=2).last_planned() is None
    for batch in (2, 3):
        planned(location, batch, 1_000, '{"orders":{"0":110},"customers":{"0":9}}')
    assert Checkpoint(spark, str(location)).last_planned() is not None
    with pytest.raises(Terminal) as refused:
        Checkpoint(spark, str(location), sources=2).last_planned()
    assert "ledger" in str(refused.value.remedy)


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


def test_each_task_that_ends_is_seen_in_the_group_of_its_job_alone(spark: SparkSession) -> None:
    over = Event()

    def work() -> None:
        spark.sparkContext.setJobGroup("busy", "busy")
        spark.sparkContext.parallelize(range(8), 8).foreach(lambda _: time.sleep(0.3))
        over.set()

    before, seen = task_counts(spark, "busy"), set[Hashable]()
    thread = InheritableThread(target=work, daemon=True)
    thread.start()
    while not over.wait(0.1):
        seen.add(task_counts(spark, "busy"))
    assert len(seen - {before}) >= 3, seen
    thread.join()
    assert task_counts(spark, "busy") == task_counts(spark, "busy") != before
    assert task_counts(spark, "idle") == ()
