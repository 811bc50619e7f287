"""Where time windows start: "Windows" of docs/semantics.md."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from recount.core.windows import TimeWindows


def newest_start(windows: TimeWindows, time_ms: Column) -> Column:
    """The start of the newest window that holds ``time_ms``: the last one that is not after it."""
    return time_ms - F.pmod(time_ms - windows.origin_ms, F.lit(windows.advance_ms))


def all_starts(windows: TimeWindows, time_ms: Column) -> Column:
    """The starts of all windows that hold ``time_ms``, rising; none before the newest that holds the epoch."""
    oldest = newest_start(windows, time_ms - windows.size_ms + windows.advance_ms)
    first = F.greatest(newest_start(windows, F.lit(0)), oldest)
    return F.sequence(first, newest_start(windows, time_ms), F.lit(windows.advance_ms).cast("long"))
