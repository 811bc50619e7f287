"""Sums by Spark SQL: exact, or an error; never null or another number where one is too large."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from recount.core.schema import FieldType

WIDE = "decimal(38, 0)"
"""Carries a sum of LONG."""
_HALF = 32
Over = Callable[[Column], Column]


def exact_sum(values: Column, kind: FieldType, over: Over = lambda aggregated: aggregated) -> Column:
    """The sum of ``values`` of the type ``kind``: of LONG as ``WIDE``; ``over`` says over what it is taken.

    LONG is summed in two halves of 32 bits, each of which has room for two thousand million records.
    """
    if kind.kind == "long":
        upper = over(F.sum(F.shiftright(values, _HALF))).cast("decimal(20, 0)")
        lower = over(F.sum(values.bitwiseAND(F.lit((1 << _HALF) - 1)))).cast("decimal(20, 0)")
        return (upper * F.lit(1 << _HALF).cast("decimal(10, 0)") + lower).cast(WIDE)
    total = over(F.try_sum(values))
    if kind.kind != "decimal":
        return total
    missing = total.isNull() & (over(F.count(values)) > 0)
    return F.when(missing, F.raise_error(F.lit("a sum of decimals has more than 38 digits"))).otherwise(total)


def as_long(total: Column) -> Column:
    """A ``WIDE`` sum as the LONG that it was declared to be."""
    fits = total.isNull() | total.between(F.lit(-(2**63)), F.lit(2**63 - 1))
    told = F.concat(F.lit("a sum of LONG has more than 64 bits: "), total.cast("string"))
    return F.when(fits, total.cast("long")).otherwise(F.raise_error(told))
