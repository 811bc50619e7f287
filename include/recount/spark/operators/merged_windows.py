"""Tumbling, hopping and global windows: one merged accumulator per key and window, all in columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from recount.core.keys_in_partitions import folds_by_key, out_of_order
from recount.core.nodes import WINDOW_END, WindowedAggregate
from recount.core.windows import TimeWindows
from recount.spark.operators.accumulators import Accumulators
from recount.spark.operators.fold_trials import FoldTrials
from recount.spark.operators.keyed_rows import KeyedRows
from recount.spark.operators.operator import Output
from recount.spark.operators.rows import ORDER, origin, rows_schema
from recount.spark.operators.windowing import BOUNDS, LATEST, is_late, ledger, result_schema
from recount.spark.polars_expressions import field_column
from recount.spark.window_starts import with_windows

_ROW, _POSITION, _BEFORE = "__row", "__position", "__before"


@dataclass
class MergedWindows:
    """Windows that follow from a record's time alone, or hold everything.

    A closed window is kept until no partition can be on time for it: one that was idle may still have records.
    """

    node: WindowedAggregate
    accumulators: Accumulators
    states: dict[str, KeyedRows] = field(init=False)

    def __post_init__(self) -> None:
        self._key = field_column(self.node.key)
        self._by = [self._key, *BOUNDS]
        schema = result_schema(self._key, rows_schema(self.node.input.fields), self.accumulators)
        self._windows = KeyedRows(schema, self._by)
        self.states = {"windows": self._windows}
        self._trials = FoldTrials.of(self.node, self.accumulators)
        self._is_ordered = folds_by_key(self.node)

    def changes(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """Add the rows to their windows; every window that got one has changed."""
        placed = self._placed(rows, output)
        added = self.accumulators.merged(placed, self._by, **LATEST)
        columns = list(self._windows.schema)
        known = self._windows.of(added, self._by)
        both = pl.concat([known.select(columns), added.select(columns)])
        self._windows.put(self.accumulators.merged(both, self._by, **LATEST))
        return placed.group_by(self._by, maintain_order=True).agg(pl.col(ORDER).last())

    def updates(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """A result after each row and window: the known one, with all rows up to this one."""
        placed = self._placed(rows, output).with_row_index(_ROW)
        known = self._windows.of(placed, self._by).with_columns(pl.lit(None, pl.UInt32).alias(_ROW))
        columns = [_ROW, *self._windows.schema]
        runs = pl.concat([known.select(columns), placed.select(columns)]).with_columns(
            pl.int_range(pl.len()).over(self._by).alias(_POSITION)
        )
        run = self.accumulators.running(runs, self._by, _POSITION, **LATEST)
        self._windows.put(run)
        orders = placed.select(_ROW, ORDER)
        return run.join(orders, on=_ROW, how="inner").sort(_ROW).drop(_ROW, _POSITION)

    def forget(self, settled_ms: int) -> None:
        """The windows that are closed by every partition's stream time."""
        if isinstance(self.node.windows, TimeWindows):
            closes_ms = pl.col(WINDOW_END) + self.node.windows.closes_ms(0)
            self._windows.remove(self._windows.where(closes_ms <= settled_ms))

    def values(self, wanted: pl.DataFrame) -> pl.DataFrame:
        """As they are now."""
        return self._windows.of(wanted, self._by)

    def _placed(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """A lifted row for each row and window that it is on time for."""
        windows = self.node.windows
        lifted = self.accumulators.lifted(rows)
        if not isinstance(windows, TimeWindows):
            output.note(rows, "counted")
            return self._tried(lifted.with_columns(pl.lit(0, pl.Int64).alias(bound) for bound in BOUNDS), output)
        assigned = with_windows(lifted, windows)
        late = assigned.filter(is_late(windows))
        on_time = assigned.filter(~is_late(windows))
        output.ledger(ledger(late, self._key, windows))
        output.note(late, "late")
        output.note(on_time, "counted")
        return self._tried(on_time, output)

    def _require_order(self, placed: pl.DataFrame) -> None:
        """Refuse a value of a fold of all time that would come before one that it has taken."""
        known = self._windows.of(placed, self._by)
        for _, column in self.accumulators.folds.values():
            last = known.select(self._by[0], pl.col(column).list.last().struct.field(ORDER).alias(_BEFORE))
            taken = placed.filter(pl.col(column).list.len() > 0).join(last, on=self._by[0], how="left")
            above = pl.col(ORDER).cum_max().shift().over(self._by[0])
            judged = taken.with_columns(pl.max_horizontal(_BEFORE, above).alias(_BEFORE))
            for row in judged.filter(pl.col(ORDER) < pl.col(_BEFORE)).head(1).iter_rows(named=True):
                before, now = origin(pl.Series([row[_BEFORE], row[ORDER]]))
                raise out_of_order(self.node, row[self._key], before, now)

    def _tried(self, placed: pl.DataFrame, output: Output) -> pl.DataFrame:
        if self._is_ordered:
            self._require_order(placed)
        return (
            placed
            if self._trials is None
            else self._trials.passed(self._windows.of(placed, self._by), placed, self._by, output)
        )
