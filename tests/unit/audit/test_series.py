"""The chart of a certificate: totals per window, of which each can be drawn."""

from __future__ import annotations

from decimal import Decimal
from math import inf, nan

import pytest

from recount.audit.compare.results import WindowTotal, series_of


def total(start: int, expected: float | Decimal | int) -> dict[str, float | Decimal | int]:
    return {"window_start": start, "expected": expected, "published": expected, "complete": expected}


def bar(start: int, expected: str) -> WindowTotal:
    one = Decimal(expected)
    return WindowTotal(window_start=start, expected=one, published=one, complete=one)


def test_totals_of_one_window_are_added_up_and_windows_are_in_order() -> None:
    assert series_of([total(60, 2), total(0, Decimal("1.5")), total(60, 3)]) == (bar(0, "1.5"), bar(60, "5"))
    assert series_of([total(0, 0.1234567)]) == (bar(0, "0.123457"),)


@pytest.mark.parametrize("beyond", [inf, -inf, nan])
def test_a_window_whose_total_is_beyond_every_double_is_left_out(beyond: float) -> None:
    """Added to its opposite it ended the audit, and no page could be made of it."""
    assert series_of([total(0, beyond), total(60, 1.5), total(0, -beyond), total(0, 1.0)]) == (bar(60, "1.5"),)
