"""What the kinds of windowed state have in common: rows are placed, and values of windows are read.

Three keep state: ``merged_windows`` and ``merged_sessions`` one accumulator per window, which is what most topologies
need; ``kept_records`` every single record, where a window cannot be had by merging: its records are not consecutive
(sliding, last n), it is cut anew (a longest duration), an update per record is wanted of sessions, or a derived row
may be replaced by a later revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import polars as pl

from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.core.windows import ClosingWindows
from recount.spark.columns import STREAM_TIME, TIMESTAMP
from recount.spark.operators.accumulators import Accumulators
from recount.spark.operators.keyed_rows import KeyedRows
from recount.spark.operators.operator import Output
from recount.spark.operators.rows import JUDGED
from recount.spark.stage import LATE_SCHEMA

BOUNDS = (WINDOW_START, WINDOW_END)
"""A window in a frame, in milliseconds; both are 0 where it has no bounds."""
LATEST = {TIMESTAMP: pl.col(TIMESTAMP).max()}
"""The event time of a result: the largest one behind it."""


class Windowing(Protocol):
    """The windows of all keys, and what is in them.

    Rows given have a key and in ``judged_ms`` the stream time by which they are judged. A row of a result has the
    columns of the key, of ``BOUNDS``, ``order`` (of the row that caused it), ``timestamp_ms`` and the accumulators.
    """

    @property
    def states(self) -> Mapping[str, KeyedRows]:
        """All that is remembered."""

    def changes(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """Place ``rows``: the windows that they changed or withdrew, each with the last ``order`` that did."""

    def updates(self, rows: pl.DataFrame, output: Output) -> pl.DataFrame:
        """Place ``rows``: a result for each update, as they happen; one that is withdrawn has no time."""

    def forget(self, settled_ms: int) -> None:
        """Drop what no row can change any more: every partition's stream time has reached ``settled_ms``."""

    def values(self, wanted: pl.DataFrame) -> pl.DataFrame:
        """Of the ``wanted`` keys and windows those that hold anything: bounds, time and accumulators."""


def is_late(windows: ClosingWindows) -> pl.Expr:
    """Whether a row is late for the window in ``BOUNDS``; a derived row never is."""
    return (margin_ms(windows) >= 0).fill_null(False)


def margin_ms(windows: ClosingWindows) -> pl.Expr:
    """How far the stream time had passed the window's closing."""
    return pl.col(JUDGED) - pl.col(WINDOW_END) - windows.closes_ms(0)


def ledger(late: pl.DataFrame, key: str, windows: ClosingWindows) -> pl.DataFrame:
    """``late`` rows, each with the window that it missed in ``BOUNDS``, as the late ledger has them."""
    named = late.with_columns(
        pl.col(key).cast(pl.String).alias("key"),
        pl.col(JUDGED).alias(STREAM_TIME),
        margin_ms(windows).alias("margin_ms"),
    )
    return named.select(list(LATE_SCHEMA))


def result_schema(key: str, inputs: Mapping[str, pl.DataType], accumulators: Accumulators) -> dict[str, pl.DataType]:
    """The columns of a window's state: key, bounds, time, accumulators."""
    bounds: dict[str, pl.DataType] = dict.fromkeys(BOUNDS, pl.Int64())
    return {key: inputs[key], **bounds, TIMESTAMP: pl.Int64(), **accumulators.schema}
