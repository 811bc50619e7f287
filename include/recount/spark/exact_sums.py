"""Sums in Polars that are exact: in 128 bits while they are added up, and an error where the result does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Context, localcontext

import polars as pl

from recount.core.aggregates import MAX_SUM_PRECISION, Aggregate
from recount.core.schema import FieldType
from recount.core.sums import fits, too_large

OF_LONGS = pl.Decimal(MAX_SUM_PRECISION, 0)
"""Carries a sum of LONG: of more records than there can be it stays exact."""
_DOUBTFUL = 0.99
"""From this part of the largest number on, a sum as DOUBLE does not tell whether the exact one fits."""


def carrier(aggregate: Aggregate, declared: pl.DataType) -> pl.DataType:
    """The type in which a value of ``aggregate`` is held while more is to come."""
    return OF_LONGS if aggregate.kind == "sum" and declared == pl.Int64() else declared


def exact_sum(values: pl.Expr, given: pl.DataType) -> pl.Expr:
    """The sum of ``values`` of the type ``given``; of no values null."""
    added = values.cast(pl.Int128).sum().cast(OF_LONGS) if given == pl.Int64() else values.sum()
    return pl.when(values.count() > 0).then(added)


def require_room(
    rows: pl.DataFrame, by: Sequence[pl.Expr | str], sums: Mapping[str, tuple[pl.Expr, FieldType]]
) -> None:
    """Raise ``SumTooLarge`` where a sum of decimals per group ``by`` has more than 38 digits: Polars would wrap it.

    The largest value times the number of rows tells in most cases that none has; then nothing is added up here.
    """
    for name, (values, kind) in sums.items():
        found = rows.select(values.min().alias("least"), values.max().alias("most")).row(0)
        with localcontext(Context(prec=100)):
            largest = max((abs(value) for value in found if value is not None), default=0)
            if fits(largest * rows.height, kind):
                continue
        _require_each(rows, by, name, values, kind)


def _require_each(rows: pl.DataFrame, by: Sequence[pl.Expr | str], name: str, values: pl.Expr, kind: FieldType) -> None:
    limit = 10.0 ** (kind.precision - kind.scale) * _DOUBTFUL
    groups = rows.group_by(by).agg(values.cast(pl.Float64).sum().alias("__about"), values.alias("__values"))
    for row in groups.filter(pl.col("__about").abs() >= limit).iter_rows(named=True):
        with localcontext(Context(prec=100)):
            total = sum(value for value in row.pop("__values") if value is not None)
        row.pop("__about")
        if not fits(total, kind):
            raise too_large(name, total, kind, row)


def fitted(rows: pl.DataFrame, name: str, column: str, declared: pl.DataType, kind: FieldType) -> pl.Series:
    """The ``column`` of ``rows`` in its ``declared`` type; raises ``SumTooLarge`` for the first value that it lacks."""
    found = rows[column]
    made = found.cast(declared, strict=False)
    if made.null_count() != found.null_count():
        place = int((made.is_null() & found.is_not_null()).arg_max() or 0)
        told = {key: value for key, value in rows.row(place, named=True).items() if key != column}
        raise too_large(name, found[place], kind, told)
    return made
