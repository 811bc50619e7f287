"""Aggregates over the records of one window: nulls, order, exact sums, sessions that merge."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recount.declare.aggregates import (
    Aggregate,
    average,
    count,
    distinct,
    first,
    fold,
    largest,
    last,
    reduce,
    smallest,
    total,
)
from recount.declare.expressions import col
from recount.declare.schema import DOUBLE, LONG, STRING, decimal
from recount.reference.record_aggregates import SKETCH_SIZE, results, sketched
from recount.reference.records import Record
from recount.runtime.errors import InvalidDeclaration

CONCAT = fold("v", initial=lambda: "0", adder=lambda a, v: f"{a}+{v}", merger=lambda a, b: f"{a}+{b}", returns=STRING)


def records(*values: Any, times_ms: tuple[int, ...] = ()) -> list[Record]:
    return [
        Record(row={"v": value}, timestamp_ms=times_ms[i] if times_ms else i, order=("t", 0, i), entry=None)
        for i, value in enumerate(values)
    ]


def value(aggregate: Aggregate, *values: Any) -> Any:
    return results({"x": aggregate}, records(*values))["x"]


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (count(), 4),
        (total("v"), 6),
        (smallest("v"), 1),
        (largest("v"), 3),
        (average("v"), 2.0),
        (first("v"), 3),
        (last("v"), 2),
        (distinct("v"), 3),
        (reduce("v", lambda one, other: one * 10 + other), 312),
        (CONCAT, "0+3+None+1+2"),
    ],
)
def test_nulls_are_passed_over_by_all_but_count_and_fold(aggregate: Aggregate, expected: object) -> None:
    assert value(aggregate, 3, None, 1, 2) == expected


@pytest.mark.parametrize("aggregate", [total("v"), smallest("v"), largest("v"), average("v"), first("v"), last("v")])
def test_of_no_values_the_result_is_null(aggregate: Aggregate) -> None:
    assert value(aggregate, None) is None


def test_sums_of_decimals_are_never_rounded() -> None:
    assert value(total("v"), Decimal("9" * 30), Decimal("0.01")) == Decimal("9" * 30 + ".01")


def test_a_session_merges_the_accumulators_of_the_sessions_that_a_record_joins() -> None:
    merged = results({"x": CONCAT}, records("1", "2", times_ms=(10, 15)), gap_ms=500)
    assert merged["x"] == "0+0+1+2"


def test_the_earlier_session_comes_first_in_a_merge_whichever_arrived_first() -> None:
    bridged = results({"x": CONCAT}, records("late", "early", "bridge", times_ms=(20, 0, 10)), gap_ms=10)
    assert bridged["x"] == "0+0+early+0+late+bridge"


@pytest.mark.parametrize("n", [0, 1, SKETCH_SIZE - 1])
def test_a_sketch_is_exact_while_it_is_small(n: int) -> None:
    assert sketched(range(n)) == n


def test_a_sketch_is_a_few_percent_off_beyond() -> None:
    assert sketched(range(100_000)) == pytest.approx(100_000, rel=0.1)


@settings(deadline=None)
@given(st.lists(st.integers(0, 50)), st.lists(st.integers(0, 50)))
def test_a_sketch_does_not_depend_on_order_or_repetition(one: list[int], other: list[int]) -> None:
    assert sketched(one + other) == sketched([*other, *one, *one])


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (count(), LONG),
        (distinct("name"), LONG),
        (average("amount"), DOUBLE),
        (first("name"), STRING),
        (smallest("name"), STRING),
        (fold("name", initial=int, adder=max, merger=max, returns=LONG), LONG),
    ],
)
def test_every_aggregate_has_a_type(aggregate: Aggregate, expected: object) -> None:
    assert aggregate.type_over({"name": STRING, "amount": decimal(9, 2)}) == expected


def test_a_sum_of_decimals_keeps_their_scale_with_all_digits() -> None:
    given = total("amount").type_over({"amount": decimal(9, 2)})
    assert (given.kind, given.precision, given.scale) == ("decimal", 38, 2)


@pytest.mark.parametrize("aggregate", [total("name"), average("name"), count().only(col("name"))])
def test_an_aggregate_of_the_wrong_type_is_refused(aggregate: Aggregate) -> None:
    with pytest.raises(InvalidDeclaration):
        aggregate.type_over({"name": STRING})
