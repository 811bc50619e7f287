"""An identity for rows that are held: the place in the log is none, for a flat-map makes several rows of one record."""

from __future__ import annotations

import polars as pl

from recount.spark.operators.keyed_rows import KeyedRows

ARRIVED = "arrived"
"""The column that numbers the rows that an operator holds, in the order in which they came."""
ARRIVED_TYPE = pl.Int64()


def numbered(rows: pl.DataFrame, held: KeyedRows) -> pl.DataFrame:
    """``rows`` with ``ARRIVED``, each number higher than any in ``held``."""
    first = held.highest(ARRIVED) + 1
    return rows.with_columns(pl.int_range(first, first + pl.len(), dtype=pl.Int64).alias(ARRIVED))
