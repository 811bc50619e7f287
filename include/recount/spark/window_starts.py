"""Which time windows hold a record, in Polars: ``TimeWindows.starts`` for a column of times."""

from __future__ import annotations

import polars as pl

from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.windows import TimeWindows
from recount.spark.columns import TIMESTAMP


def with_windows(rows: pl.DataFrame, windows: TimeWindows) -> pl.DataFrame:
    """One row per row and window that holds it, by start, with the window's bounds."""
    time, first, advance = pl.col(TIMESTAMP), windows.first_start_ms, windows.advance_ms
    newest = time - (time - first) % advance
    if advance == windows.size_ms:
        placed = rows.with_columns(newest.alias(WINDOW_START))
    else:
        reach = (time - windows.size_ms + advance).clip(lower_bound=first)
        starts = pl.int_ranges(reach - (reach - first) % advance, newest + 1, advance)
        placed = rows.with_columns(starts.alias(WINDOW_START)).explode(WINDOW_START)
    return placed.with_columns((pl.col(WINDOW_START) + windows.size_ms).alias(WINDOW_END))
