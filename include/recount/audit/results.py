"""Results of a flow in Polars: merged from partials, compared, told as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import polars as pl

from recount.core.aggregates import Aggregate
from recount.core.output import encode_value
from recount.core.own_columns import RECORDS, RESULT_TIME
from recount.core.schema import FieldType
from recount.recompute.aggregating import group_of
from recount.recompute.flow import Flow

EXPECTED, COMPLETE = "expected", "complete"
KEY_TEXT = "recount_key_text"
"""The key as differences and verdicts name it."""
RELATIVE_TOLERANCE = 1e-9


def merged(partials: pl.DataFrame, flow: Flow) -> pl.DataFrame:
    """``partials`` merged to one row per key and window; a sum of LONG beyond 64 bits is null, for no result is it."""
    made = [_merged(name, aggregate, flow) for name, aggregate in flow.aggregate.aggregates.items()]
    return partials.group_by(group_of(flow)).agg(*made, pl.col(RESULT_TIME).max(), pl.col(RECORDS).sum())


def result_of(flow: Flow) -> pl.Expr:
    """The aggregates and the largest event time of a row, as one struct."""
    return pl.struct([*flow.aggregate.aggregates, RESULT_TIME])


def same_result(one: pl.Expr, other: pl.Expr, flow: Flow) -> pl.Expr:
    """Whether two results are equal: exactly, but doubles within a relative 1e-9, for they may be added up in any
    order. Null equals null only."""
    fields = {name: flow.aggregate.fields[name] for name in flow.aggregate.aggregates}
    parts = [_same_value(one.struct.field(name), other.struct.field(name), kind) for name, kind in fields.items()]
    parts.append(one.struct.field(RESULT_TIME).eq_missing(other.struct.field(RESULT_TIME)))
    both = one.is_not_null() & other.is_not_null() & reduce(lambda a, b: a & b, parts)
    return both | (one.is_null() & other.is_null())


def text_of(result: Mapping[str, Any] | None) -> str | None:
    """A result as differences tell it: JSON, without what is null."""
    if result is None:
        return None
    return encode_value({name: value for name, value in result.items() if value is not None}).decode()


def in_order(rows: Sequence[Mapping[str, Any]], *names: str) -> list[Mapping[str, Any]]:
    """``rows`` by these columns, null first."""
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in names])


def _same_value(one: pl.Expr, other: pl.Expr, kind: FieldType) -> pl.Expr:
    equal = one.eq_missing(other)
    if kind.kind != "double":
        return equal
    near = (one - other).abs() <= RELATIVE_TOLERANCE * pl.max_horizontal(one.abs(), other.abs())
    return equal | near.fill_null(value=False)


def _merged(name: str, aggregate: Aggregate, flow: Flow) -> pl.Expr:
    values, kind = pl.col(name), flow.aggregate.fields[name].kind
    match aggregate.kind:
        case "min":
            return values.min()
        case "max":
            return values.nan_max() if kind == "double" else values.max()
    if kind != "long":
        return pl.when(values.count() > 0).then(values.sum())
    # a window that is not due may have no result yet that fits: the stream refuses one that is due
    return pl.when(values.count() > 0).then(values.cast(pl.Int128).sum().cast(pl.Int64, strict=False))
