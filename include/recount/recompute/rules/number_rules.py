"""Rules of numbers: which sums are carried in two parts, and the start of a time window.

Source: "Values that do not fit" and "Windows" of docs/semantics.md.
"""

from __future__ import annotations

from typing import Any

from recount.declare.schema import FieldType
from recount.declare.windows import TimeWindows

WIDE = "decimal(38, 0)"
"""Carries a sum of LONG."""
MOST_DIGITS = 38
PLAIN_DIGITS = 28
"""Of decimals of so many digits it takes 10**10 of the largest before a sum has more than 38: no window has them."""
LARGE, UNIT, MOST_DOUBLE = 2.0**900, 2.0**64, 1.7976931348623157e308
"""From ``LARGE`` on a DOUBLE is added up in units of ``UNIT``."""


def is_carried_apart(given: FieldType) -> bool:
    """Whether a sum of values of the type ``given`` is carried in two parts: what fits the type, and what is beyond.

    So what it comes to depends on no order, no partition and no cut between nights.
    """
    return given.kind == "double" or (given.kind == "decimal" and given.precision > PLAIN_DIGITS)


def beyond_type(kind: FieldType) -> str:
    """The type of what is beyond a sum of ``kind``."""
    return "double" if kind.kind == "double" else "long"


def newest_start(windows: TimeWindows, time_ms: Any) -> Any:
    """The start of the newest window that holds ``time_ms``: the last one that is not after it.

    Of a column it is one.
    """
    advance_ms, since_ms = windows.advance_ms, time_ms - windows.origin_ms
    return time_ms - (since_ms % advance_ms + advance_ms) % advance_ms
