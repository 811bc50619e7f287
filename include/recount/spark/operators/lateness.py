"""Which rows come too late, and which records do not count for the clock."""

from __future__ import annotations

import polars as pl

from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.spark.operators.clock import Clock
from recount.spark.operators.operator import Output
from recount.spark.operators.rows import OFFSET, STREAM_TIME, SUPERSEDED, TIMESTAMP


def current(rows: pl.DataFrame) -> pl.DataFrame:
    """``rows`` without the changes of a versioned table that are history only: few operators read those."""
    return rows.filter(~pl.col(SUPERSEDED))


def on_time(rows: pl.DataFrame, clock: Clock, *, bound_ms: int, key: pl.Expr, output: Output) -> pl.DataFrame:
    """``rows`` without the late ones, which go to the ledger: late is ``ts + bound < stream time`` of its partition.

    The margin is 0 for a record that came 1 ms too late for the bound. What is handed on keeps the stream time by which
    it was judged, because an operator below may see it in a later batch.
    """
    margin = pl.col("__judged") - pl.col(TIMESTAMP) - bound_ms - 1
    judged = rows.with_columns(clock.judged(rows).alias("__judged"))
    is_late = pl.col(OFFSET).is_not_null() & (margin >= 0).fill_null(False)
    late = judged.filter(is_late)
    output.note(late, "late")
    output.ledger(
        late.with_columns(
            pl.col("__judged").alias(STREAM_TIME),
            key.cast(pl.String).alias("key"),
            margin.alias("margin_ms"),
            pl.lit(None, pl.Int64).alias(WINDOW_START),
            pl.lit(None, pl.Int64).alias(WINDOW_END),
        )
    )
    return judged.filter(~is_late).with_columns(pl.col("__judged").alias(STREAM_TIME)).drop("__judged")
