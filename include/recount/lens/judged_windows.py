"""Tumbling and hopping windows: which records each engine would have counted in which of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from recount.core.windows import TimeWindows
from recount.lens.engine_clocks import EngineClock
from recount.lens.reaching_records import Reaching

RESULT, OURS = "result", "ours"
"""The result that a record falls into, null where there is none, and whether Recount counts the record in it."""
DROPPED = -1
"""In place of the result in which an engine counts a record: it drops it."""


def least(engine: str) -> str:
    """The column with the result in which ``engine`` counts the record where it drops the fewest records."""
    return f"{engine} least"


def most(engine: str) -> str:
    """The same where it drops the most."""
    return f"{engine} most"


def judged_windows(windows: TimeWindows, rows: Reaching, clocks: Mapping[str, EngineClock]) -> pl.DataFrame:
    """A row for each record and window that it falls into: ``row``, ``key``, ``start``, ``end``, and who counts it."""
    nths = range(-(-windows.size_ms // windows.advance_ms))
    judged = pl.concat([_judged(windows, rows, clocks, nth) for nth in nths])
    numbered = judged.with_columns(pl.struct("key", "start").rank("dense").cast(pl.Int64).alias(RESULT))
    readings = [name for engine in clocks for name in (least(engine), most(engine))]
    return numbered.with_columns(
        pl.when(name).then(pl.lit(DROPPED, pl.Int64)).otherwise(RESULT).alias(name) for name in readings
    )


def _judged(windows: TimeWindows, rows: Reaching, clocks: Mapping[str, EngineClock], nth: int) -> pl.DataFrame:
    """The windows that started ``nth`` before the newest one of each record; of engines whether it is late."""
    first = windows.first_start_ms
    start = rows.time_ms - (rows.time_ms - first) % windows.advance_ms - nth * windows.advance_ms
    row = np.flatnonzero((start > rows.time_ms - windows.size_ms) & (start >= first))
    end = start[row] + windows.size_ms
    closes_ms = end + windows.grace_ms
    judged = {OURS: closes_ms > rows.own_ms[row]}
    for engine, clock in clocks.items():
        judged |= {least(engine): closes_ms <= clock.least[row], most(engine): closes_ms <= clock.most[row]}
    return pl.DataFrame({"row": row, "key": rows.key[row], "start": start[row], "end": end, **judged})
