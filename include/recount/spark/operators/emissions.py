"""When results leave: which are held back, and how often each was emitted."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.own_columns import REVISION
from recount.spark.columns import TIMESTAMP
from recount.spark.operators.keyed_rows import KeyedRows
from recount.spark.operators.rows import META, ORDER
from recount.spark.operators.windowing import BOUNDS

HELD = "held"
"""Whether the result has changed since it was last emitted."""
NOT_EMITTED = -1


@dataclass
class Emissions:
    """One row per key and window that has a result, or had one: its last revision, ``NOT_EMITTED`` before the first.

    Rows of closed windows are kept as long as they can be revised, so that their revisions go on counting. Rows of
    results that were withdrawn are kept unless that was ``for_good``: no such window can be there again.
    """

    key: str
    key_type: pl.DataType
    for_good: bool = False
    state: KeyedRows = field(init=False)

    def __post_init__(self) -> None:
        self._by = [self.key, *BOUNDS]
        bounds: dict[str, pl.DataType] = dict.fromkeys(BOUNDS, pl.Int64())
        meta = {name: META[name] for name in (ORDER, REVISION)}
        self.state = KeyedRows({self.key: self.key_type, **bounds, **meta, HELD: pl.Boolean()}, self._by)

    def hold(self, changes: pl.DataFrame) -> None:
        """Hold the results of changed windows back; the last change counts as the cause."""
        if not changes.is_empty():
            latest = changes.unique(self._by, keep="last", maintain_order=True)
            self.state.put(self._with_revisions(latest).with_columns(pl.lit(True).alias(HELD)))

    def due(self, is_due: pl.Expr) -> pl.DataFrame:
        """The results held whose window ``is_due``, by its end, key and start."""
        due = self.state.where(pl.col(HELD) & is_due)
        return due.sort(WINDOW_END, pl.col(self.key).cast(pl.String), WINDOW_START)

    def forget(self, settled: pl.Expr) -> None:
        """Drop the rows of ``settled`` windows that have left."""
        self.state.remove(self.state.where(settled & ~pl.col(HELD)))

    def let_go(self, due: pl.DataFrame) -> pl.DataFrame:
        """``due`` results, with no time where there is none any more: those that leave, each with its new revision.

        A withdrawn result leaves as such only if it was emitted before.
        """
        gone = pl.col(TIMESTAMP).is_null()
        never = due.filter(gone & (pl.col(REVISION) == NOT_EMITTED))
        leaving = due.filter(~gone | (pl.col(REVISION) != NOT_EMITTED)).with_columns(pl.col(REVISION) + 1)
        self.state.remove(never)
        self._remember(leaving)
        return leaving

    def let_all_go(self, updates: pl.DataFrame) -> pl.DataFrame:
        """``updates`` as they happened, each with its revision."""
        count = pl.int_range(1, pl.len() + 1, dtype=pl.Int32).over(self._by)
        leaving = self._with_revisions(updates).with_columns((pl.col(REVISION) + count).alias(REVISION))
        self._remember(leaving)
        return leaving

    def _remember(self, leaving: pl.DataFrame) -> None:
        """What is the last of each key and window has left."""
        last = leaving.unique(self._by, keep="last", maintain_order=True)
        gone = pl.col(TIMESTAMP).is_null() & self.for_good
        self.state.remove(last.filter(gone))
        self.state.put(last.filter(~gone).with_columns(pl.lit(False).alias(HELD)))

    def _with_revisions(self, results: pl.DataFrame) -> pl.DataFrame:
        known = self.state.of(results, self._by).select(*self._by, REVISION)
        joined = results.join(known, on=self._by, how="left", maintain_order="left")
        return joined.with_columns(pl.col(REVISION).fill_null(NOT_EMITTED))
