"""By how much the grace was too short for each late record, and for each result that one is missing from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import polars as pl

from recount.core.nodes import WINDOW_END, WINDOW_START
from recount.grace.judges import Judge
from recount.spark.columns import STREAM_TIME, TIMESTAMP

JUDGE, SHORT_BY = "__judge", "__short_by_ms"
"""Which of the judges made a row of the late ledger, by its place among them (null: several could have, or none), and
the smallest addition to its grace as it is now with which there would be no such row."""
RECORD = ["topic", "partition", "offset"]
RESULT = ["key", WINDOW_START, WINDOW_END]


@dataclass(frozen=True, kw_only=True)
class Shortfalls:
    """For each late record, and each result (key and window) that lacks late records, what would have been enough.

    Milliseconds to add to the grace, in rising order; a result needs as much as the latest of its late records.
    ``results`` is None where the late ledger does not say which they are.
    """

    records: pl.Series
    results: pl.Series | None

    @property
    def counted(self) -> pl.Series:
        """Those of results, where they are known, else those of records."""
        return self.records if self.results is None else self.results


def saved(short_by: pl.Series, added_ms: int) -> int:
    """How many of them ``added_ms`` more grace would have saved."""
    return int(short_by.search_sorted(added_ms, side="right"))


def attributed(late: pl.LazyFrame, judges: Sequence[Judge]) -> pl.LazyFrame:
    """The rows ``late`` of the late ledger with ``JUDGE`` and ``SHORT_BY``.

    Rows do not name the operator. Where all that enter rows look alike they are theirs, also if an upgrade has changed
    the grace since; else the row's window and margin tell whose it is. Rows that the grace of now would not have made
    are left out.
    """
    is_whose = [pl.lit(value=True)] if len(judges) == 1 else list(map(_is_of, judges))
    candidates = pl.sum_horizontal(pl.lit(0), *(one.cast(pl.Int32) for one in is_whose))
    whose = pl.coalesce(
        pl.lit(None, pl.Int32), *(pl.when(one).then(pl.lit(place)) for place, one in enumerate(is_whose))
    )
    named = late.with_columns(pl.when(candidates == 1).then(whose).cast(pl.Int32).alias(JUDGE))
    short_by = reduce(
        lambda otherwise, one: pl.when(pl.col(JUDGE) == one[0]).then(_short_by(one[1])).otherwise(otherwise),
        enumerate(judges),
        pl.col("margin_ms") + 1,
    )
    return named.with_columns(short_by.cast(pl.Int64).alias(SHORT_BY)).filter(pl.col(SHORT_BY) > 0)


def shortfalls(rows: pl.LazyFrame, place: int, judge: Judge) -> Shortfalls:
    """Those of ``judge``, the one at ``place`` in the ``attributed`` rows."""
    mine = rows.filter(pl.col(JUDGE) == place)
    groups = [RECORD, *([RESULT] if judge.makes_results else [])]
    found = pl.collect_all(
        [mine.group_by(group).agg(pl.col(SHORT_BY).max()).select(pl.col(SHORT_BY).sort()) for group in groups]
    )
    records, *results = (frame[SHORT_BY] for frame in found)
    return Shortfalls(records=records, results=results[0] if results else None)


def _late_from() -> pl.Expr:
    """How far the stream time is past the window's end, or the record, at the first moment at which it is late."""
    return pl.col(STREAM_TIME) - pl.coalesce(WINDOW_END, TIMESTAMP) - pl.col("margin_ms")


def _is_of(judge: Judge) -> pl.Expr:
    signature = judge.signature
    matches = [
        pl.col(WINDOW_END).is_not_null() == signature.has_window,
        _late_from().is_in(sorted(signature.bounds_ms)),
    ]
    if signature.length_ms is not None:
        matches.append((pl.col(WINDOW_END) - pl.col(WINDOW_START)).eq_missing(signature.length_ms))
    return pl.all_horizontal(matches)


def _short_by(judge: Judge) -> pl.Expr:
    """The rows of a single aggregation were judged by the grace of their time, which an upgrade can have changed."""
    of_then = pl.col("margin_ms") + 1
    if not judge.makes_results:
        return of_then
    [bound_ms] = judge.signature.bounds_ms
    return of_then + _late_from() - bound_ms
