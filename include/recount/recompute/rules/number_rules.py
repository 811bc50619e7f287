"""Rules of numbers: exact sums by Spark SQL, and the starts of time windows.

Source: "Values that do not fit" of docs/semantics.md. A sum is never null or another number where one is too large. A
sum of DOUBLE, and one of decimals of many digits, is ``Total``: what does not fit while more is to come is carried
beside it. So what it comes to depends on no order, no partition and no cut between nights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from recount.declare.schema import FieldType
from recount.declare.windows import TimeWindows

WIDE = "decimal(38, 0)"
"""Carries a sum of LONG."""
MOST_DIGITS = 38
PLAIN_DIGITS = 28
"""Of decimals of so many digits it takes 10**10 of the largest before a sum has more than 38: no window has them."""
LARGE, UNIT, MOST_DOUBLE = 2.0**900, 2.0**64, 1.7976931348623157e308
"""From ``LARGE`` on a DOUBLE is added up in units of ``UNIT``."""
_HALF = 32
_LOWER_DIGITS = 20
_EXACT = Context(prec=100)
Over = Callable[[Column], Column]


@dataclass(frozen=True)
class Total:
    """A sum: ``total`` and, null for nothing, what is ``beyond`` it.

    That is how many times 10**38 of the smallest unit of a decimal, how many times ``UNIT`` of a DOUBLE.
    """

    total: Column
    beyond: Column

    @property
    def struct(self) -> Column:
        """The total as one column."""
        return F.struct(self.total.alias("total"), self.beyond.alias("beyond"))

    @classmethod
    def of(cls, struct: Column) -> Total:
        """The total of a ``struct``."""
        return cls(struct["total"], struct["beyond"])


def is_carried_apart(given: FieldType) -> bool:
    """Whether a sum of values of the type ``given`` is a ``Total``."""
    return given.kind == "double" or (given.kind == "decimal" and given.precision > PLAIN_DIGITS)


def beyond_type(kind: FieldType) -> str:
    """The type of what is beyond a sum of ``kind``."""
    return "double" if kind.kind == "double" else "long"


def exact_sum(values: Column, kind: FieldType, over: Over = lambda aggregated: aggregated) -> Column:
    """The sum of ``values`` of the type ``kind``, no ``Total``: of LONG as ``WIDE``; ``over`` says over what it is
    taken.

    LONG is summed in two halves of 32 bits, each of which has room for two thousand million records.
    """
    if kind.kind == "long":
        upper = over(F.sum(F.shiftright(values, _HALF))).cast("decimal(20, 0)")
        lower = over(F.sum(values.bitwiseAND(F.lit((1 << _HALF) - 1)))).cast("decimal(20, 0)")
        return (upper * F.lit(1 << _HALF).cast("decimal(10, 0)") + lower).cast(WIDE)
    total = over(F.try_sum(values))
    missing = total.isNull() & (over(F.count(values)) > 0)
    return F.when(missing, F.raise_error(F.lit("a sum of decimals has more than 38 digits"))).otherwise(total)


def total_of(values: Total, kind: FieldType, over: Over = lambda aggregated: aggregated) -> Total:
    """The sum of ``values``, of which each may be a sum already; ``kind`` is its declared type."""
    there = over(F.count(values.total)) > 0
    beyond = F.coalesce(over(F.sum(values.beyond)), F.lit(0).cast(beyond_type(kind)))
    if kind.kind == "double":
        is_large = F.abs(values.total) >= LARGE
        small = F.coalesce(over(F.sum(F.when(~is_large, values.total))), F.lit(0.0))
        large = F.coalesce(over(F.sum(F.when(is_large, values.total / UNIT))), F.lit(0.0)) + beyond
        whole = small + large * UNIT
        is_plain = F.abs(whole) < MOST_DOUBLE
        return Total(F.when(there, F.when(is_plain, whole).otherwise(small)), F.when(there & ~is_plain, large))
    wide = values.total.cast(f"decimal({MOST_DIGITS}, {kind.scale})")
    upper_unit = _power_of_ten(_LOWER_DIGITS - kind.scale)
    lower = wide % upper_unit
    # a whole number of at most 18 digits, cut and not rounded, whatever type Spark has for quotients of decimals
    upper = F.call_function("div", wide, upper_unit).cast("decimal(20, 0)")
    made = F.udf(_joined(kind.scale), f"total decimal({MOST_DIGITS}, {kind.scale}), beyond long")(
        over(F.sum(upper)), over(F.sum(lower)), beyond
    )
    return Total(F.when(there, made["total"]), F.when(there, made["beyond"]))


def _joined(scale: int) -> Callable[..., Any]:
    """Adds up the parts of a sum of decimals with ``scale`` places."""

    def joined(upper, lower, beyond):  # type: ignore[no-untyped-def]
        with localcontext(_EXACT):
            whole = (upper or Decimal(0)).scaleb(_LOWER_DIGITS - scale) + (lower or Decimal(0))
            limit = Decimal(1).scaleb(MOST_DIGITS - scale)
            whole += beyond * limit
            times = int(whole / limit)
            return whole - times * limit, times or None

    return joined


def finished(sum_of: Total, kind: FieldType) -> Column:
    """The sum as the value that it was declared to be."""
    if kind.kind == "double":
        made = _double(sum_of)
        told = F.lit("a sum of DOUBLE is beyond every finite number")
        return F.when(sum_of.total.isNull() | (F.abs(made) <= MOST_DOUBLE), made).otherwise(F.raise_error(told))
    told = F.lit("a sum of decimals has more than 38 digits")
    return F.when(sum_of.beyond.isNull(), sum_of.total).otherwise(F.raise_error(told))


def as_long(total: Column) -> Column:
    """A ``WIDE`` sum as the LONG that it was declared to be."""
    fits = total.isNull() | total.between(F.lit(-(2**63)), F.lit(2**63 - 1))
    told = F.concat(F.lit("a sum of LONG has more than 64 bits: "), total.cast("string"))
    return F.when(fits, total.cast("long")).otherwise(F.raise_error(told))


def _double(sum_of: Total) -> Column:
    beyond = F.coalesce(sum_of.beyond, F.lit(0.0))
    whole = sum_of.total + beyond * UNIT
    return F.when(F.abs(whole) <= MOST_DOUBLE, whole).otherwise((sum_of.total / UNIT + beyond) * UNIT)


def _power_of_ten(exponent: int) -> Column:
    """A power of ten as a decimal without more digits than it needs: the type of a quotient depends on them."""
    if exponent >= 0:
        return F.lit(str(10**exponent)).cast(f"decimal({exponent + 1}, 0)")
    return F.lit(format(Decimal(1).scaleb(exponent), "f")).cast(f"decimal({-exponent}, {-exponent})")


def newest_start(windows: TimeWindows, time_ms: Any) -> Any:
    """The start of the newest window that holds ``time_ms``: the last one that is not after it.

    Of a column of either engine it is one.
    """
    advance_ms, since_ms = windows.advance_ms, time_ms - windows.origin_ms
    return time_ms - (since_ms % advance_ms + advance_ms) % advance_ms


def all_starts(windows: TimeWindows, time_ms: Any, functions: Any) -> Any:
    """The starts of all windows that hold ``time_ms``, rising; none before the newest that holds the epoch.

    ``functions`` are those of the engine of the column ``time_ms``.
    """
    oldest = newest_start(windows, time_ms - windows.size_ms + windows.advance_ms)
    first = functions.greatest(functions.lit(newest_start(windows, 0)), oldest)
    return functions.sequence(first, newest_start(windows, time_ms), functions.lit(windows.advance_ms).cast("long"))
