"""The short way of the commonest topology, one aggregation over time windows: partials from the tasks, merged here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import polars as pl

from recount.declare.aggregates import Aggregate, SumTooLarge
from recount.declare.columns import REVISION, TIMESTAMP
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, WindowedAggregate
from recount.declare.schema import FieldType
from recount.declare.topology import Written
from recount.declare.windows import GlobalWindow, LastN, TimeWindows
from recount.engine.commit.output_records import record_columns
from recount.engine.commit.stream_tables import Order, Schema, StreamTables
from recount.engine.exchange.work import Computed, staged
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.engine.stage.map_stage import MapStage, Partition, PartitionPass
from recount.engine.stage.partials import AggregationPlan, Partials
from recount.engine.stage.polars_expressions import compiled, field_column
from recount.engine.state.keyed_rows import StateUse
from recount.engine.state.open_windows import NOT_EMITTED, OpenWindows, StoredWindows
from recount.tables.batch_proofs import earlier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class AggregationComputation:
    """Reduces a batch to partials where its records are, and merges them with the windows that are open.

    Windows that are closed at the frontier ``closed_ms`` were closed before an upgrade, whose grace is longer: what
    comes for them revises what was emitted.
    """

    def __init__(self, plan: AggregationPlan, closed_ms: int | None = None) -> None:
        self._plan = plan
        self._closed_ms = closed_ms
        self._partials = Partials.of(plan.aggregate)
        self._windows = OpenWindows.none(plan.aggregate, plan.windows.grace_ms)
        self._tables: StreamTables | None = None
        self._touched = 0
        self.sinks = (plan.sink,)
        self.state_schema: Schema = self._partials.schema

    @property
    def held(self) -> Mapping[str, int]:
        """The open windows."""
        return {"open windows": sum(run.height for run in self._windows.held.runs)}

    @property
    def used(self) -> Mapping[str, StateUse]:
        """The open windows: each that a batch adds to is looked for, and written once."""
        runs = self._windows.held.runs
        size = sum(int(run.estimated_size()) for run in runs)
        rows = sum(run.height for run in runs)
        return {"open windows": StateUse(rows=rows, bytes=size, puts=self._touched, gets=self._touched)}

    def output_schema(self, sink: Written) -> Schema:  # noqa: ARG002 - it has one
        """A result with its revision."""
        return {**self._partials.result_schema, REVISION: pl.Int32()}

    def recover(self, tables: StreamTables, before: Order, clock: PartitionClock) -> None:
        """The windows that were open before the batch ``before``; they are read when they are needed."""
        self._tables = tables
        self._windows = self.open_windows(tables, before, self._closing(clock.frontier_ms))

    def compute(self, records: DataFrame, span: BatchRange, clock: PartitionClock, before: Order) -> Computed:
        """Map, merge, emit."""
        stage = MapStage(
            plan=self._plan,
            stream_times=clock.stream_times,
            latest_ms=span.timestamp_ms + self._plan.topology.max_future_ms,
            set_aside=span.set_aside,
        )
        mapped = staged(records, stage)
        after = clock.advanced(span, mapped["totals"], self._plan.topology.idle_after_ms)
        partials = self._partials.merge(mapped["partials"])
        self._touched += partials.height
        try:
            self._windows, emitted = self._windows.advanced(
                partials,
                self._closing(clock.frontier_ms),
                self._closing(after.frontier_ms),
                lambda wanted: self.emitted_before(self._tables, before, wanted),
            )
        except SumTooLarge as error:
            raise with_record_of_log(error, records, stage) from None
        if self._windows.stored:
            self._windows.stored.begin()
        return Computed(
            after=after,
            state=partials,
            late=mapped["late"],
            rejected=mapped["rejected"],
            emitted={self._plan.sink.table: emitted},
            records={self._plan.sink.table: record_columns(self._plan.sink, emitted)},
        )

    def _closing(self, frontier_ms: int | None) -> int | None:
        """The frontier by which windows are closed."""
        return frontier_ms if frontier_ms is None or self._closed_ms is None else max(frontier_ms, self._closed_ms)

    def open_windows(self, tables: StreamTables, before: Order, frontier_ms: int | None) -> OpenWindows:
        """The windows that were open before the batch ``before``, when the frontier was ``frontier_ms``."""
        bound_ms = None if frontier_ms is None else frontier_ms - self._plan.windows.grace_ms
        still_open = pl.lit(True) if bound_ms is None else pl.col(WINDOW_END) > bound_ms
        none = OpenWindows.none(self._plan.aggregate, self._plan.windows.grace_ms)

        def read(condition: pl.Expr) -> pl.DataFrame:
            return self._open(tables, condition & still_open & earlier(before))

        return replace(none, stored=StoredWindows(self._plan.aggregate.key, none.held, read))

    def emitted_before(self, tables: StreamTables | None, before: Order, wanted: pl.DataFrame) -> pl.DataFrame:
        """The rows of the keys and windows of ``wanted`` as they stood before the batch ``before``."""
        assert tables is not None, "recover comes first"
        group = self._partials.group
        condition = pl.col(WINDOW_END).is_in(wanted[WINDOW_END].unique().implode()) & earlier(before)
        merged = self._merged(tables, condition).join(wanted, on=group, how="semi")
        output = tables.outputs[self._plan.sink.table].read().filter(condition)
        revisions = output.group_by(group).agg(pl.col(REVISION).max()).collect()
        return merged.join(revisions, on=group, how="left").with_columns(pl.col(REVISION).fill_null(NOT_EMITTED))

    def _open(self, tables: StreamTables, condition: pl.Expr) -> pl.DataFrame:
        """The open windows of the rows for which ``condition`` holds.

        A batch adds one row to each window that it touches, and either emits them all or none that stays open.
        """
        final = self._plan.aggregate.emission.kind == "final"
        last_revision = pl.lit(NOT_EMITTED) if final else pl.len() - 1
        return self._merged(tables, condition, last_revision.cast(pl.Int32).alias(REVISION))

    def _merged(self, tables: StreamTables, condition: pl.Expr, *more: pl.Expr) -> pl.DataFrame:
        rows = tables.state.read().filter(condition).select(list(self._partials.schema)).collect()
        return self._partials.merge(rows, *more)


_ADDED, _AMONG = "__added", "of the records of this batch"
_SCHEMA: dict[str, pl.DataType] = {
    "topic": pl.String(),
    "partition": pl.Int32(),
    "offset": pl.Int64(),
    _ADDED: pl.Float64(),
}


def with_record(error: SumTooLarge, rows: pl.DataFrame, node: WindowedAggregate) -> SumTooLarge:
    """``error`` of ``node`` with the record that adds most among the ``rows`` that a batch brought, if there is one."""
    here = pl.col(field_column(node.key)) == error.about[node.key]
    if not isinstance(node.windows, GlobalWindow | LastN):
        closed: Literal["left", "both"] = "left" if isinstance(node.windows, TimeWindows) else "both"
        start_ms, end_ms = (error.about[bound] for bound in (WINDOW_START, WINDOW_END))
        here &= pl.col(TIMESTAMP).is_between(start_ms, end_ms, closed=closed)
    return _naming(error, _addends(rows.filter(here), node.aggregates[error.aggregate], node.input.fields))


def with_record_of_log(error: SumTooLarge, records: DataFrame, stage: MapStage) -> SumTooLarge:
    """The same of the ``records`` of a batch, which ``stage`` has reduced to partials."""
    made = AddendStage(plan=stage.plan, stream_times=stage.stream_times, latest_ms=stage.latest_ms, error=error)
    return _naming(error, staged(records, made)["addends"])


@dataclass(frozen=True, kw_only=True)
class AddendStage(MapStage):
    """The map stage again, for the records of the key and window of ``error``."""

    error: SumTooLarge

    def pass_of(self, partition: Partition) -> PartitionPass:
        """A pass that looks for the records."""
        return _AddendPass(self, partition)

    def empty_tables(self) -> dict[str, list[pl.DataFrame]]:
        """One more."""
        return {**super().empty_tables(), "addends": [pl.DataFrame(schema=_SCHEMA)]}


class _AddendPass(PartitionPass):
    def __init__(self, stage: AddendStage, partition: Partition) -> None:
        super().__init__(stage, partition)
        self._error = stage.error

    def reduce(self, on_time: pl.DataFrame) -> None:
        made, about = Partials.of(self._plan.aggregate), self._error.about
        here = pl.col(field_column(made.key)) == about[made.key]
        here &= pl.all_horizontal(pl.col(bound) == about[bound] for bound in (WINDOW_START, WINDOW_END))
        found = _addends(on_time.filter(here), made.aggregates[self._error.aggregate], made.inputs)
        self._tables["addends"].append(found)


def _addends(rows: pl.DataFrame, aggregate: Aggregate, inputs: Mapping[str, FieldType]) -> pl.DataFrame:
    """The addend of each of the ``rows`` that are records, as a DOUBLE."""
    assert aggregate.of is not None, "a sum is of something"
    counts = pl.lit(value=True) if aggregate.where is None else compiled(aggregate.where, inputs)
    added = rows.filter(counts & pl.col("offset").is_not_null()).with_columns(
        compiled(aggregate.of, inputs).cast(pl.Float64).alias(_ADDED)
    )
    return added.filter(pl.col(_ADDED).is_not_null()).select(pl.col(name).cast(kind) for name, kind in _SCHEMA.items())


def _naming(error: SumTooLarge, found: pl.DataFrame) -> SumTooLarge:
    if found.is_empty():
        return error
    topic, partition, offset, _ = found.sort(_ADDED, descending=not error.is_negative).row(0)
    return error.naming(f"{topic}-{partition}@{offset}", _AMONG)
