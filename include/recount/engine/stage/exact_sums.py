"""Sums in Polars that depend on no order and no cut: what does not fit for a moment is carried beside the total.

A sum is ``total`` and, where its values can be so large, ``beyond``: how many times 10**38 of the smallest unit of a
decimal, how many times 2**64 of a DOUBLE, come to it. It is null where ``total`` alone is the sum, which it is but for
numbers near the end of their type. A LONG has room for more records than there can be in 128 bits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, Self

import polars as pl
import pyarrow as pa

from recount.declare.aggregates import BEYOND_DOUBLE, EXACT, LARGEST_DOUBLE, MAX_SUM_PRECISION, too_large
from recount.declare.schema import FieldType

OF_LONGS = pl.Decimal(MAX_SUM_PRECISION, 0)
"""Carries a sum of LONG: of more records than there can be it stays exact."""
_ALWAYS_FITS = 19
"""A decimal of so many digits needs 10**19 records for a sum of 38."""
_LARGE = 2.0**900
"""From here on a DOUBLE is added up in its ``beyond``: of all others no sum comes to the end of the type."""
_PLAIN = 2.0**1000
"""As long as no sum can come to this, DOUBLEs are added up as they are."""
_HALF, _WHOLE = 10**19, 10**MAX_SUM_PRECISION


@dataclass(frozen=True)
class Carrier:
    """The types of the columns that hold a sum while more is to come; ``beyond`` None: it needs none."""

    total: pl.DataType
    beyond: pl.DataType | None = None

    @classmethod
    def of(cls, given: pl.DataType) -> Self:
        """For values of the type ``given``."""
        if isinstance(given, pl.Decimal):
            wide = pl.Decimal(MAX_SUM_PRECISION, given.scale)
            return cls(wide, pl.Int64() if given.precision > _ALWAYS_FITS else None)
        return cls(pl.Float64(), pl.Float64()) if given == pl.Float64() else cls(OF_LONGS)


@dataclass(frozen=True, kw_only=True)
class Sum:
    """A sum of ``values`` and, where these are sums already, of their ``more``; to be made as the columns ``total`` and
    ``beyond``."""

    carrier: Carrier
    values: pl.Expr
    total: str
    beyond: str
    more: pl.Expr | None = None

    @property
    def _extent(self) -> list[pl.Expr]:
        """Columns that decide whether the sum of all rows is a plain one."""
        more = pl.lit(0) if self.more is None else self.more.count()
        found = {"least": self.values.min(), "most": self.values.max(), "more": more}
        return [one.alias(f"{name} {self.total}") for name, one in found.items()]

    def _is_plain(self, found: Mapping[str, Any], rows: int) -> bool:
        """Whether no sum of some of the ``rows`` leaves the type of ``total``."""
        if found[f"more {self.total}"]:
            return False
        values = [found[f"{name} {self.total}"] for name in ("least", "most")]
        with localcontext(EXACT):
            most = max((abs(value) for value in values if value is not None), default=0) * rows
            if isinstance(self.carrier.total, pl.Decimal):
                return bool(most < 10 ** (MAX_SUM_PRECISION - self.carrier.total.scale))
        return bool(most < _PLAIN)

    def _plain(self) -> list[pl.Expr]:
        """The sum of a group; of no values null."""
        added = self.values.sum().cast(self.carrier.total)
        return [pl.when(self.values.count() > 0).then(added).alias(self.total)]

    def _parts(self) -> list[pl.Expr]:
        """The parts of a sum that may be a large one, for ``_joined``."""
        more = pl.lit(0) if self.more is None else self.more.sum()
        if self.carrier.beyond == pl.Float64():
            is_large = self.values.abs() >= _LARGE
            made = {
                "total": self.values.filter(~is_large).sum(),
                "beyond": (self.values.filter(is_large) / BEYOND_DOUBLE).sum() + more,
            }
        else:
            digits = self.values.cast(self.carrier.total).to_physical()
            half = pl.lit(_HALF, pl.Int128)
            made = {"total": (digits % half).sum(), "upper": (digits // half).sum(), "beyond": more.cast(pl.Int128)}
        made["count"] = self.values.count()
        return [made[name].alias(as_column) for name, as_column in zip(made, self._names, strict=True)]

    @property
    def _names(self) -> list[str]:
        is_double = self.carrier.beyond == pl.Float64()
        return [f"{one} {self.total}" for one in ("total", *([] if is_double else ["upper"]), "beyond", "count")]

    def _joined(self, grouped: pl.DataFrame) -> list[pl.Series]:
        total, beyond = (pl.col(f"{name} {self.total}") for name in ("total", "beyond"))
        there = pl.col(f"count {self.total}") > 0
        if self.carrier.beyond == pl.Float64():
            whole = total + beyond * BEYOND_DOUBLE
            is_plain = whole.abs() < _PLAIN
            totals = pl.when(is_plain).then(whole).otherwise(total)
            rest: pl.Expr = pl.when(~is_plain).then(beyond)
        else:
            totals, rest = _digits_of(total, pl.col(f"upper {self.total}"), beyond)
        found = grouped.select(
            pl.when(there).then(totals).alias(self.total), pl.when(there).then(rest).alias(self.beyond)
        )
        made = found[self.total]
        if isinstance(self.carrier.total, pl.Decimal):
            made = _with_places(made.cast(OF_LONGS), self.carrier.total)
        return [made, found[self.beyond].cast(self.carrier.beyond or pl.Int64())]


def grouped(
    rows: pl.DataFrame, by: Sequence[pl.Expr | str], sums: Sequence[Sum], *others: pl.Expr, in_order: bool = False
) -> pl.DataFrame:
    """One row for each value of ``by`` with all ``sums`` of its rows, and the columns that ``others`` make of them."""
    doubtful, apart = [one for one in sums if one.carrier.beyond is not None], set()
    if doubtful:
        [found] = rows.select(part for one in doubtful for part in one._extent).to_dicts()
        apart = {one.total for one in doubtful if not one._is_plain(found, rows.height)}
    parts = [part for one in sums for part in (one._parts() if one.total in apart else one._plain())]
    made = rows.group_by(by, maintain_order=in_order).agg(*parts, *others)
    for one in sums:
        if one.total in apart:
            made = made.with_columns(one._joined(made)).drop(one._names)
        elif one.carrier.beyond is not None:
            made = made.with_columns(pl.lit(None, one.carrier.beyond).alias(one.beyond))
    return made


def fitted(rows: pl.DataFrame, column: str, beyond: str | None, name: str, kind: FieldType) -> pl.Series:
    """The sums in ``column`` and ``beyond`` of ``rows`` as ``kind``, what the aggregate ``name`` is declared as.

    Raises ``SumTooLarge`` for the first that is no value of it, with the other columns of its row.
    """
    found = rows[column]
    if kind.kind == "double":
        made = found if beyond is None or rows[beyond].null_count() == rows.height else _doubles(rows, column, beyond)
        is_wrong = ~made.is_finite() & found.is_not_null()
    elif kind.kind == "decimal":
        made, is_wrong = found, found.is_null() if beyond is None else rows[beyond].is_not_null()
        is_wrong &= found.is_not_null()
    else:
        made = found.cast(pl.Int64, strict=False)
        is_wrong = made.is_null() & found.is_not_null()
    if is_wrong.any():
        place = int(is_wrong.arg_max() or 0)
        row = rows.row(place, named=True)
        total = exact_value(row.pop(column), row.pop(beyond) if beyond is not None else None, kind)
        raise too_large(name, total, kind, row)
    return made


def exact_value(total: Any, beyond: float | None, kind: FieldType) -> Any:
    """The sum that ``total`` and ``beyond`` are."""
    if not beyond:
        return total
    with localcontext(EXACT):
        if kind.kind == "double":
            return Decimal(total) + Decimal(beyond) * Decimal(BEYOND_DOUBLE)
        return total + Decimal(int(beyond)).scaleb(MAX_SUM_PRECISION - kind.scale)


def mean(total: pl.Expr, beyond: pl.Expr | None, count: pl.Expr, carrier: Carrier) -> pl.Expr:
    """The sum that ``total`` and ``beyond`` are over ``count``, as DOUBLE; the mean of what is finite is finite."""
    plain = total.cast(pl.Float64) / count
    if beyond is None:
        return plain
    if isinstance(carrier.total, pl.Decimal):
        return plain + beyond.fill_null(0).cast(pl.Float64) * 10.0 ** (MAX_SUM_PRECISION - carrier.total.scale) / count
    scaled = (beyond / count + total / BEYOND_DOUBLE / count).clip(
        -LARGEST_DOUBLE / BEYOND_DOUBLE, LARGEST_DOUBLE / BEYOND_DOUBLE
    )
    return pl.when(beyond.is_null()).then(plain).otherwise(scaled * BEYOND_DOUBLE)


def _digits_of(lower: pl.Expr, upper: pl.Expr, beyond: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """``lower``, ``upper`` times 10**19 and ``beyond`` times 10**38 as at most 38 digits and what is beyond, of one
    sign; null for 0 of that."""
    half, whole, one = (pl.lit(number, pl.Int128) for number in (_HALF, _WHOLE, 1))
    carried = upper + lower // half
    digits, rest = carried % half * half + lower % half, beyond + carried // half
    is_negative = (rest < 0) & (digits > 0)
    digits = pl.when(is_negative).then(digits - whole).otherwise(digits)
    rest = pl.when(is_negative).then(rest + one).otherwise(rest)
    return digits, pl.when(rest != 0).then(rest)


def _with_places(digits: pl.Series, kind: pl.Decimal) -> pl.Series:
    """``digits`` as numbers of smallest units of ``kind``, without a multiplication, which would not have the room."""
    values = digits.rechunk().to_arrow()
    scaled = pa.Array.from_buffers(
        pa.decimal128(MAX_SUM_PRECISION, kind.scale), len(values), values.buffers(), offset=values.offset
    )
    return pl.Series(digits.name, pl.from_arrow(scaled), kind)


def _doubles(rows: pl.DataFrame, column: str, beyond: str) -> pl.Series:
    """Not finite where the sum is none; what is ``beyond`` can be made up for by the total, and the other way round."""
    total, more = pl.col(column), pl.col(beyond)
    whole = total + more.fill_null(0.0) * BEYOND_DOUBLE
    scaled = (total / BEYOND_DOUBLE + more.fill_null(0.0)) * BEYOND_DOUBLE
    return rows.select(pl.when(whole.is_finite()).then(whole).otherwise(scaled).alias(column)).to_series()
