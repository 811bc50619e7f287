"""Sums are exact: one that its declared type cannot hold is an error that names it, never another number."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from recount.core.errors import OfARecord
from recount.core.schema import LONG_MAX, LONG_MIN, FieldType


class SumTooLarge(OfARecord):
    """A sum of LONG beyond 64 bits, or of a decimal beyond its 38 digits; ``given`` names the result."""


def fits(total: int | Decimal, kind: FieldType) -> bool:
    """Whether ``total`` is a value of ``kind``."""
    if isinstance(total, Decimal):
        return not total or total.adjusted() < kind.precision - kind.scale
    return LONG_MIN <= total <= LONG_MAX


def too_large(name: str, total: object, kind: FieldType, about: Mapping[str, Any]) -> SumTooLarge:
    """The error of the aggregate ``name``; ``about`` are the key and the window of its result."""
    place = ", ".join(f"{column}={value}" for column, value in about.items())
    return SumTooLarge(
        f"the sum {name} is too large for its type",
        given=f"{total} for {place}" if place else str(total),
        expected=f"a sum that fits into {kind}",
        remedy="declare the field as decimal(19, 0), whose sums have 38 digits, or filter the record that is too large",
    )
