"""What a row's order says of where it came from."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Mapping, Sequence
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

from recount.declare.aggregates import Aggregate, average, distinct, first, fold, largest, last, reduce, total
from recount.declare.columns import TIMESTAMP
from recount.declare.expressions import coalesce, col
from recount.declare.functions import as_declared, require_returned
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, decimal, list_of
from recount.engine.operators.accumulators import Accumulators
from recount.engine.operators.batch_rows import LOG_ORDER, ORDER, origin, window_order
from recount.engine.operators.folds import frame_of
from recount.engine.stage.polars_expressions import field_column, polars_type
from recount.reference.record_aggregates import results
from recount.reference.records import Record
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


def joined(text: str, word: str | None) -> str:
    return f"{text}{word}"


FIELDS: Mapping[str, FieldType] = {"word": STRING, "items": LONG}
AGGREGATES: Mapping[str, Aggregate] = {
    "sum": total("items"),
    "mean": average("items"),
    "most": largest("items").only(col("items") > 0),
    "first": first("word"),
    "last": last("word"),
    "words": distinct("word"),
    "sketched": distinct("word", sketch=True),
    "reduced": reduce(coalesce(col("word"), "-"), operator.add),
    "reduced_nulls": reduce("word", operator.add),
    "folded": fold("word", initial=lambda: "0", adder=joined, merger=joined, returns=STRING),
}
records = st.fixed_dictionaries(
    {
        "word": st.sampled_from(["x", "y", "é", "", None]),
        "items": st.none() | st.integers(-3, 3),
        "at": st.integers(0, 12),
        "group": st.sampled_from(["a", "b", None]),
        "part": st.integers(0, 3),
    }
)
logs = st.lists(records, max_size=12)


def frame(log: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """The records with their groups and parts; every second one has the order of the one before, as by a flat-map."""
    fields = {field_column(name): polars_type(kind) for name, kind in FIELDS.items()}
    place = {TIMESTAMP: pl.Int64(), ORDER: pl.String(), "group": pl.String(), "part": pl.Int64()}
    rows = [
        (*(one[name] for name in FIELDS), one["at"], f"{number // 2:03}", one["group"], one["part"])
        for number, one in enumerate(log)
    ]
    return pl.DataFrame(rows, {**fields, **place}, orient="row")


@settings(deadline=None, max_examples=40)
@given(log=logs, gap_ms=st.sampled_from([None, 3]))
def test_merged_records_give_what_the_interpreter_computes_from_all_of_them(
    log: list[dict[str, Any]], gap_ms: int | None
) -> None:
    accumulators = Accumulators(AGGREGATES, FIELDS, gap_ms)
    merged = accumulators.merged(accumulators.lifted(frame(log)), ["group"])
    read = accumulators.results(merged)
    made = {row["group"]: {name: row[field_column(name)] for name in AGGREGATES} for row in read.iter_rows(named=True)}
    expected = {
        group: results(
            AGGREGATES,
            [
                Record(row=one, timestamp_ms=one["at"], order=(number // 2,), entry=None)
                for number, one in enumerate(log)
                if one["group"] == group
            ],
            gap_ms,
        )
        for group in {one["group"] for one in log}
    }
    assert made == expected


@settings(deadline=None, max_examples=10)
@given(log=logs, shuffled=st.randoms())
def test_any_grouping_and_order_of_merging_gives_the_same(log: list[dict[str, Any]], shuffled: Any) -> None:
    accumulators = Accumulators(AGGREGATES, FIELDS)
    lifted = accumulators.lifted(frame(log))
    parts = accumulators.merged(lifted, ["group", "part"])
    mixed = parts[shuffled.sample(range(parts.height), parts.height)]
    whole = accumulators.merged(lifted, ["group"])
    again = accumulators.merged(accumulators.merged(mixed, ["group"]), ["group"])
    assert again.sort("group").equals(whole.sort("group"))


@settings(deadline=None, max_examples=10)
@given(log=logs)
def test_a_running_merge_is_the_merge_of_each_row_with_all_before_it(log: list[dict[str, Any]]) -> None:
    accumulators = Accumulators(AGGREGATES, FIELDS)
    lifted = accumulators.lifted(frame(log)).with_columns(pl.int_range(pl.len()).over("group").alias("position"))
    latest = {TIMESTAMP: pl.col(TIMESTAMP).max()}
    running = accumulators.running(lifted, ["group"], "position", **latest)
    columns = ["group", *accumulators.schema, TIMESTAMP]
    for number in range(lifted.height):
        upto = lifted.head(number + 1).join(lifted[number], on="group", how="semi", nulls_equal=True)
        assert running[number].select(columns).equals(accumulators.merged(upto, ["group"], **latest).select(columns))


@pytest.mark.parametrize("size", [1_023, 1_024, 1_025, 3_000])
def test_a_sketch_estimates_with_the_interpreters_hashes(size: int) -> None:
    log = [{"word": f"word {n}", "items": None, "at": 0, "group": None, "part": n % 4} for n in range(size)]
    sketch = {"words": distinct("word", sketch=True)}
    accumulators = Accumulators(sketch, FIELDS)
    parts = accumulators.merged(accumulators.lifted(frame(log)), ["group", "part"])
    found = accumulators.results(accumulators.merged(parts, ["group"]))[field_column("words")].item()
    members = [Record(row=row, timestamp_ms=0, order=(), entry=None) for row in log]
    assert found == results(sketch, members)["words"]
    assert abs(found - size) <= size * 0.1
