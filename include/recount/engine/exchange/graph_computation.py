"""The general way, for every topology: tasks take each record as far as it goes by itself, the driver goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame

from recount.declare.changes import NOTHING_ADDED, Additions
from recount.declare.columns import STREAM_TIME
from recount.declare.operators.keys_and_fields import topics_needing_a_key
from recount.declare.topology import Topology, Written
from recount.engine.commit.stream_tables import Order, Schema, StreamTables
from recount.engine.exchange.work import Computed, staged
from recount.engine.operators.batch_graph import Graph, Made
from recount.engine.operators.batch_operator import FATE, FATES, Batch, time_frame
from recount.engine.operators.batch_rows import (
    ENTRY,
    ORDER,
    PARTITION,
    REACHED,
    TOPIC,
    as_written,
    origin,
    written_schema,
)
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.engine.stage.map_stage import (
    ARROW_OUTPUT,
    IN_SECONDS,
    PLACE,
    REJECTED_SCHEMA,
    Partition,
    partition_of,
    to_ipc,
)
from recount.engine.stage.record_stage import (
    GOOD,
    IN_TASKS,
    REJECTED,
    SET_ASIDE,
    TIMES,
    TOTALS,
    VALUE,
    WRITTEN,
    RecordStage,
    RecordSteps,
)
from recount.engine.state.graph_state import STATE_SCHEMA, GraphState, since_snapshot
from recount.engine.state.keyed_rows import StateUse
from recount.engine.upkeep.trimming import in_background
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import earlier

_LOG = logging.getLogger(__name__)

_PARTITION = ["topic", "partition"]
RAW = "raw"
RAW_SCHEMA: dict[str, pl.DataType] = {**PLACE, "record_key": pl.Binary(), "record_value": pl.Binary()}

ReadAgain = Callable[[pl.DataFrame], pl.DataFrame]
"""The raw records (``RAW_SCHEMA``) at some places of the batch (``PLACE``)."""


class GraphComputation:
    """Sends a batch's good records through the operators of ``topology``, to which upgrades ``added`` something."""

    def __init__(self, topology: Topology, added: Additions = NOTHING_ADDED) -> None:
        self._topology = topology
        self._steps = RecordSteps(topology)
        self._graph = Graph(topology, done_before=self._steps.nodes, added=added)
        self._state = GraphState(self._graph.states)
        self._recovery: Future[None] | None = None
        self._keyed = topics_needing_a_key(topology)
        self._topics = {source.topic.name: source for source in topology.sources}
        self.sinks = topology.written
        self.state_schema: Schema = STATE_SCHEMA

    @property
    def held(self) -> Mapping[str, int]:
        """The number of rows that each operator holds, by the name of the state."""
        return {name: state.height for name, state in self._graph.states.items()}

    @property
    def used(self) -> Mapping[str, StateUse]:
        """How each operator uses what it remembers, by the name of the state."""
        return {name: state.use for name, state in self._graph.states.items()}

    def output_schema(self, sink: Written) -> Schema:
        """The fields, the largest event time behind the row, its revision, whether it deletes, where it came from."""
        return written_schema(sink.fields)

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
        decoded = staged(records, self.stage(span))
        if self._recovery:
            self._recovery.result()
        return self.computed(decoded, span, clock, read_again(records))

    def stage(self, span: BatchRange) -> RecordStage:
        """The work of the tasks on the batch ``span``."""
        return RecordStage(
            steps=self._steps,
            sources=self._topics,
            keyed=self._keyed,
            latest_ms=span.timestamp_ms + self._topology.max_future_ms,
            set_aside=span.set_aside,
        )

    def computed(
        self, tables: Mapping[str, pl.DataFrame], span: BatchRange, clock: PartitionClock, again: ReadAgain
    ) -> Computed:
        """The results of the batch, given the ``tables`` of its stage; ``again`` reads its records a second time."""
        rejected, totals = tables[REJECTED], tables[TOTALS]
        after = clock.advanced(
            span, _totals(totals, rejected, clock), self._topology.idle_after_ms, self._topology.layers
        )
        batch = Batch(
            reached={(row[TOPIC], row[PARTITION]): row[REACHED] for row in totals.iter_rows(named=True)},
            stood=clock.stream_times,
            times=tables[TIMES],
            known=after.partitions.keys(),
            awake={partition for partition, proof in after.partitions.items() if not proof.idle},
        )
        given = {rows.node: rows.rows(tables[name]) for name, rows in self._steps.handed_on.items()}
        made = self._graph.process(batch, given, tables[SET_ASIDE], tables[WRITTEN])
        written = {sink.table: tables[name] for name, sink in self._steps.sinks.items()}
        went_on = pl.concat(rows.select(ENTRY) for rows in (*given.values(), tables[WRITTEN]))
        counts = _counts(made, went_on, totals, rejected)
        if not made.raised.is_empty():
            rejected = pl.concat([rejected, with_raw(made.raised, again).select(list(REJECTED_SCHEMA))])
        return Computed(
            after=after.with_counts(counts),
            state=self._state.changes(),
            late=made.late,
            rejected=rejected,
            emitted={**{table: rows.drop(VALUE) for table, rows in written.items()}, **dict(_emitted(made))},
            encoded={table: rows[VALUE] for table, rows in written.items()},
            lookups=made.lookups,
        )


