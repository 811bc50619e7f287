"""Sums that are exact, or an error, in DuckDB: never null, and never another number.

A sum of DOUBLE, and one of decimals of many digits, is ``Total``: what does not fit while more is to come is carried
beside it. So what it comes to depends on no order, no partition and no cut between nights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Any

from pyspark.sql import types as T

from recount.declare.schema import FieldType
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column
from recount.recompute.rules.range_rules import LARGE, MOST_DIGITS, MOST_DOUBLE, UNIT, WIDE, beyond_type

Over = Callable[[Column], Column]
_LOWER = 10**20
_EXACT = Context(prec=100)


@dataclass(frozen=True)
class Sum:
    """A sum: ``total`` and, null for nothing, what is ``beyond`` it.

    That is how many times 10**38 of the smallest unit of a decimal, how many times ``UNIT`` of a DOUBLE.
    """

    total: Column
    beyond: Column

    @property
    def struct(self) -> Column:
        """The sum as one column."""
        return F.struct(self.total.alias("total"), self.beyond.alias("beyond"))

    @classmethod
    def of(cls, struct: Column) -> Sum:
        """The sum of a ``struct``."""
        return cls(struct.part("total"), struct.part("beyond"))


def plain_sum(values: Column, kind: FieldType, over: Over) -> Column:
    """The sum of ``values`` of the type ``kind``, which no record of a log can make too large; of LONG as ``WIDE``."""
    return over(F.total(values)).cast(WIDE if kind.kind == "long" else f"decimal({MOST_DIGITS}, {kind.scale})")


def whole_sum(values: Sum, kind: FieldType, over: Over) -> Sum:
    """The sum of ``values``, of which each may be a sum already; ``kind`` is its declared type."""
    there = over(F.count_of(values.total)) > 0
    beyond = F.coalesce(over(F.total(values.beyond)), F.lit(0)).cast(beyond_type(kind))
    if kind.kind == "double":
        is_large = F.magnitude(values.total) >= LARGE
        small = F.coalesce(over(F.total(F.when(~is_large, values.total))), F.lit(0.0))
        large = F.coalesce(over(F.total(F.when(is_large, values.total / UNIT))), F.lit(0.0)) + beyond
        whole = small + large * UNIT
        is_plain = F.magnitude(whole) < MOST_DOUBLE
        return Sum(F.when(there, F.when(is_plain, whole).otherwise(small)), F.when(there & ~is_plain, large))
    units = F.smallest_units(values.total)
    lower = units % _LOWER
    made = F.by_python(_joined(kind.scale), _joined_kind(kind))(
        over(F.total(F.whole_quotient(units, _LOWER))), over(F.total(lower)), beyond
    )
    return Sum(F.when(there, made.part("total")), F.when(there, made.part("beyond")))


def _joined_kind(kind: FieldType) -> T.StructType:
    total = T.StructField("total", T.DecimalType(MOST_DIGITS, kind.scale))
    return T.StructType([total, T.StructField("beyond", T.LongType())])


def _joined(scale: int) -> Callable[..., dict[str, Any]]:
    """Adds up the parts of a sum of decimals with ``scale`` places."""

    def joined(upper: Any, lower: Any, beyond: Any) -> dict[str, Any]:
        units = int(upper or 0) * _LOWER + int(lower or 0) + int(beyond or 0) * 10**MOST_DIGITS
        times = int(abs(units) // 10**MOST_DIGITS) * (1 if units > 0 else -1)
        with localcontext(_EXACT):
            total = Decimal(units - times * 10**MOST_DIGITS).scaleb(-scale)
        return {"total": total, "beyond": times or None}

    return joined


def finished_sum(sum_of: Sum, kind: FieldType) -> Column:
    """The sum as the value that it was declared to be."""
    if kind.kind == "double":
        made, told = _double(sum_of), F.lit("a sum of DOUBLE is beyond every finite number")
        is_finite = sum_of.total.is_null() | (F.magnitude(made) <= MOST_DOUBLE)
        return F.when(is_finite, made).otherwise(F.error(told))
    told = F.lit("a sum of decimals has more than 38 digits")
    return F.when(sum_of.beyond.is_null(), sum_of.total).otherwise(F.error(told))


def mean(sum_of: Sum, number: Column, given: FieldType) -> Column:
    """The mean of ``number`` values of the type ``given``, as DOUBLE: of finite ones it is finite."""
    count = number.cast("double")
    plain = _quotient(sum_of.total if given.kind == "double" else F.exact_double(sum_of.total), count)
    if given.kind == "double":
        scaled = (sum_of.beyond / count + sum_of.total / UNIT / count) * UNIT
        beyond = F.greatest(F.lit(-MOST_DOUBLE), F.least(F.lit(MOST_DOUBLE), scaled))
    else:
        beyond = plain + sum_of.beyond.cast("double") * 10.0 ** (MOST_DIGITS - given.scale) / count
    return F.when(sum_of.beyond.is_null(), plain).otherwise(beyond)


def plain_mean(total: Column, number: Column, given: FieldType) -> Column:
    """The mean of ``number`` values that come to ``total``."""
    return _quotient(total if given.kind == "double" else F.exact_double(total), number.cast("double"))


def long_of(total: Column) -> Column:
    """A ``WIDE`` sum as the LONG that it was declared to be."""
    fits = total.is_null() | ((total >= -(2**63)) & (total <= 2**63 - 1))
    told = F.concat("a sum of LONG has more than 64 bits: ", total)
    return F.when(fits, total.try_cast("long")).otherwise(F.error(told))


def _quotient(total: Column, count: Column) -> Column:
    return F.when(count != 0.0, total / count)


def _double(sum_of: Sum) -> Column:
    beyond = F.coalesce(sum_of.beyond, F.lit(0.0))
    whole = sum_of.total + beyond * UNIT
    return F.when(F.magnitude(whole) <= MOST_DOUBLE, whole).otherwise((sum_of.total / UNIT + beyond) * UNIT)
