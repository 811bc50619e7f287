"""Results of a flow in Polars: merged from partials, compared, written as text, and totals of each window.

The chart of a certificate has the expected and the published totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import reduce
from math import isfinite
from typing import Any

import polars as pl

from recount.audit.compare.published import KAFKA
from recount.declare.aggregates import EXACT, Aggregate, fits
from recount.declare.columns import BEYOND, RECORDS, RESULT_TIME
from recount.declare.operators.nodes import WINDOW_START
from recount.declare.output import encode_value
from recount.declare.schema import FieldType
from recount.recompute.rules.number_rules import MOST_DIGITS, UNIT
from recount.recompute.single_flow import Flow

EXPECTED, COMPLETE = "expected", "complete"
KEY_TEXT = "recount_key_text"
"""The key as differences and verdicts name it."""
RELATIVE_TOLERANCE = 1e-9
MAX_WINDOWS = 500
_SIDES = {EXPECTED: EXPECTED, "published": f"{KAFKA}_latest", COMPLETE: COMPLETE}
_PLACES = 6
"""Decimal places of a double on the chart."""


def merged(partials: pl.DataFrame, flow: Flow, *further: str) -> pl.DataFrame:
    """``partials`` merged to one row per key, window and ``further`` columns.

    A sum that its type does not hold is null: no result is it.

    A window that is not due may have none yet that fits; the stream refuses one that is due.
    """
    apart = {name for name in flow.sums_apart if not _is_plain(partials, name, flow)}
    aggregates = flow.aggregate.aggregates.items()
    made = [_merged(name, aggregate, flow) for name, aggregate in aggregates if name not in apart]
    parts = [part for name in apart for part in (name, BEYOND + name) if part in partials.columns]
    listed = [pl.col(part).drop_nulls() for part in parts]
    found = partials.group_by(*flow.group, *further).agg(
        *made, *listed, pl.col(RESULT_TIME).max(), pl.col(RECORDS).sum()
    )
    return found.with_columns(_added_up(found, name, partials.schema[name], flow) for name in apart).drop(
        [BEYOND + name for name in apart if BEYOND + name in parts]
    )


def _is_plain(partials: pl.DataFrame, name: str, flow: Flow) -> bool:
    """Whether no sum of some of the ``partials`` can leave the type of the sum ``name``."""
    kind, beyond = flow.aggregate.fields[name], BEYOND + name
    if beyond in partials.columns and partials[beyond].count():
        return False
    found = [abs(one) for one in partials.select(least=pl.col(name).min(), most=pl.col(name).max()).row(0) if one]
    return all(fits(one * partials.height, kind) for one in found)


def _added_up(rows: pl.DataFrame, name: str, kept_as: pl.DataType, flow: Flow) -> pl.Series:
    """The sums ``name``, one by one, of lists of parts."""
    beyond = rows[BEYOND + name].to_list() if BEYOND + name in rows.columns else [()] * rows.height
    kind = flow.aggregate.fields[name]
    made = [_exact(values, more, kind) for values, more in zip(rows[name].to_list(), beyond, strict=True)]
    return pl.Series(name, made, kept_as)


def _exact(values: Sequence[Any], beyond: Sequence[float], kind: FieldType) -> Any:
    unit = Fraction(UNIT) if kind.kind == "double" else Fraction(10) ** (MOST_DIGITS - kind.scale)
    try:
        total = sum(map(Fraction, values), sum(map(Fraction, beyond), Fraction(0)) * unit)
        if kind.kind == "double":
            return float(total) if values else None
    except (OverflowError, ValueError):  # beyond every DOUBLE, or a part of an earlier release that is not finite
        return None
    with localcontext(EXACT):
        made = Decimal(int(total * 10**kind.scale)).scaleb(-kind.scale)
    return made if values and fits(made, kind) else None


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
    return pl.when(values.count() > 0).then(values.cast(pl.Int128).sum().cast(pl.Int64, strict=False))


@dataclass(frozen=True, kw_only=True)
class WindowTotal:
    """One window over all keys: the total of the charted aggregate as expected, as published, with unlimited grace."""

    window_start: int
    expected: Decimal
    published: Decimal
    complete: Decimal


def charted(flow: Flow) -> str | None:
    """The aggregate that is charted: the first count or sum, None without one."""
    additive = (name for name, aggregate in flow.aggregate.aggregates.items() if aggregate.kind in ("count", "sum"))
    return next(additive, None)


def totals_by_window(judged: pl.DataFrame, flow: Flow) -> Sequence[Mapping[str, Any]]:
    """The totals of the rows of ``judged`` that name a window."""
    name = charted(flow)
    if name is None:
        return []
    kind = flow.aggregate.fields[name]
    totals = [
        _summable(judged, pl.col(column).struct.field(name), kind).sum().alias(side) for side, column in _SIDES.items()
    ]
    return judged.filter(pl.col(WINDOW_START).is_not_null()).group_by(WINDOW_START).agg(*totals).to_dicts()


def _summable(judged: pl.DataFrame, values: pl.Expr, kind: FieldType) -> pl.Expr:
    """``values`` as a type that holds their sum: over all keys it need not fit into the type of one result."""
    if kind.kind == "long":
        return values.cast(pl.Int128)
    found = [abs(one) for one in judged.select(least=values.min(), most=values.max()).row(0) if one]
    if kind.kind == "decimal" and not all(fits(one * judged.height, kind) for one in found):
        return values.cast(pl.Float64)
    return values


def series_of(totals: Iterable[Mapping[str, Any]]) -> tuple[WindowTotal, ...]:
    """``totals``, of which several may be about one window, as the newest ``MAX_WINDOWS`` windows in order.

    A window whose total is beyond every double has no bar.
    """
    windows: dict[int, dict[str, Decimal]] = {}
    totals = list(totals)
    beyond = {one[WINDOW_START] for one in totals if not all(isfinite(one[side]) for side in _SIDES)}
    for total in (one for one in totals if one[WINDOW_START] not in beyond):
        window = windows.setdefault(total[WINDOW_START], dict.fromkeys(_SIDES, Decimal(0)))
        for side in _SIDES:
            window[side] += _as_decimal(total[side])
    newest = sorted(windows)[-MAX_WINDOWS:]
    return tuple(WindowTotal(window_start=start, **windows[start]) for start in newest)


def _as_decimal(total: Any) -> Decimal:
    return Decimal(str(round(total, _PLACES))) if isinstance(total, float) else Decimal(total)
