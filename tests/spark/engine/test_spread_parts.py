"""Parts of a stream's keys in Spark's tasks make what one part on the driver makes, even when their processes end."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.unit.engine.engine import NOW_MS

from recount.declare.aggregates import SumTooLarge, count, total
from recount.declare.expressions import col
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import session
from recount.engine.commit.stream_tables import BatchRows, StreamTables
from recount.engine.exchange.graph_computation import MEMORY_OF_A_PART, GraphComputation
from recount.engine.exchange.part_hosts import is_executor, processes_of
from recount.engine.exchange.work import Computed
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.engine.state.graph_state import parts_in
from recount.engine.upkeep.memory import DriverMemory
from recount.tables.ledger import BatchProof

CLICKS = Topic(name="clicks", key="user", value=RecordSchema.of(user=STRING, page=STRING, n=LONG))
PARTITIONS = 3
_INPUT = "topic string, partition int, offset long, timestamp_ms long, key binary, value binary"
Row = tuple[str, int, int, int, bytes | None, bytes]


def clicks() -> Topology:
    """Sessions, the first of each page, and records as they are, beside each other."""
    keyed = stream(CLICKS).select_key(user=col("user"))
    sessions = keyed.windowed_by(session("100 ms", grace="300 ms")).aggregate(n=count(), sum=total("n")).emit_final()
    firsts = stream(CLICKS).deduplicate(col("page"), horizon="2 s")
    return Topology(
        name="clicks",
        sinks=[
            sessions.to(Topic(name="sessions", key="user")),
            firsts.select_key(page=col("page")).to(Topic(name="firsts", key="page")),
            keyed.filter(col("n") > 6).to(Topic(name="much", key="user")),
        ],
    )


def drawn(seed: int, batches: int, many: int) -> list[list[Row]]:
    """Records by batch: with null keys and users, in no order of time, some that cannot be read."""
    rnd, offsets, made = random.Random(seed), [0] * PARTITIONS, []
    for batch in range(batches):
        rows: list[Row] = []
        for place in range(many):
            partition = rnd.randrange(PARTITIONS)
            value = {"user": rnd.choice([None, *"abcdefghij"]), "page": f"p{rnd.randrange(200)}", "n": rnd.randrange(9)}
            text = b"{" if rnd.random() < 0.02 else json.dumps(value).encode()
            at_ms = batch * 20_000 + place * 20 - rnd.randrange(800)
            rows.append(("clicks", partition, offsets[partition], max(at_ms, 0), None, text))
            offsets[partition] += 1
        made.append(rows)
    return made


@dataclass
class Run:
    """One stream in Spark, batch by batch; a batch of ``spread_from`` records has its keys dealt out from then on."""

    spark: SparkSession
    root: Path
    topology: Topology
    spread_from: int
    memory: Callable[[], DriverMemory] = DriverMemory.now
    computed: list[Computed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.computation = self._computation()
        outputs = {sink.table: self.computation.output_schema(sink) for sink in self.computation.sinks}
        name = self.topology.name
        self.tables = StreamTables(name, str(self.root), state=self.computation.state_schema, outputs=outputs)
        self.tables.create()
        self.clock = PartitionClock.after(None)
        self.computation.recover(self.tables, (0, 0), self.clock)

    def batch(self, rows: Sequence[Row]) -> Computed:
        number = len(self.computed)
        start = {(row.topic, row.partition): row.end for row in self.clock.partitions.values()}
        start = {("clicks", part): start.get(("clicks", part), 0) for part in range(PARTITIONS)}
        end = {place: first + sum(row[:2] == place for row in rows) for place, first in start.items()}
        span = BatchRange(batch=number, timestamp_ms=NOW_MS, start=start, end=end)
        computed = self.computation.compute(self._records(rows), span, self.clock, (0, number))
        self.tables.append(
            BatchRows(
                state=computed.state,
                late=computed.late,
                rejected=computed.rejected,
                emitted=computed.emitted,
                files=computed.files,
            ),
            BatchProof(
                stream=self.topology.name,
                generation=0,
                batch=number,
                checkpoint_id="one",
                lease_epoch=1,
                batch_timestamp_ms=NOW_MS,
                partitions=tuple(computed.after.partitions.values()),
                frontier_ms=computed.after.frontier_ms,
            ),
        )
        self.clock = computed.after
        self.computed.append(computed)
        return computed

    def restart(self) -> None:
        self.computation = self._computation()
        self.computation.recover(self.tables, (0, len(self.computed)), self.clock)

    def told(self) -> list[object]:
        """What does not depend on parts."""
        outputs = {name: rows(table.read().collect()) for name, table in self.tables.outputs.items()}
        records = [{table: rows(columns) for table, columns in one.records.items()} for one in self.computed]
        sides = [(rows(one.late), rows(one.rejected)) for one in self.computed]
        return [outputs, records, sides, [one.after for one in self.computed]]

    def _computation(self) -> GraphComputation:
        return GraphComputation(self.topology, spread_from=self.spread_from, fewest_cores=2, memory=self.memory)

    def _records(self, rows: Sequence[Row]) -> DataFrame:
        frame = self.spark.createDataFrame(list(rows), _INPUT)
        return frame.repartitionById(PARTITIONS, "partition").sortWithinPartitions("offset")


def rows(frame: pl.DataFrame) -> list[str]:
    return sorted(map(repr, frame.rows()))


def hosts() -> list[psutil.Process]:
    """The processes that hold parts for the JVM of this test."""
    children = psutil.Process().children(recursive=True)
    return [psutil.Process(pid) for one in children if is_executor(one) for pid in processes_of(one)]


def routed() -> Topology:
    """Records that need no other."""
    keyed = stream(CLICKS).select_key(user=col("user"))
    return Topology(
        name="routed",
        sinks=[
            keyed.filter(col("n") > 4).to(Topic(name="many", key="user")),
            keyed.filter(col("n") <= 4).to(Topic(name="few", key="user")),
        ],
    )


@pytest.fixture(scope="module")
def log() -> list[list[Row]]:
    return drawn(7, 5, 600)


@pytest.fixture(scope="module")
def alone(spark: SparkSession, log: list[list[Row]], tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    run = Run(spark, tmp_path_factory.mktemp("alone"), clicks(), spread_from=10_000)
    for batch in log:
        run.batch(batch)
    assert parts_in(run.tables.state.read()) == 1
    assert sum(one.records["sessions"].height for one in run.computed) > 100
    return run.told()


def test_parts_make_what_one_makes(
    spark: SparkSession, log: list[list[Row]], alone: list[object], tmp_path: Path
) -> None:
    run = Run(spark, tmp_path, clicks(), spread_from=100)
    for number, batch in enumerate(log):
        if number == 3:
            run.restart()
        if number == 4:
            for host in hosts():
                os.kill(host.pid, signal.SIGKILL)
        run.batch(batch)
    assert parts_in(run.tables.state.read()) == spark.sparkContext.defaultParallelism > 1
    assert run.told() == alone


def test_tasks_write_the_tables_of_sinks_that_need_nothing_else(
    spark: SparkSession, log: list[list[Row]], tmp_path: Path
) -> None:
    by_driver, by_tasks = (Run(spark, tmp_path / str(many), routed(), spread_from=many) for many in (10_000, 100))
    for batch in log[:3]:
        by_driver.batch(batch)
        by_tasks.batch(batch)
    assert not any(one.files for one in by_driver.computed)
    assert [len(one.files.get("outputs/many", ())) for one in by_tasks.computed] == [0, PARTITIONS, PARTITIONS]
    assert by_tasks.told() == by_driver.told()


def test_an_error_of_a_part_is_that_of_one_part(spark: SparkSession, tmp_path: Path) -> None:
    def too_large(name: str, spread_from: int) -> SumTooLarge:
        run = Run(spark, tmp_path / name, clicks(), spread_from=spread_from)
        run.batch(drawn(1, 1, 50)[0])
        value = json.dumps({"user": "a", "page": "p", "n": 2**62}).encode()
        starts = [part.end for part in run.clock.partitions.values()]
        many: list[Row] = [("clicks", 0, starts[0] + place, 90_000, None, value) for place in range(3)]
        many += [("clicks", part, starts[part], 200_000, None, value) for part in range(PARTITIONS)[1:]]
        with pytest.raises(SumTooLarge) as caught:
            run.batch([*many, ("clicks", 0, starts[0] + 3, 200_000, None, value)])
        return caught.value

    alone, spread = too_large("alone", 10_000), too_large("spread", 10)
    assert str(alone) == str(spread)
    assert alone.record == spread.record


def test_where_memory_is_short_all_keys_stay_on_the_driver(
    spark: SparkSession, log: list[list[Row]], tmp_path: Path
) -> None:
    little = DriverMemory(used=0, left=MEMORY_OF_A_PART, limit=2**30)
    run = Run(spark, tmp_path, clicks(), spread_from=100, memory=lambda: little)
    for batch in log[:2]:
        run.batch(batch)
    assert parts_in(run.tables.state.read()) == 1


def test_where_tasks_do_not_see_the_tables_all_keys_stay_on_the_driver(
    spark: SparkSession, log: list[list[Row]], alone: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Run(spark, Path("tables"), clicks(), spread_from=100)
    for batch in log:
        run.batch(batch)
    assert parts_in(run.tables.state.read()) == 1
    assert run.told() == alone
