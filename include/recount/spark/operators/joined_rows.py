"""The row that a join makes of one row of each side, either of which may be missing."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from recount.core.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.core.own_columns import IS_NULL, REVISION
from recount.spark.columns import TIMESTAMP
from recount.spark.operators.rows import META, ORDER, SUPERSEDED, WITHIN
from recount.spark.polars_expressions import field_column, polars_type

RIGHT = "right "
"""Before the columns of the right side, where a frame has the rows of both."""
_NO, _FIRST = pl.lit(False), pl.lit(0, META[REVISION])


def prefixed(rows: pl.DataFrame) -> pl.DataFrame:
    """``rows`` as the right side of a frame that has both."""
    return rows.rename(lambda column: RIGHT + column)


def joined_fields(
    node: StreamStreamJoin | StreamTableJoin | TableTableJoin, *, left: bool = True, right: bool = True
) -> Iterator[pl.Expr]:
    """The fields of ``node`` over a frame with the rows of both sides, of the left, or of the right only.

    The key is that of the side that there is; of a name on both sides the left row's value holds.
    """
    for name, kind in node.fields.items():
        column, source = field_column(name), pl.lit(None, polars_type(kind))
        if name == node.key:
            source = pl.col(column) if left else pl.col(RIGHT + field_column(node.right.key))
        elif left and name in node.left.fields:
            source = pl.col(column)
        elif right and name in node.right.fields:
            source = pl.col(RIGHT + column)
        yield source.alias(column)


def derived(
    timestamp_ms: pl.Expr,
    order: pl.Expr,
    *,
    is_null: pl.Expr = _NO,
    revision: pl.Expr = _FIRST,
    superseded: pl.Expr = _NO,
) -> Iterator[pl.Expr]:
    """The columns of ``META`` for rows that entered nowhere; unless told: not deleted, revision 0, current."""
    told = {IS_NULL: is_null, REVISION: revision, SUPERSEDED: superseded, WITHIN: pl.lit("")}
    columns = {**told, TIMESTAMP: timestamp_ms, ORDER: order}
    for name, kind in META.items():
        yield columns.get(name, pl.lit(None, kind)).alias(name)
