"""Windowed aggregation: place the batch's rows, aggregate the windows that they changed, let results leave in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from recount.declare.aggregates import SumTooLarge
from recount.declare.columns import IS_NULL, STREAM_TIME, TIMESTAMP
from recount.declare.operators.event_time import can_be_revised
from recount.declare.operators.nodes import WINDOW_END, WINDOW_START, WindowedAggregate
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
from recount.engine.operators.windowed_state import BOUNDS, Emissions, Windowing, is_revised_any_time
from recount.engine.stage.polars_expressions import field_column
from recount.engine.state.keyed_rows import KeyedRows


@dataclass
class WindowedOperator:
    """The windows of all keys, and when their results leave.

    A final result leaves in the batch in which the frontier closes its window; where rows that are on time change it
    after that, it leaves again in a higher revision. A result that has no record any more is withdrawn: a null value.
    """

    node: WindowedAggregate
    clock: Clock
    states: Mapping[str, KeyedRows] = field(init=False)
    clocks: Mapping[str, Clock] = field(init=False)

    def __post_init__(self) -> None:
        node = self.node
        self._key = field_column(node.key)
        gap_ms = node.windows.gap_ms if isinstance(node.windows, SessionWindows) else None
        self._accumulators = Accumulators(node.aggregates, node.input.fields, gap_ms)
        self._settles = not is_revised_any_time(node.input)
        self._windowing = _windowing(node, self._accumulators)
        self._emissions = Emissions(self._key, rows_schema(node.fields)[self._key], _are_withdrawn_for_good(node))
        self.states = {**self._windowing.states, "results": self._emissions.state}
        self.clocks = {"clock": self.clock}

    def process(self, batch: Batch, inputs: Sequence[pl.DataFrame]) -> Output:
        """Take the batch's rows; what leaves is in the order in which windows end, or updates happened."""
        output = Output(no_rows(self.node.fields))
        [given] = inputs
        rows = self._with_key(batch, given, output)
        try:
            output.rows = self._rows(self._leaving(rows, output))
        except SumTooLarge as error:
            # imports Spark, which an estimate does not need
            from recount.engine.exchange.aggregation import with_record

            raise with_record(error, rows, self.node) from None
        self._forget()
        return output

    def _forget(self) -> None:
        """Drop what no row can change any more, unless a revision from above may still replace one."""
        windows, settled_ms = self.node.windows, self.clock.settled_ms
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

    def _leaving(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """The results that leave with this batch; without a time where one is withdrawn."""
        if self.node.emission.kind == "each record":
            return self._emissions.let_all_go(self._windowing.updates(rows, output))
        held = self._emissions.hold(self._windowing.changes(rows, output))
        found = held if self.node.emission.kind == "each batch" else self._emissions.due(self._due_ms)
        due = found.sort(WINDOW_END, pl.col(self._key).cast(pl.String), WINDOW_START)
        values = self._windowing.values(due)
        return self._emissions.let_go(due.join(values, on=[self._key, *BOUNDS], how="left", maintain_order="left"))

    @property
    def _due_ms(self) -> int | None:
        """The end of the windows that are closed by now, final results of which leave."""
        windows, frontier_ms = self.node.windows, self.clock.frontier_ms
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
