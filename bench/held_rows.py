"""What a batch of 10,000 records costs operators that hold many rows: ``python -m bench.held_rows [KEYS ...]``.

Each operator is given a state of so many keys, and then batches for keys drawn from these. Printed are the CPU
milliseconds of a batch in its operators, median of ten after four, and how long it took to read the state back from its
table, as a restart does.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
from deltalake import write_deltalake

from bench.ceiling import MEASURED
from bench.jobs import orders_topic
from recount.declare.columns import BATCH, GENERATION
from recount.declare.operators.nodes import Sink
from recount.declare.schema import STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.engine.exchange.graph_part import GraphPart, GraphPlan
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.engine.stage.intake import Partition
from recount.engine.state.graph_state import GraphState, since_snapshot
from recount.engine.state.keyed_rows import KeyedRows

RECORDS, PARTITIONS, WARM_UP, BATCHES = 10_000, 4, 4, 14
_START_MS = 1_767_225_600_000
_VALUE = ('{"order_id":"k', '","user_id":"k', '","region":"EU","amount":"12.30","status":"paid","method":"card"}')
_ARROW = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "timestamp_ms": pa.int64()}


def _lookup(source: str, output: str) -> list[Sink]:
    tiers = table(Topic(name="tiers", key="user_id", value=RecordSchema.of(method=STRING)))
    return [stream(orders_topic(source)).join_table(tiers, as_of="arrival").to(Topic(name=output, key="user_id"))]


FLOWS: dict[str, Callable[[str, str], Sequence[Sink]]] = {
    **{name: flow for name, flow in MEASURED.items() if name != "routing-by-region"},
    "lookup in a table": _lookup,
}


def main() -> None:
    """Measure each number of keys in turn."""
    print("operator | keys | rows | CPU ms of a batch | CPU s to read the state back")
    for name, flow in FLOWS.items():
        for keys in [int(given) for given in sys.argv[1:]] or [100_000, 10_000_000]:
            plan = GraphPlan(topology=Topology(name="held", sinks=flow("orders", "results")))
            part, read_s = _read_back(plan, keys)
            print(f"{name} | {keys:,} | {part.size:,} | {_batch_ms(plan, part, keys):.0f} | {read_s:.1f}", flush=True)


def _read_back(plan: GraphPlan, keys: int) -> tuple[GraphPart, float]:
    """A part with a state of so many ``keys``, and the CPU seconds that reading it took."""
    made, part = GraphPart(plan), GraphPart(plan)
    for name, (_, state) in made.graph.owners.items():
        if state != "waiting":
            made.graph.states[name].load(_rows(made.graph.states[name], keys))
    order = [pl.lit(0, pl.Int32).alias(GENERATION), pl.lit(0, pl.Int64).alias(BATCH)]
    with tempfile.TemporaryDirectory() as folder:
        state = GraphState(made.graph.states, made.graph.clocks)
        write_deltalake(folder, state.changes(whole=True).with_columns(order))
        begun_s = time.process_time()
        part.load(since_snapshot(pl.scan_delta(folder)))
        return part, time.process_time() - begun_s


def _rows(state: KeyedRows, keys: int) -> pl.DataFrame:
    """A row for each key; times are those of a second."""
    number = pl.int_range(keys)

    def column(name: str, kind: pl.DataType) -> pl.Expr:
        if kind == pl.String():
            return pl.concat_str(pl.lit("k"), number)
        if kind.is_numeric():
            is_time = "ms" in name or "window" in name
            return number if name == "arrived" else _START_MS - number % 1_000 if is_time else number % PARTITIONS
        return pl.lit(value=False) if kind == pl.Boolean() else pl.lit(None)

    return pl.select(number.alias("__")).select(
        column(name, kind).cast(kind).alias(name) for name, kind in state.schema.items()
    )


def _batch_ms(plan: GraphPlan, part: GraphPart, keys: int) -> float:
    clock, ends, took_s = PartitionClock.after(None), dict[Partition, int](), []
    dice = np.random.default_rng(1)
    for batch in range(BATCHES):
        start = dict(ends)
        frames = dict(_records(plan, dice.integers(0, keys, RECORDS), batch, ends))
        ends |= {place: start.get(place, 0) + rows.num_rows for place, rows in frames.items()}
        span = BatchRange(
            batch=batch, timestamp_ms=_START_MS + 10**9, start={place: start.get(place, 0) for place in ends}, end=ends
        )
        stage = plan.stage(span, clock)
        tables = stage.empty_tables()
        for rows in frames.values():
            for name, frame in stage.tables(iter([rows])).items():
                tables[name].append(frame)
        given = {name: pl.concat(frames) for name, frames in tables.items()}
        begun_s = time.process_time()
        part.process(given, span, clock, whole=False, published=lambda _: pl.LazyFrame())
        took_s.append(time.process_time() - begun_s)
        clock = plan.advanced(clock, span, given["totals"])
    return statistics.median(took_s[WARM_UP:]) * 1_000


def _records(
    plan: GraphPlan, drawn: np.ndarray, batch: int, first: Mapping[Partition, int]
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """An equal share of the records for each topic, by partition, for the keys ``drawn``."""
    topics = [source.topic.name for source in plan.topology.sources]
    for topic, keys in zip(topics, np.split(drawn, len(topics)), strict=True):
        for partition in range(PARTITIONS):
            key = pl.concat_str(pl.lit("k"), "key")
            rows = pl.DataFrame({"key": keys[keys % PARTITIONS == partition]}).select(
                pl.lit(topic).alias("topic"),
                pl.lit(partition, pl.Int32).alias("partition"),
                (pl.int_range(pl.len()) + first.get((topic, partition), 0)).alias("offset"),
                (_START_MS + batch * 100 + pl.int_range(pl.len()) % 50).alias("timestamp_ms"),
                key.cast(pl.Binary).alias("key"),
                pl.concat_str(pl.lit(_VALUE[0]), "key", pl.lit(_VALUE[1]), "key", pl.lit(_VALUE[2]))
                .cast(pl.Binary)
                .alias("value"),
            )
            schema = pa.schema({**_ARROW, "key": pa.binary(), "value": pa.binary()})
            arrow = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema).combine_chunks()
            yield (topic, partition), arrow.to_batches()[0]


if __name__ == "__main__":
    main()