def _emitted(made: Made) -> Iterator[tuple[str, pl.DataFrame]]:
    for sink, rows in made.written.items():
        yield sink.table, as_written(rows, sink, origin=pl.lit(origin(rows[ORDER])))


def _totals(totals: pl.DataFrame, rejected: pl.DataFrame, clock: PartitionClock) -> pl.DataFrame:
    """Per partition its stream time, how many records were good and bad, and of how many the time is in seconds."""
    stood = time_frame(clock.stream_times).rename({STREAM_TIME: "stood"})
    good = totals.join(stood, on=_PARTITION, how="left").select(
        *_PARTITION, pl.max_horizontal(REACHED, "stood").alias(STREAM_TIME), GOOD, IN_SECONDS
    )
    both = good.join(_counted(rejected, "dead_lettered"), on=_PARTITION, how="full", coalesce=True).with_columns(
        pl.col(GOOD, "dead_lettered", IN_SECONDS).fill_null(0)
    )
    return both.with_columns((pl.col(GOOD) + pl.col("dead_lettered")).alias("records")).drop(GOOD)


def _counted(records: pl.DataFrame, name: str) -> pl.DataFrame:
    return records.group_by(_PARTITION).agg(pl.len().cast(pl.Int64).alias(name))


def _counts(made: Made, went_on: pl.DataFrame, totals: pl.DataFrame, rejected: pl.DataFrame) -> pl.DataFrame:
    """Per partition how many records met which fate, those that ``went_on`` from a task and those that did not.

    A record that was set aside has no other fate.
    """
    noted = made.fates(went_on.unique()).join(made.raised, on=ENTRY, how="anti")
    fates = noted.group_by(_PARTITION).agg((pl.col(FATE) == each).sum().cast(pl.Int64).alias(each) for each in FATES)
    bad = _counted(pl.concat([rejected.select(_PARTITION), made.raised.select(_PARTITION)]), "dead_lettered")
    both = pl.concat([fates, totals.select(*_PARTITION, *IN_TASKS)], how="diagonal").group_by(_PARTITION).sum()
    return both.join(bad, on=_PARTITION, how="full", coalesce=True).fill_null(0)


@dataclass(frozen=True, kw_only=True)
class RawStage:
    """The stage that lets the records at ``offsets`` pass as they are.

    A function of the topology raises when the raw bytes are dropped already: to keep them for the few records that need
    them would cost every batch. The batch's offsets are the same whenever it is read.
    """

    offsets: Mapping[Partition, Sequence[int]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one partition in, the table ``raw`` out."""
        for batch in batches:
            wanted = self.offsets.get(partition_of(batch)) if batch.num_rows else None
            if wanted:
                rows = pl.DataFrame(pl.from_arrow(batch)).filter(pl.col("offset").is_in(list(wanted)))
                table = rows.rename({"key": "record_key", "value": "record_value"}).select(list(RAW_SCHEMA))
                yield pa.record_batch([[RAW], [to_ipc(table)]], schema=ARROW_OUTPUT)

    def empty_tables(self) -> dict[str, list[pl.DataFrame]]:
        """The table without rows."""
        return {RAW: [pl.DataFrame(schema=RAW_SCHEMA)]}

    @classmethod
    def of(cls, places: pl.DataFrame) -> RawStage:
        """The stage for ``places`` (``PLACE``)."""
        grouped = places.group_by("topic", "partition").agg("offset").iter_rows()
        return cls(offsets={(topic, partition): offsets for topic, partition, offsets in grouped})


def read_again(records: DataFrame) -> ReadAgain:
    """Reads records of the batch ``records``."""
    return lambda places: staged(records, RawStage.of(places))[RAW]


def with_raw(rows: pl.DataFrame, read: ReadAgain) -> pl.DataFrame:
    """``rows``, each of one record of the batch, with raw key and value; raises ``Terminal`` where one is deleted."""
    raw = read(rows.select(list(PLACE)))
    found = rows.join(raw, on=list(PLACE), how="inner", maintain_order="left")
    if found.height != rows.height:
        raise Terminal(
            "a record that a batch has read is not there when it is read again",
            given=f"{found.height} of {rows.height} records",
            expected="the offsets of a batch hold the same records as long as it runs",
            remedy="look for retention that is shorter than a batch takes, then start the stream again",
        )
    return found
