"""The general way, for every topology: the tasks decode, the operators run on the driver."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future

import polars as pl
from pyspark.sql import DataFrame

from recount.core.errors import require
from recount.core.nodes import Source
from recount.core.record_keys import topics_needing_a_key
from recount.core.topology import Topology, Written
from recount.spark.background import in_background
from recount.spark.checkpoint import BatchRange
from recount.spark.columns import IS_NULL, ORIGIN, REVISION, STREAM_TIME, TIMESTAMP
from recount.spark.computation import Computed, staged
from recount.spark.decode_stage import HAS_VALUE, RECORD_KEY, REJECTED, DecodeStage
from recount.spark.graph_state import STATE_SCHEMA, GraphState, since_snapshot
from recount.spark.operators.clock import READ_SCHEMA, Batch
from recount.spark.operators.graph import Graph, Made
from recount.spark.operators.operator import FATE, FATES
from recount.spark.operators.rows import LOG_ORDER, ORDER, SUPERSEDED, WITHIN, origin, rows_schema
from recount.spark.partition_clock import PartitionClock
from recount.spark.polars_expressions import field_column, polars_type
from recount.spark.stream_tables import Order, Schema, StreamTables, earlier

_LOG = logging.getLogger(__name__)

_PARTITION = ["topic", "partition"]
_META: Schema = {TIMESTAMP: pl.Int64(), REVISION: pl.Int32(), IS_NULL: pl.Boolean(), ORIGIN: pl.String()}


class GraphComputation:
    """Sends a batch's good records through the operators of ``topology``."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._graph = Graph(topology)
        self._state = GraphState(self._graph.states)
        self._recovery: Future[None] | None = None
        self._topics = {source.topic.name: source for source in topology.sources}
        self._sources = [node for node in topology.nodes() if isinstance(node, Source)]
        self.sinks = self._graph.sinks
        self.state_schema: Schema = STATE_SCHEMA
        for sink in self.sinks:
            _require_free_names(topology, sink)

    def output_schema(self, sink: Written) -> Schema:
        """The fields, the largest event time behind the row, its revision, whether it deletes, where it came from."""
        return {**{name: polars_type(kind) for name, kind in sink.fields.items()}, **_META}

    def recover(self, tables: StreamTables, before: Order, clock: PartitionClock) -> None:  # noqa: ARG002 - clocks are state
        """All that the operators remembered before the batch ``before``; read while the batch's tasks begin."""
        self._recovery = in_background("recovery", lambda: self._recover(tables, before))

    def _recover(self, tables: StreamTables, before: Order) -> None:
        rows = self.load(tables.state.read().filter(earlier(before)))
        if rows:
            _LOG.info("recovered %d rows of state before batch %d", rows, before[1])

    def load(self, written: pl.LazyFrame) -> int:
        """Start from the rows ``written`` to the state table; returns how many rows are held."""
        self._state.load(since_snapshot(written))
        return self._state.size

    def compute(self, records: DataFrame, span: BatchRange, clock: PartitionClock, before: Order) -> Computed:  # noqa: ARG002
        """Decode, process, encode."""
        stage = DecodeStage(
            sources=self._topics,
            keyed=topics_needing_a_key(self._topology),
            latest_ms=span.timestamp_ms + self._topology.max_future_ms,
        )
        decoded = staged(records, stage)
        if self._recovery:
            self._recovery.result()
        return self.computed(decoded, span, clock)

    def computed(self, tables: dict[str, pl.DataFrame], span: BatchRange, clock: PartitionClock) -> Computed:
        """What the batch comes to, given the ``tables`` of its ``DecodeStage``."""
        rejected = tables.pop(REJECTED)
        good = {topic: _timed(table, clock) for topic, table in tables.items()}
        read = pl.concat([table.select(list(READ_SCHEMA)) for table in good.values()])
        after = clock.advanced(span, _totals(read, rejected), self._topology.idle_after_ms)
        awake = {partition for partition, proof in after.partitions.items() if not proof.idle}
        batch = Batch(read=read, known=after.partitions.keys(), awake=awake)
        sources = {source: _rows(source, good[source.topic.name]) for source in self._sources}
        made = self._graph.process(batch, sources)
        return Computed(
            after=after.with_counts(_counts(made.fates(read))),
            state=self._state.changes(),
            late=made.late,
            rejected=rejected,
            emitted=dict(self._emitted(made)),
        )

    def _emitted(self, made: Made) -> Iterator[tuple[str, pl.DataFrame]]:
        for sink in self.sinks:
            fields = [pl.col(field_column(name)).alias(name) for name in sink.fields]
            rows = made.written[sink].with_columns(origin(pl.col(ORDER)).alias(ORIGIN))
            yield sink.table, rows.select(*fields, *map(pl.col, _META))


def _require_free_names(topology: Topology, sink: Written) -> None:
    names = {*_META, "generation", "batch"}
    taken = sorted(names & set(sink.fields))
    require(
        not taken,
        f"fields of the sink {sink.topic.name} of {topology.name}",
        given=", ".join(taken),
        expected=f"none called {', '.join(sorted(names))}: these are columns of its table",
        remedy="rename it before the sink: .select(...)",
    )


def _timed(table: pl.DataFrame, clock: PartitionClock) -> pl.DataFrame:
    """``table`` with the stream time of each record's partition at its own offset."""
    carried = pl.DataFrame(
        [(*partition, ms) for partition, ms in clock.stream_times.items()],
        {**{name: READ_SCHEMA[name] for name in _PARTITION}, "__carried": pl.Int64()},
        orient="row",
    )
    known = table.join(carried, on=_PARTITION, how="left", maintain_order="left")
    reached = pl.max_horizontal(pl.col(TIMESTAMP).cum_max().over(_PARTITION), "__carried")
    return known.with_columns(reached.alias(STREAM_TIME)).drop("__carried")


def _rows(source: Source, good: pl.DataFrame) -> pl.DataFrame:
    """The good records of a topic as they leave ``source``."""
    keyed = good.with_columns(
        pl.col(RECORD_KEY).alias(field_column(source.key)),
        LOG_ORDER.alias(ORDER),
        (~pl.col(HAS_VALUE)).alias(IS_NULL),
        pl.lit(0, pl.Int32).alias(REVISION),
        pl.lit(False).alias(SUPERSEDED),
        pl.lit("").alias(WITHIN),
        pl.lit(None, pl.Int64).alias(STREAM_TIME),
    )
    return keyed.select(list(rows_schema(source.fields)))


def _totals(read: pl.DataFrame, rejected: pl.DataFrame) -> pl.DataFrame:
    """Per partition its stream time, and how many records were good and bad."""
    good = read.group_by(_PARTITION).agg(pl.col(STREAM_TIME).last(), pl.len().cast(pl.Int64).alias("good"))
    bad = rejected.group_by(_PARTITION).agg(pl.len().cast(pl.Int64).alias("dead_lettered"))
    both = good.join(bad, on=_PARTITION, how="full", coalesce=True).with_columns(
        pl.col("good", "dead_lettered").fill_null(0)
    )
    return both.with_columns((pl.col("good") + pl.col("dead_lettered")).alias("records")).drop("good")


def _counts(fates: pl.DataFrame) -> pl.DataFrame:
    """Per partition how many records met which fate."""
    return fates.group_by(_PARTITION).agg((pl.col(FATE) == fate).sum().cast(pl.Int64).alias(fate) for fate in FATES)
