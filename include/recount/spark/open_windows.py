"""The results that a stream is still adding to, at hand on the driver; rebuilt from the state table after a start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import polars as pl

from recount.core.nodes import WINDOW_END, WindowedAggregate
from recount.core.own_columns import REVISION
from recount.spark.partials import Partials
from recount.spark.sorted_runs import SortedRuns
from recount.spark.stored_windows import StoredWindows

NOT_EMITTED = -1

Reload = Callable[[pl.DataFrame], pl.DataFrame]
"""Given keys and windows: their rows as emitted before this batch, with their last revision."""


@dataclass(frozen=True)
class OpenWindows:
    """One row per key and window that is not closed: the merged partial and the last revision that was emitted.

    Rows that no batch has touched since the start may still be in ``stored`` only.
    """

    node: WindowedAggregate
    grace_ms: int
    held: SortedRuns
    stored: StoredWindows | None = None

    @classmethod
    def none(cls, node: WindowedAggregate, grace_ms: int) -> OpenWindows:
        """No open windows."""
        made = Partials.of(node)
        return cls(node, grace_ms, SortedRuns(schema={**made.schema, REVISION: pl.Int32()}, identity=made.group))

    def advanced(
        self, partials: pl.DataFrame, before_ms: int | None, after_ms: int | None, reload: Reload
    ) -> tuple[OpenWindows, pl.DataFrame]:
        """The windows still open after a batch, and the rows that it emits.

        ``partials`` has one row per key and window. ``before_ms`` and ``after_ms`` are the frontiers before and after
        the batch. A partial for a window that was closed already (its partition had been idle) revises what was
        emitted: ``reload`` fetches that.
        """
        revived = partials.filter(self._closed(before_ms))
        revised = self._merged(reload(revived), revived) if not revived.is_empty() else self._none
        windows = self._complete(before_ms, after_ms)
        current = partials.filter(~self._closed(before_ms))
        updated = self._merged(windows._of(current), current)
        if self.node.emission.kind == "final":
            held = windows.held.put(updated)
            due = held.filter(self._closed(after_ms)).rows
            emitted = _revised(pl.concat([revised, due]))
        else:
            emitted = _revised(pl.concat([revised, updated]))
            held = windows.held.put(_revised(updated))
        results = Partials.of(self.node).results(emitted.sort(self._group))
        return replace(windows, held=held.without(self._closed(after_ms))), results

    @property
    def rows(self) -> pl.DataFrame:
        """All rows; waits for those that are stored, which are of the time of the start."""
        return self._with_stored(pl.lit(False)).held.rows

    def _complete(self, before_ms: int | None, after_ms: int | None) -> OpenWindows:
        """With the stored windows, when they have been read or final results of them are due."""
        if self.stored is None:
            return self
        final = self.node.emission.kind == "final"
        due = final and before_ms != after_ms and self.stored.closing(self._closed(after_ms))
        return self._with_stored(self._closed(before_ms)) if due or self.stored.at_hand else self

    def _with_stored(self, closed: pl.Expr) -> OpenWindows:
        if self.stored is None:
            return self
        return replace(self, held=self.held.above(self.stored.all().without(closed)), stored=None)

    def _of(self, wanted: pl.DataFrame) -> pl.DataFrame:
        """The rows of the keys and windows of ``wanted``."""
        known = self.held.of(wanted)
        if self.stored is None:
            return known
        missing = wanted.join(known, on=self._group, how="anti")
        return pl.concat([known, self.stored.of(missing).select(known.columns)])

    def _merged(self, known: pl.DataFrame, partials: pl.DataFrame) -> pl.DataFrame:
        """``partials`` merged with what is ``known`` of their keys and windows, and the last revision of that."""
        new = partials.with_columns(pl.lit(NOT_EMITTED, pl.Int32).alias(REVISION))
        both = pl.concat([known.select(list(self.held.schema)), new.select(list(self.held.schema))])
        return Partials.of(self.node).merge(both, pl.col(REVISION).max())

    @property
    def _group(self) -> list[str]:
        return Partials.of(self.node).group

    @property
    def _none(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.held.schema)

    def _closed(self, frontier_ms: int | None) -> pl.Expr:
        if frontier_ms is None:
            return pl.lit(False)
        return pl.col(WINDOW_END) <= frontier_ms - self.grace_ms


def _revised(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col(REVISION) + 1)
