"""Sums are exact: one that its declared type cannot hold is an error that names it, never another number."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from recount.core.errors import OfARecord
from recount.core.schema import LONG_MAX, LONG_MIN, FieldType

EXACT = Context(prec=400)
"""Wide enough that no sum of decimals or of DOUBLEs is rounded before it is compared with what its type holds."""
LARGEST_DOUBLE = sys.float_info.max
BEYOND_DOUBLE = 2.0**64
"""What is beyond a DOUBLE is carried in units of it."""
_SHOWN = Context(prec=17)


class SumTooLarge(OfARecord):
    """A sum of LONG beyond 64 bits, of a decimal beyond its 38 digits, or of DOUBLE beyond every finite number.

    ``given`` names the result, and the record that adds most to it where that is known. ``aggregate``, ``about`` (key
    and window, by column) and ``is_negative`` are for those who look for that record.
    """

    aggregate: str = ""
    about: Mapping[str, Any] = {}
    is_negative: bool = False

    def naming(self, record: str, among: str) -> SumTooLarge:
        """The same, which names ``record``, the one that adds most ``among`` some of those that were added up."""
        told = f"{self.given}; {among} {record} adds most to it"
        made = SumTooLarge(self.what, given=told, expected=self.expected, remedy=self.remedy)
        made.aggregate, made.about, made.is_negative = self.aggregate, self.about, self.is_negative
        made.record = record
        return made


def fits(total: float | Decimal, kind: FieldType) -> bool:
    """Whether ``total`` is a value of ``kind``."""
    if kind.kind == "double":
        return math.isfinite(total)
    if isinstance(total, Decimal):
        return not total or total.adjusted() < kind.precision - kind.scale
    return LONG_MIN <= total <= LONG_MAX


def sum_of_doubles(values: Iterable[float]) -> float:
    """The sum of ``values``, whatever it comes to on the way; infinite where it is beyond every finite number."""
    values = list(values)
    total = sum(values)
    if math.isfinite(total):
        return total
    exact = sum(map(Fraction, values), Fraction(0))
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def mean_of_doubles(values: Iterable[float]) -> float:
    """The mean of finite ``values``, which is finite."""
    values = list(values)
    total = sum(values)
    if math.isfinite(total):
        return total / len(values)
    return float(sum(map(Fraction, values), Fraction(0)) / len(values))


def too_large(name: str, total: object, kind: FieldType, about: Mapping[str, Any]) -> SumTooLarge:
    """The error of the aggregate ``name``; ``about`` are the key and the window of its result."""
    place = ", ".join(f"{column}={value}" for column, value in about.items())
    told = str(_SHOWN.plus(total)) if isinstance(total, Decimal) and kind.kind == "double" else str(total)
    error = SumTooLarge(
        f"the sum {name} is too large for its type",
        given=f"{told} for {place}" if place else told,
        expected=f"a sum that fits into {kind}",
        remedy="filter the record that is too large, or (of LONG) declare the field as decimal(19, 0), whose sums have"
        " 38 digits; both are another declaration: `recount reset STREAM`",
    )
    error.aggregate, error.about, error.is_negative = name, dict(about), told.startswith("-")
    return error
