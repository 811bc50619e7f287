"""The general way, for every topology: tasks take each record as far as it goes by itself, parts of the keys go on."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Self

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from recount.declare.aggregates import SumTooLarge
from recount.declare.changes import NOTHING_ADDED, Additions
from recount.declare.topology import Topology, Written
from recount.engine.commit.output_records import record_columns, records_as
from recount.engine.commit.stream_tables import FILES, STATE, Order, Schema, StreamTables, files_in
from recount.engine.exchange.graph_part import (
    FATES_OF,
    LATE,
    LOOKUPS,
    NOWHERE,
    RAISED,
    USE,
    GraphPart,
    GraphPlan,
    counts_of,
    emitted_as,
)
from recount.engine.exchange.spread_parts import SpreadParts, tasks_see
from recount.engine.exchange.work import Computed, staged
from recount.engine.operators.batch_operator import Published
from recount.engine.operators.batch_rows import PARTITION, TOPIC, written_schema
from recount.engine.operators.batch_windows import with_record
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.operators.set_aside import one_of_each
from recount.engine.source.checkpoint import BatchRange
from recount.engine.stage.intake import ARROW_OUTPUT, PLACE, REJECTED_SCHEMA, Partition, partition_of, to_ipc
from recount.engine.stage.record_stage import GOOD, IN_TASKS, REJECTED, TOTALS, VALUE, RecordStage, RecordSteps
from recount.engine.state.graph_state import STATE_SCHEMA, is_much, parts_in, since_snapshot
from recount.engine.state.keyed_rows import StateUse
from recount.engine.upkeep.memory import DriverMemory
from recount.engine.upkeep.trimming import in_background
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import earlier

_LOG = logging.getLogger(__name__)

_PARTITION = [TOPIC, PARTITION]
MEMORY_OF_A_PART = 512 * 2**20
"""Bytes that the process of a part has to have, beside those of large states."""
FEWEST_CORES = 3
"""Two cores are busy already, with the tasks that decode and the driver: docs/decisions/0063 has what was measured."""
SPREAD_FROM = 20_000
"""Records of a batch from which on an exchange between tasks costs less than it gains."""
RAW = "raw"
RAW_SCHEMA: dict[str, pl.DataType] = {**PLACE, "record_key": pl.Binary(), "record_value": pl.Binary()}

Decode = Callable[[RecordStage], Mapping[str, pl.DataFrame]]
"""Runs a stage on the records of the batch."""
ReadAgain = Callable[[pl.DataFrame], pl.DataFrame]
"""The raw records (``RAW_SCHEMA``) at some places of the batch (``PLACE``)."""


class GraphComputation:
    """Sends a batch's good records through the operators of ``topology``, to which upgrades ``added`` something.

    The driver goes on from what leaves the tasks, until a batch has ``spread_from`` records or more. From the next one
    on tasks write the tables of their sinks. Where keys can be dealt out and there are ``fewest_cores`` or more, each
    core has a part of them, and that stays so.
    """

    def __init__(
        self,
        topology: Topology,
        added: Additions = NOTHING_ADDED,
        closed_ms: int | None = None,
        *,
        spread_from: int = SPREAD_FROM,
        fewest_cores: int = FEWEST_CORES,
        memory: Callable[[], DriverMemory] = DriverMemory.now,
    ) -> None:
        self.plan = GraphPlan(topology=topology, added=added, closed_ms=closed_ms)
        self._part: GraphPart | None = GraphPart(self.plan)
        self._tables: StreamTables | None = None
        self._spread: SpreadParts | None = None
        self._spread_from, self._fewest_cores, self._memory = spread_from, fewest_cores, memory
        self._stored = 1
        self._is_large = self._is_decided = False
        self._outputs: Mapping[str, str] = NOWHERE
        self._recovery: Future[int] | None = None
        self._use: dict[str, StateUse] = {}
        self._written = 0
        self.sinks = topology.written
        self.state_schema: Schema = STATE_SCHEMA

    @property
    def held(self) -> Mapping[str, int]:
        """The number of rows that each operator holds, by the name of the state."""
        return {name: use.rows for name, use in self.used.items()}

    @property
    def used(self) -> Mapping[str, StateUse]:
        """How each operator uses what it remembers, by the name of the state, as of the last batch."""
        return self._use

    def output_schema(self, sink: Written) -> Schema:
        """The fields, the largest event time behind the row, its revision, whether it deletes, where it came from."""
        return written_schema(sink.fields)

    def recover(self, tables: StreamTables, before: Order, clock: PartitionClock) -> None:  # noqa: ARG002 - clocks are state
        """All that the operators remembered before the batch ``before``; read while the batch's tasks begin."""
        self._tables = tables
        self._stored = parts_in(tables.state.read().filter(earlier(before)))
        if self._stored == 1 or self.plan.dealing is None:
            self._begin_to_load(before)

    def _begin_to_load(self, before: Order) -> None:
        assert self._tables is not None, "recover comes first"
        written = self._tables.state.read().filter(earlier(before))
        self._recovery = in_background("recovery", lambda: self.load(written))

    def _decide(self, session: SparkSession, before: Order) -> None:
        """Once batches are large, or where tasks had parts before: have tasks write the tables, and hold the keys."""
        if self._is_decided or self._tables is None or not (self._is_large or self._stored > 1):
            return
        self._is_decided = True
        parts = self._stored if self._stored > 1 else session.sparkContext.defaultParallelism
        if not self._deals(parts) and not self.plan.steps.sinks:
            return
        obstacle = self._obstacle(session, self._tables.state.path, parts)
        if obstacle is None:
            self._outputs = self._tables.folders
            if self._deals(parts):
                _LOG.info("from batch %d on, %d tasks have a part of the keys each", before[1], parts)
                self._spread, self._part = SpreadParts(self.plan, parts, self._tables), None
            return
        _LOG.warning("all keys stay on the driver: %s", obstacle)
        if self._stored > 1 and self.plan.dealing is not None:
            self._begin_to_load(before)

    def _deals(self, parts: int) -> bool:
        """Whether tasks are to hold so many ``parts`` of the keys."""
        return self.plan.dealing is not None and (self._stored > 1 or parts >= self._fewest_cores)

    def _obstacle(self, session: SparkSession, state: str, parts: int) -> str | None:
        """The obstacle to work of tasks on the tables, and what to do about it; None where there is none."""
        processes = parts if self._deals(parts) else 0
        left, needed = self._memory().left, processes * MEMORY_OF_A_PART
        is_here = (session.sparkContext.master or "").startswith("local")
        if is_here and left is not None and left < needed:
            need = f"{processes} processes need {needed >> 20} MiB"
            return f"{need}, and {left >> 20} MiB are left; give the driver more memory"
        if not tasks_see(session, state, parts):
            return f"tasks do not see the table {state}; put the tables on storage that driver and executors share"
        return None

    def load(self, written: pl.LazyFrame) -> int:
        """Start from the rows ``written`` to the state table; returns how many rows are held."""
        assert self._part is not None, "the driver has the only part"
        self._part.load(since_snapshot(written))
        return self._part.size

    def compute(self, records: DataFrame, span: BatchRange, clock: PartitionClock, before: Order) -> Computed:
        self._decide(records.sparkSession, before)
        try:
            made = self._made(records, span, clock, before)
        except SumTooLarge as error:
            raise self.with_its_record(error, lambda stage: staged(records, stage), span, clock) from None
        return self.computed(made, span, clock, read_again(records))

    def _made(
        self, records: DataFrame, span: BatchRange, clock: PartitionClock, before: Order
    ) -> dict[str, pl.DataFrame]:
        if self._spread is not None:
            return self._spread.process(records, span, clock, before, whole=self._is_much)
        decoded = staged(records, self.plan.stage(span, clock, before, self._outputs))
        if self._recovery:
            rows = self._recovery.result()
            self._recovery = None
            if rows:
                _LOG.info("recovered %d rows of state before batch %d", rows, before[1])
        return self.processed(decoded, span, clock, self._published(before))

    def _published(self, before: Order) -> Published:
        """The rows of output tables that batches before ``before`` have written."""

        def published(table: str) -> pl.LazyFrame:
            assert self._tables is not None, "recover comes first"
            return self._tables.outputs[table].read().filter(earlier(before))

        return published

    def with_its_record(self, error: SumTooLarge, run: Decode, span: BatchRange, clock: PartitionClock) -> SumTooLarge:
        """``error`` with the record that adds most; ``run`` has tasks hand on those that they have added up."""
        nodes = (one.node for one in self.plan.steps.reduced.values())
        begun = [node for node in nodes if error.aggregate in node.aggregates and node.key in error.about]
        if error.record is not None or not begun:
            return error
        steps = RecordSteps(self.plan.topology, reduces=False)
        decoded = run(replace(self.plan.stage(span, clock), steps=steps))
        rows = {sent.node: sent.rows(decoded[name]) for name, sent in steps.handed_on.items()}
        return next((told for node in begun if (told := with_record(error, rows[node.input], node)).record), error)

    def processed(
        self, tables: Mapping[str, pl.DataFrame], span: BatchRange, clock: PartitionClock, published: Published
    ) -> dict[str, pl.DataFrame]:
        """All that the one part makes of the ``tables`` of the tasks, with those that go no further."""
        assert self._part is not None, "the driver has the only part"
        return {**tables, **self._part.process(tables, span, clock, whole=self._is_much, published=published)}

    def computed(
        self, tables: Mapping[str, pl.DataFrame], span: BatchRange, clock: PartitionClock, again: ReadAgain
    ) -> Computed:
        """The results of the batch, of the ``tables`` of all parts; ``again`` reads its records a second time."""
        rejected, totals, raised = tables[REJECTED], tables[TOTALS], one_of_each(tables[RAISED])
        self._note(tables[USE], totals)
        counts = _counts(counts_of(tables[FATES_OF], raised), raised, totals)
        if not raised.is_empty():
            rejected = pl.concat([rejected, with_raw(raised, again).select(list(REJECTED_SCHEMA))])
        lookups = tables[LOOKUPS].group_by("lookup", maintain_order=True).agg(pl.col("asked", "missed").sum())
        by_tasks = {sink: name for name, sink in self.plan.steps.sinks.items()}
        emitted = {sink: tables[by_tasks.get(sink, emitted_as(sink.table))] for sink in self.sinks}
        made = {sink.table: record_columns(sink, rows, rows[VALUE]) for sink, rows in emitted.items()}
        return Computed(
            after=self.plan.advanced(clock, span, totals).with_counts(counts),
            state=tables[STATE],
            files=files_in(tables[FILES]),
            late=tables[LATE],
            rejected=rejected,
            emitted={sink.table: rows.drop(VALUE) for sink, rows in emitted.items()},
            records={table: pl.concat([rows, *_found(tables, records_as(table))]) for table, rows in made.items()},
            lookups={name: (asked, missed) for name, asked, missed in lookups.iter_rows()},
        )

    @property
    def _is_much(self) -> bool:
        return is_much(self._written, sum(self.held.values()))

    def _note(self, use: pl.DataFrame, totals: pl.DataFrame) -> None:
        """How much is held and was written since the last snapshot, and whether the batch was a large one."""
        sums = use.group_by("state", maintain_order=True).agg(pl.exclude("state").sum())
        self._written = int(sums["written"].sum())
        self._use = {
            row.pop("state"): StateUse(**row)
            for row in sums.filter(pl.col("state") != "").drop("written").iter_rows(named=True)
        }
        self._is_large |= int(totals[GOOD].sum()) >= self._spread_from


def _found(tables: Mapping[str, pl.DataFrame], name: str) -> Iterator[pl.DataFrame]:
    if name in tables:
        yield tables[name]


def _counts(fates: pl.DataFrame, raised: pl.DataFrame, totals: pl.DataFrame) -> pl.DataFrame:
    """Per partition how many records met which fate: those that went on from a task, were set aside, or did neither.

    A record that was set aside has no other fate.
    """
    bad = raised.group_by(_PARTITION).agg(pl.len().cast(pl.Int64).alias("dead_lettered"))
    parts = [fates, bad, totals.select(*_PARTITION, *IN_TASKS)]
    return pl.concat(parts, how="diagonal").group_by(_PARTITION).sum()


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
        return {RAW: [pl.DataFrame(schema=RAW_SCHEMA)]}

    @classmethod
    def of(cls, places: pl.DataFrame) -> Self:
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
        raise Terminal.of("record-not-there-again", given=f"{found.height} of {rows.height} records")
    return found
