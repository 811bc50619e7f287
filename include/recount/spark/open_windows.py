"""The results that a stream is still adding to, at hand on the driver; rebuilt from the state table on start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from recount.core.nodes import WINDOW_END, WindowedAggregate
from recount.spark.columns import REVISION
from recount.spark.partials import Partials

NOT_EMITTED = -1

Reload = Callable[[pl.DataFrame], pl.DataFrame]
"""Given keys and windows: their rows as emitted before this batch, with their last revision."""


@dataclass(frozen=True)
class OpenWindows:
    """One row per key and window that is not closed: the merged partial and the last revision that was emitted."""

    node: WindowedAggregate
    grace_ms: int
    rows: pl.DataFrame

    @classmethod
    def none(cls, node: WindowedAggregate, grace_ms: int) -> OpenWindows:
        """No open windows."""
        return cls(
            node, grace_ms, Partials.of(node).empty().with_columns(pl.lit(NOT_EMITTED, pl.Int32).alias(REVISION))
        )

    def advanced(
        self, partials: pl.DataFrame, before_ms: int | None, after_ms: int | None, reload: Reload
    ) -> tuple[OpenWindows, pl.DataFrame]:
        """The windows still open after a batch, and the rows that it emits.

        ``before_ms`` and ``after_ms`` are the frontiers before and after the batch. A partial for a window that was
        closed already (its partition had been idle) revises what was emitted: ``reload`` fetches that.
        """
        revived = partials.filter(self._closed(before_ms))
        known = reload(revived) if not revived.is_empty() else self.rows.clear()
        revised = self._merged(known, revived)
        merged = self._merged(self.rows, partials.filter(~self._closed(before_ms)))
        due = (
            merged.filter(self._closed(after_ms))
            if self.node.emission.kind == "final"
            else self._touched(merged, partials)
        )
        emitted = pl.concat([revised, due]).with_columns(pl.col(REVISION) + 1)
        still_open = merged.update(emitted, on=self._group, how="left").filter(~self._closed(after_ms))
        return OpenWindows(self.node, self.grace_ms, still_open), emitted.sort(self._group)

    @property
    def _group(self) -> list[str]:
        return Partials.of(self.node).group

    def _touched(self, merged: pl.DataFrame, partials: pl.DataFrame) -> pl.DataFrame:
        return merged.join(partials, on=self._group, how="semi")

    def _merged(self, known: pl.DataFrame, partials: pl.DataFrame) -> pl.DataFrame:
        made = Partials.of(self.node)
        if known.is_empty() and partials.is_empty():
            return self.rows.clear()
        merged = made.merge(pl.concat([known.select(list(made.schema)), partials.select(list(made.schema))]))
        revisions = known.select(*self._group, REVISION)
        return merged.join(revisions, on=self._group, how="left").with_columns(pl.col(REVISION).fill_null(NOT_EMITTED))

    def _closed(self, frontier_ms: int | None) -> pl.Expr:
        if frontier_ms is None:
            return pl.lit(False)
        return pl.col(WINDOW_END) <= frontier_ms - self.grace_ms
