"""``make bench-ceiling``: the CPU that a million records cost the driver, which no further machine takes from it.

Records are read from files and not from Kafka, and results are not sent: what remains is decoding, operators, encoding
and tables. Each job runs with all keys on the driver and with a part of them on each of two cores, batch by batch.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
import psutil
import typer
from tests.local_spark import local_session

from bench.jobs import JOBS, orders_topic
from recount.declare.expressions import col
from recount.declare.operators.nodes import Sink
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.engine.commit.stream_tables import BatchRows, StreamTables
from recount.engine.exchange.graph_computation import GraphComputation
from recount.engine.exchange.part_hosts import is_executor, processes_of
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.profile.home import Project
from recount.tables.ledger import BatchProof

PARTITIONS, USERS, WARM_UP = 4, 10_000, 3
_START_MS = 1_767_225_600_000
_ORDER = '{"order_id":"o', '","user_id":"u', '","region":"EU","amount":"12.', '","status":"paid"}'
_SPARK = {"spark.sql.files.openCostInBytes": str(2**27)}
"""So that a task reads one file: the records of one partition."""


def _deduplication(source: str, output: str) -> list[Sink]:
    orders = stream(orders_topic(source)).deduplicate(col("order_id"), horizon="10 min")
    return [orders.to(Topic(name=output, key="user_id"))]


MEASURED: dict[str, Callable[[str, str], Sequence[Sink]]] = {
    **{name: job.flow for name, job in JOBS.items()},
    "deduplication-by-order": _deduplication,
}


def main(
    records: Annotated[int, typer.Option(help="Records of each job.")] = 2_000_000,
    batch: Annotated[int, typer.Option(help="Records of a batch.")] = 200_000,
    job: Annotated[list[str] | None, typer.Option(help="Only this job; may be repeated.")] = None,
    spread: Annotated[bool | None, typer.Option(help="Only this run of one job, in this process.")] = None,
) -> None:
    """Print a line for each job and run."""
    names = job or list(MEASURED)
    if spread is not None:
        print(measured(names[0], records, batch, spread=spread), flush=True)
        return
    print("job | keys | driver, CPU s per million | others, CPU s per million")
    for name in names:
        for run in ("--no-spread", "--spread"):
            told = ("--records", str(records), "--batch", str(batch), "--job", name, run)
            done = subprocess.run([sys.executable, "-m", "bench.ceiling", *told], stderr=subprocess.PIPE, text=True)
            if done.returncode:
                sys.exit(done.stderr)


@dataclass(frozen=True)
class Cpu:
    """CPU seconds so far, of this process and of all others of its driver."""

    driver: float
    others: float

    @classmethod
    def now(cls) -> Cpu:
        """Those of workers that have ended are with their parent."""
        here = psutil.Process()
        family = here.children(recursive=True)
        parts = [psutil.Process(pid) for one in family if is_executor(one) for pid in processes_of(one)]
        return cls(sum(here.cpu_times()[:2]), sum(sum(one.cpu_times()) for one in (*family, *parts)))


def measured(name: str, records: int, batch: int, *, spread: bool) -> str:
    """The CPU of the ``batch``es after the first ones, of the job ``name`` with its keys together or ``spread``."""
    topology = Topology(name="ceiling", sinks=MEASURED[name]("orders", "results"))
    topics = [source.topic.name for source in topology.sources]
    with tempfile.TemporaryDirectory() as root:
        project = Project.containing(Path(__file__).parent)
        spark = local_session(str(project.spark_jars), Path(root) / "spark", **_SPARK)
        computation = GraphComputation(topology, spread_from=1 if spread else sys.maxsize, fewest_cores=2)
        outputs = {sink.table: computation.output_schema(sink) for sink in computation.sinks}
        tables = StreamTables("ceiling", f"{root}/data", state=computation.state_schema, outputs=outputs)
        tables.create()
        clock = PartitionClock.after(None)
        computation.recover(tables, (0, 0), clock)
        begun, counted = Cpu(0, 0), 0
        for number, frames in enumerate(_batches(topics, records, batch)):
            folder = Path(root) / f"batch-{number}"
            folder.mkdir()
            ends = dict.fromkeys(clock.partitions, 0) | {place: frame.height for place, frame in frames.items()}
            for (topic, partition), frame in frames.items():
                frame.write_parquet(folder / f"{topic}-{partition}.parquet")
            start = {place: clock.partitions[place].end if place in clock.partitions else 0 for place in ends}
            end = {place: start[place] + many for place, many in ends.items()}
            span = BatchRange(batch=number, timestamp_ms=_START_MS + records * 10, start=start, end=end)
            if number == WARM_UP:
                begun = Cpu.now()
            made = computation.compute(spark.read.parquet(str(folder)), span, clock, (0, number))
            clock = made.after
            rows = BatchRows(
                state=made.state, late=made.late, rejected=made.rejected, emitted=made.emitted, files=made.files
            )
            tables.append(rows, _proof(number, clock))
            counted += sum(ends.values()) if number >= WARM_UP else 0
        ended = Cpu.now()
        spark.stop()
    figures = ((ended.driver - begun.driver) / counted * 1e6, (ended.others - begun.others) / counted * 1e6)
    return f"{name} | {'in parts' if spread else 'on the driver'} | {figures[0]:.1f} | {figures[1]:.1f}"


def _batches(topics: list[str], records: int, batch: int) -> Iterator[dict[tuple[str, int], pl.DataFrame]]:
    """Orders, a millisecond after each other and up to 3 s out of order, and with each its payment, by partition."""
    random = np.random.default_rng(1)
    for first in range(0, records, batch):
        order = pl.int_range(first, first + batch, eager=True).alias("order")
        user, late_ms = (pl.Series(random.integers(0, many, batch)) for many in (USERS, 3_000))
        cells = pl.DataFrame({"order": order, "user": user, "timestamp_ms": _START_MS + order - late_ms})
        for_order = (
            pl.lit(_ORDER[0]),
            "order",
            pl.lit(_ORDER[1]),
            "user",
            pl.lit(_ORDER[2]),
            pl.col("order") % 90 + 10,
        )
        values: dict[str, Any] = {
            "orders": pl.concat_str(*for_order, pl.lit(_ORDER[3])),
            "payments": pl.concat_str(pl.lit(_ORDER[0]), "order", pl.lit('","method":"card"}')),
        }
        made: dict[tuple[str, int], pl.DataFrame] = {}
        for topic in topics:
            is_orders = topic == "orders"
            key = pl.concat_str(pl.lit("u" if is_orders else "o"), "user" if is_orders else "order")
            rows = cells.select(
                pl.lit(topic).alias("topic"),
                (pl.col("user" if is_orders else "order") % PARTITIONS).cast(pl.Int32).alias("partition"),
                "timestamp_ms",
                key.cast(pl.Binary).alias("key"),
                values["orders" if is_orders else "payments"].cast(pl.Binary).alias("value"),
            ).with_columns(pl.int_range(pl.len()).over("partition").alias("offset"))
            made |= {(topic, part): rows.filter(pl.col("partition") == part) for part in range(PARTITIONS)}
        yield made


def _proof(number: int, clock: PartitionClock) -> BatchProof:
    return BatchProof(
        stream="ceiling",
        generation=0,
        batch=number,
        checkpoint_id="ceiling",
        lease_epoch=1,
        batch_timestamp_ms=_START_MS,
        partitions=tuple(clock.partitions.values()),
        frontier_ms=clock.frontier_ms,
    )


if __name__ == "__main__":
    typer.run(main)
