"""What a row's order says of where it came from."""

from __future__ import annotations

from collections import deque
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recount.declare.functions import as_declared, require_returned
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, decimal, list_of
from recount.engine.operators.batch_rows import LOG_ORDER, origin, window_order
from recount.engine.operators.folds import frame_of
from recount.runtime.errors import Terminal


def of_record(topic: str, partition: int, offset: int) -> str:
    return pl.DataFrame({"topic": [topic], "partition": [partition], "offset": [offset]}).select(LOG_ORDER).item()


def of_window(start: int, end: int, key: str) -> str:
    return pl.select(window_order(pl.lit(start), pl.lit(end), pl.lit(key))).item()


ORDERED, PAID = of_record("orders", 0, 12), of_record("payments", 3, 0)
RESULT = of_window(0, 300_000, "EU")


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (ORDERED, "orders-0@12"),
        (ORDERED + PAID, "orders-0@12+payments-3@0"),
        (RESULT, None),
        (RESULT + PAID, "payments-3@0"),
        (ORDERED + RESULT, "orders-0@12"),
        (ORDERED + RESULT + PAID, "orders-0@12+payments-3@0"),
        (RESULT + of_window(0, 300_000, ""), None),
        (of_window(0, 300_000, "7") + ORDERED, "orders-0@12"),
    ],
)
def test_the_records_that_a_row_was_made_of_are_named_and_windows_results_are_not(
    order: str, expected: str | None
) -> None:
    assert origin(pl.Series([order])).to_list() == [expected]
    assert origin(pl.Series([order, ORDERED, None])).to_list() == [expected, "orders-0@12", None]


def test_nothing_comes_from_nowhere() -> None:
    assert origin(pl.Series([], dtype=pl.String)).to_list() == []
    assert origin(pl.Series([None], dtype=pl.String)).to_list() == [None]


def test_a_topic_may_have_a_number_for_a_name() -> None:
    orders = [of_record("7", 1, 10**18) + of_record("0123456789", 0, 0)]
    assert origin(pl.Series(orders)).to_list() == ["7-1@1000000000000000000+0123456789-0@0"]


SCALARS = [STRING, LONG, DOUBLE, BOOLEAN, decimal(9, 2), decimal(38, 0), decimal(38, 38)]
kinds = st.sampled_from([*SCALARS, *map(list_of, SCALARS)])
numbers = st.integers() | st.sampled_from([2**63 - 1, 2**63, -(2**63), 10**38]) | st.floats() | st.decimals()
scalars = st.none() | st.booleans() | numbers | st.decimals(-(10**8), 10**8, places=2) | st.text() | st.binary()
values = scalars | st.lists(scalars, max_size=2)


def refusal(takes: Any, *arguments: Any) -> Terminal | None:
    try:
        takes(*arguments)
    except Terminal as error:
        return error
    return None


@settings(max_examples=300)
@given(values, kinds)
def test_the_driver_refuses_what_the_engine_refuses(value: Any, kind: FieldType) -> None:
    assert_same(value, kind)


def assert_same(value: Any, kind: FieldType) -> None:
    engine = refusal(frame_of, [{"n": value}], {"n": kind}, "a map")
    for takes in (require_returned, as_declared):
        driver = refusal(takes, {"n": value}, {"n": kind}, "a map")
        assert (engine is None) == (driver is None), (engine, driver)
    if engine is None:
        [found] = frame_of([{"n": value}], {"n": kind}, "a map").rows()
        assert repr(list(found)) == repr(list(as_declared({"n": value}, {"n": kind}, "a map").values()))


class Mood(StrEnum):
    """A text with a name."""

    GOOD = "good"


class Size(IntEnum):
    """A number with a name."""

    LARGE = 7


ODD: dict[str, Any] = {
    "a text with a name": Mood.GOOD,
    "a number with a name": Size.LARGE,
    "a number of numpy": np.int64(5),
    "a double of numpy": np.float64(1.5),
    "a short double of numpy": np.float32(0.5),
    "no number of numpy": np.float64("nan"),
    "a boolean of numpy": np.bool_(True),
    "an array": np.array([1, 2]),
    "an array of doubles": np.array([1.5]),
    "a fraction": Fraction(1, 2),
    "minus nothing": Decimal("-0"),
    "hundreds": Decimal("1E2"),
    "a tuple": (1, 2),
    "a tuple of texts": ("a", None),
    "a set": {7},
    "a frozen set": frozenset({7}),
    "a range": range(2),
    "a queue": deque([1]),
    "the keys of a dict": {1: 2}.keys(),
    "what is read once": iter([1]),
    "a dict": {"a": 1},
    "bytes": b"a",
    "a date": date(2026, 1, 1),
    "a moment": datetime(2026, 1, 1, tzinfo=UTC),
}


@pytest.mark.parametrize("value", ODD)
def test_the_driver_makes_of_odd_values_what_the_engine_makes(value: str) -> None:
    for kind in (*SCALARS, *map(list_of, SCALARS)):
        assert_same(ODD[value], kind)
