"""Sums, differences and products of decimals in Polars, exact wherever the result fits.

Polars itself fails where an operand has no room at the scale of the result: 100 times 0.01 at 18 places each is 1, but
100 with the 36 places of the product has 39 digits.
"""

from __future__ import annotations

import operator
from decimal import Context, localcontext
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from recount.core.schema import MAX_DECIMAL_PRECISION, FieldType
from recount.core.sums import fits

_OPERATORS: dict[str, Any] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_EXACT = Context(prec=100)
_SURELY_FITS = 0.999e38
"""More whole numbers than this have 39 digits, or so many that their DOUBLE does not say it."""


def exact(name: str, left: pl.Expr, right: pl.Expr, kind: FieldType) -> pl.Expr:
    """``left`` and ``right``, decimals or LONG, under the operator ``name``: null where ``kind`` cannot hold it."""
    made = pl.Decimal(kind.precision, kind.scale)
    function = partial(_exact, name, kind)
    return pl.map_batches([left, right], function, return_dtype=made, is_elementwise=True)


def _exact(name: str, kind: FieldType, operands: list[pl.Series]) -> pl.Series:
    rows = next((len(one) for one in operands if len(one) != 1), 1)
    left, right = (one if len(one) == rows else one.new_from_index(0, rows) for one in operands)
    scales = [None, None] if name == "*" else [kind.scale, kind.scale]
    one, other = (_unscaled(given, scale) for given, scale in zip((left, right), scales, strict=True))
    if one.null_count() == left.null_count() and other.null_count() == right.null_count():
        most = [_largest(given) for given in (one, other)]
        if (most[0] * most[1] if name == "*" else sum(most)) < _SURELY_FITS:
            return _of_scale(_OPERATORS[name](one, other), kind.scale)
    about = _OPERATORS[name](one.cast(pl.Float64), other.cast(pl.Float64)).abs()
    is_sure = (about < _SURELY_FITS).fill_null(False)
    nothing = pl.Series([None], dtype=pl.Int128)
    sure = [operand.zip_with(is_sure, nothing) for operand in (one, other)]
    made = _of_scale(_OPERATORS[name](*sure), kind.scale)
    unsure = ~is_sure & left.is_not_null() & right.is_not_null()
    if not unsure.any():
        return made
    places = unsure.arg_true()
    with localcontext(_EXACT):
        totals = [_OPERATORS[name](*pair) for pair in zip(left[places], right[places], strict=True)]
    held = [total if fits(total, kind) else None for total in totals]
    return made.scatter(places, pl.Series(held, dtype=made.dtype))


def _unscaled(given: pl.Series, scale: int | None) -> pl.Series:
    """``given`` as whole numbers of its smallest place, or of the place ``scale``; null where it has no room there."""
    if given.dtype.is_integer():
        given = given.cast(pl.Decimal(MAX_DECIMAL_PRECISION, 0))
    if scale is not None:
        given = given.cast(pl.Decimal(MAX_DECIMAL_PRECISION, scale), strict=False)
    return given.to_physical()


def _largest(given: pl.Series) -> int:
    ends: list[Any] = [given.min(), given.max()]
    return int(max(abs(end or 0) for end in ends))


def _of_scale(unscaled: pl.Series, scale: int) -> pl.Series:
    """The decimals that have these ``unscaled`` numbers: their bytes are the same."""
    whole = unscaled.cast(pl.Decimal(MAX_DECIMAL_PRECISION, 0)).to_arrow()
    kind = pa.decimal128(MAX_DECIMAL_PRECISION, scale)
    found = pa.Array.from_buffers(kind, len(whole), whole.buffers(), whole.null_count, whole.offset)
    return pl.Series(unscaled.name, found)
