"""Which rows come too late, and which records do not count for the clock."""

from __future__ import annotations

import polars as pl

from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.spark.columns import STREAM_TIME, TIMESTAMP
from recount.spark.operators.clock import Clock
from recount.spark.operators.operator import Output
from recount.spark.operators.rows import JUDGED, SUPERSEDED


def current(rows: pl.DataFrame) -> pl.DataFrame:
    """``rows`` without the changes of a versioned table that are history only: few operators read those."""
    return rows.filter(~pl.col(SUPERSEDED)) if rows[SUPERSEDED].any() else rows


def on_time(
    rows: pl.DataFrame,
    clock: Clock,
    *,
    bound_ms: int,
    key: pl.Expr,
    output: Output,
    passed_ms: int | None = None,
) -> pl.DataFrame:
    """``rows`` without the late ones, which go to the ledger: late is ``ts + bound < stream time`` of its partition.

    Where the stream time is less than ``passed_ms``, that counts. The margin is 0 for a record that came 1 ms too late
    for the bound. The rows on time have their stream time in ``JUDGED``.
    """
    reached = pl.max_horizontal(JUDGED, pl.lit(passed_ms, pl.Int64))
    margin = reached - pl.col(TIMESTAMP) - bound_ms - 1
    judged = clock.judged(rows)
    is_late = (margin >= 0).fill_null(False)
    late = judged.filter(is_late)
    output.note(late, "late")
    output.ledger(late_for_all(late, reached, key, margin))
    return judged.filter(~is_late)


def late_for_all(late: pl.DataFrame, reached: pl.Expr, key: pl.Expr, margin: pl.Expr) -> pl.DataFrame:
    """``late`` rows as the ledger has them that are late for no window in particular."""
    return late.with_columns(
        reached.alias(STREAM_TIME),
        key.cast(pl.String).alias("key"),
        margin.alias("margin_ms"),
        pl.lit(None, pl.Int64).alias(WINDOW_START),
        pl.lit(None, pl.Int64).alias(WINDOW_END),
    )
