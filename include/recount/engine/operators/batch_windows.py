"""Windowed aggregation: place the batch's rows, aggregate the windows that they changed, let results leave in time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from recount.declare.aggregates import Aggregate, SumTooLarge
from recount.declare.columns import IS_NULL, RESULT_TIME, REVISION, STREAM_TIME, TIMESTAMP
from recount.declare.operators.event_time import can_be_revised
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, WindowedAggregate
from recount.declare.schema import FieldType
from recount.declare.windows import GlobalWindow, LastN, SessionWindows, SlidingWindows, TimeWindows
from recount.engine.operators.accumulators import Accumulators
from recount.engine.operators.batch_operator import Batch, Clock, Output
from recount.engine.operators.batch_rows import (
    ENTRY,
    ORDER,
    REACHED,
    SUPERSEDED,
    WITHIN,
    no_rows,
    rows_schema,
    window_order,
)
from recount.engine.operators.kept_records import REPLACES, KeptRecords
from recount.engine.operators.merged_windows import MergedSessions, MergedWindows
from recount.engine.operators.windowed_state import (
    BOUNDS,
    HELD,
    Emissions,
    Windowing,
    is_late,
    is_revised_any_time,
    with_windows,
)
from recount.engine.stage.polars_expressions import compiled, field_column
from recount.engine.state.keyed_rows import KeyedRows


@dataclass
class WindowedOperator:
    """The windows of all keys, and when their results leave.

    A final result leaves in the batch in which the frontier closes its window; where rows that are on time change it
    after that, it leaves again in a higher revision. A result that has no record any more is withdrawn: a null value.

    Where the output ``table`` has all results as they are, and they say all about their windows, closed windows are
    forgotten: a row that is on time all the same, for its partition had been idle, finds its window there. Windows that
    are closed at the frontier ``closed_ms`` were closed before an upgrade, whose grace is longer.
    """

    node: WindowedAggregate
    clock: Clock
    table: str | None = None
    closed_ms: int | None = None
    states: Mapping[str, KeyedRows] = field(init=False)
    clocks: Mapping[str, Clock] = field(init=False)

    def __post_init__(self) -> None:
        node = self.node
        self._key = field_column(node.key)
        gap_ms = node.windows.gap_ms if isinstance(node.windows, SessionWindows) else None
        self._accumulators = Accumulators(node.aggregates, node.input.fields, gap_ms)
        self._settles = not is_revised_any_time(node.input)
        self._windowing = _windowing(node, self._accumulators)
        self._goes_on_from_results = (
            self.table is not None
            and isinstance(self._windowing, MergedWindows)
            and isinstance(node.windows, TimeWindows)
            and node.emission.kind != "each record"
            and self._accumulators.are_in_results
        )
        for_good, key_type = _are_withdrawn_for_good(node), rows_schema(node.fields)[self._key]
        self._emissions = Emissions(self._key, key_type, for_good, node.has_bounds)
        self.states = {**self._windowing.states, "results": self._emissions.state}
        self.clocks = {"clock": self.clock}

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:
        """Take the batch's rows; what leaves is in the order in which windows end, or updates happened."""
        output = Output(no_rows(self.node.fields))
        [given] = inputs
        rows = self._with_key(batch, given, output)
        if self._goes_on_from_results:
            self._go_on(batch, rows)
        try:
            output.rows = self._rows(self._leaving(batch, rows, output))
        except SumTooLarge as error:
            raise with_record(error, rows, self.node) from None
        self._forget()
        return output

    def _go_on(self, batch: Batch, rows: pl.DataFrame) -> None:
        """Take windows that were closed before the batch, and get rows all the same, from the table of results."""
        windows, before_ms = self.node.windows, self._closing(self.clock.before_ms)
        if before_ms is None or not isinstance(windows, TimeWindows):
            return
        by, bound_ms = [self._key, *BOUNDS], before_ms - windows.closes_ms(0)
        placed = with_windows(rows.filter(pl.col(TIMESTAMP) < bound_ms), windows)
        found = [placed.filter(~is_late(windows)), *([] if batch.reduced is None else [batch.reduced])]
        wanted = pl.concat(one.select(by) for one in found).filter(pl.col(WINDOW_END) <= bound_ms).unique()
        wanted = wanted.join(self._emissions.state.of(wanted, by), on=by, how="anti")
        if wanted.is_empty() or batch.published is None or self.table is None:
            return
        is_near = pl.col(WINDOW_END).is_in(wanted[WINDOW_END].unique().implode())
        published = batch.published(self.table).filter(is_near).rename({self.node.key: self._key}).collect()
        last = published.join(wanted, on=by, how="semi").sort(REVISION).unique(by, keep="last")
        known = self._accumulators.of_results(last.with_columns(pl.col(RESULT_TIME).alias(TIMESTAMP)))
        for state in self.states.values():
            state.put(known.with_columns(pl.lit(value=False).alias(HELD)))

    def _closing(self, frontier_ms: int | None) -> int | None:
        """The frontier by which windows are closed."""
        return frontier_ms if frontier_ms is None or self.closed_ms is None else max(frontier_ms, self.closed_ms)

    def _forget(self) -> None:
        """Drop what no row can change any more, unless a revision from above may still replace one."""
        windows, settled_ms = self.node.windows, self.clock.settled_ms
        if self._goes_on_from_results:
            settled_ms = self._closing(self.clock.frontier_ms)
        if settled_ms is None or not self._settles or isinstance(windows, GlobalWindow | LastN):
            return
        self._windowing.forget(settled_ms)
        settles_ms = windows.settles_ms(0) if isinstance(windows, SessionWindows) else windows.closes_ms(0)
        self._emissions.forget(settled_ms - settles_ms)

    def _with_key(self, batch: Batch, given: pl.DataFrame, output: Output) -> pl.DataFrame:
        """The rows to place, judged; the clock advances, but not by a record that has no row with a key."""
        keyless = given.filter(pl.col(self._key).is_null())
        keyed = given.filter(pl.col(self._key).is_not_null())
        output.note(keyless, "null_key")
        if isinstance(self.node.windows, SlidingWindows | GlobalWindow | LastN):
            empty = pl.col(IS_NULL) & ~REPLACES
            output.note(keyed.filter(empty), "null_value")
            keyed = keyed.filter(~empty)
        self.clock.advance(batch, keyless, keyed)
        return self.clock.judged(keyed)

    def _leaving(self, batch: Batch, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """The results that leave with this batch; without a time where one is withdrawn."""
        if self.node.emission.kind == "each record":
            return self._emissions.let_all_go(self._windowing.updates(rows, output))
        changes = self._windowing.changes(rows, output)
        if batch.reduced is not None:
            assert isinstance(self._windowing, MergedWindows)
            self._windowing.add(batch.reduced)
            changes = pl.concat([changes, batch.reduced.select(self._key, *BOUNDS)], how="diagonal")
        found = self._emissions.changed(changes)
        if self.node.emission.kind == "final":
            self._emissions.hold(found)
            found = self._emissions.due(self._due_ms)
        due = found.sort(WINDOW_END, pl.col(self._key).cast(pl.String), WINDOW_START)
        values = self._windowing.values(due)
        return self._emissions.let_go(due.join(values, on=[self._key, *BOUNDS], how="left", maintain_order="left"))

    @property
    def _due_ms(self) -> int | None:
        """The end of the windows that are closed by now, final results of which leave."""
        windows, frontier_ms = self.node.windows, self._closing(self.clock.frontier_ms)
        assert not isinstance(windows, GlobalWindow | LastN), "refused at declaration"
        return None if frontier_ms is None else frontier_ms - windows.closes_ms(0)

    def _rows(self, leaving: pl.DataFrame) -> pl.DataFrame:
        """Results as rows; a withdrawn one has the time of its window's end."""
        withdrawn = pl.col(TIMESTAMP).is_null()
        results = self._accumulators.results(leaving).with_columns(
            pl.when(~withdrawn).then(pl.col(field_column(name))).alias(field_column(name))
            for name in self.node.aggregates
        )
        if self.node.has_bounds:
            order = window_order(pl.col(WINDOW_START), pl.col(WINDOW_END), pl.col(self._key))
            results = results.with_columns(order.alias(ORDER))
        schema = rows_schema(self.node.fields)
        known = {
            **{field_column(bound): pl.col(bound) for bound in BOUNDS},
            IS_NULL: withdrawn,
            TIMESTAMP: pl.coalesce(TIMESTAMP, WINDOW_END),
            SUPERSEDED: pl.lit(False),
            WITHIN: pl.lit(""),
            **{name: pl.lit(None) for name in (*ENTRY, STREAM_TIME, REACHED)},
        }
        return results.select(known.get(name, pl.col(name)).cast(kind).alias(name) for name, kind in schema.items())


def _windowing(node: WindowedAggregate, accumulators: Accumulators) -> Windowing:
    """Merged where that can be, see ``windowed_state``."""
    if can_be_revised(node.input):
        return KeptRecords(node, accumulators)
    match node.windows:
        case TimeWindows() | GlobalWindow():
            return MergedWindows(node, accumulators)
        case SessionWindows(max_duration_ms=None) as windows if node.emission.kind != "each record":
            return MergedSessions(node, windows, accumulators)
    return KeptRecords(node, accumulators)


def _are_withdrawn_for_good(node: WindowedAggregate) -> bool:
    """Whether a session that is withdrawn can never be there again: it is part of a longer one, and stays that.

    Not where records can be replaced, nor where sessions are cut: there a record can move a cut back to where it was.
    """
    match node.windows:
        case SessionWindows(max_duration_ms=None):
            return not can_be_revised(node.input)
    return False


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
