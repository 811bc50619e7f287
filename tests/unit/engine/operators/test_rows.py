"""What a row's order says of where it came from."""

from __future__ import annotations

import polars as pl
import pytest

from recount.engine.operators.batch_rows import LOG_ORDER, origin, window_order


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
