"""Accumulators come to what the interpreter computes from all records, however they are grouped and merged."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import polars as pl
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
from recount.declare.columns import TIMESTAMP
from recount.declare.expressions import coalesce, col
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, decimal
from recount.engine.operators.accumulators import Accumulators
from recount.engine.operators.batch_rows import ORDER
from recount.engine.stage.polars_expressions import field_column, polars_type
from recount.reference.record_aggregates import results
from recount.reference.records import Record

EXAMPLES = int(os.environ.get("LAW_EXAMPLES", "8"))
GAP_MS = 3

FIELDS: dict[str, FieldType] = {
    "word": STRING,
    "items": LONG,
    "amount": decimal(9, 2),
    "weight": DOUBLE,
    "vip": BOOLEAN,
}


def joined(text: str, word: str | None) -> str:
    return f"{text}{word}"


EACH: dict[str, Aggregate] = {
    "count": count(),
    "sum_long": total("items"),
    "sum_decimal": total("amount"),
    "sum_product": total(col("amount") * col("amount")),
    "sum_double": total("weight"),
    "min_text": smallest("word"),
    "max_decimal": largest("amount"),
    "max_double": largest("weight"),
    "avg_long": average("items"),
    "avg_decimal": average("amount"),
    "avg_double": average("weight"),
    "first": first("word"),
    "last": last("amount"),
    "distinct_text": distinct("word"),
    "distinct_decimal": distinct("amount"),
    "distinct_truth": distinct("vip"),
    "sketch_text": distinct("word", sketch=True),
    "sketch_decimal": distinct("amount", sketch=True),
    "sketch_double": distinct("weight", sketch=True),
    "reduce": reduce(coalesce(col("word"), "-"), operator.add),
    "reduce_decimal": reduce(coalesce(col("amount"), Decimal("0.00")), max),
    "fold": fold("word", initial=lambda: "0", adder=joined, merger=joined, returns=STRING),
}
ALL = {**EACH, **{f"{name}_only": aggregate.only(col("vip")) for name, aggregate in EACH.items()}}

records = st.fixed_dictionaries(
    {
        "word": st.sampled_from(["x", "y", "é", "", None]),
        "items": st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([2**52, -(2**52)])),
        "amount": st.one_of(st.none(), st.integers(-999, 999).map(lambda cents: Decimal(cents).scaleb(-2))),
        "weight": st.sampled_from([0.5, -2.0, 0.0, None]),
        "vip": st.sampled_from([True, False, None]),
        "at": st.integers(0, 12),
        "group": st.sampled_from(["a", "b", None]),
        "part": st.integers(0, 3),
    }
)
logs = st.lists(records, max_size=12)


def frame(log: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """The records with their groups and parts; every second one has the order of the one before, as by a flat-map."""
    schema = {field_column(name): polars_type(kind) for name, kind in FIELDS.items()}
    rows = [
        {
            **{field_column(name): record[name] for name in FIELDS},
            TIMESTAMP: record["at"],
            ORDER: f"{number // 2:03}",
            "group": record["group"],
            "part": record["part"],
        }
        for number, record in enumerate(log)
    ]
    place = {TIMESTAMP: pl.Int64(), ORDER: pl.String(), "group": pl.String(), "part": pl.Int64()}
    return pl.DataFrame(rows, {**schema, **place}, orient="row")


def by_interpreter(log: Sequence[dict[str, Any]], gap_ms: int | None = None) -> dict[Any, tuple[Any, ...]]:
    groups = dict.fromkeys(record["group"] for record in log)
    found = {}
    for group in groups:
        members = [
            Record(row=record, timestamp_ms=record["at"], order=(number // 2,), entry=None)
            for number, record in enumerate(log)
            if record["group"] == group
        ]
        found[group] = typed(results(ALL, members, gap_ms))
    return found


def by_accumulators(merged: pl.DataFrame, accumulators: Accumulators) -> dict[Any, tuple[Any, ...]]:
    read = accumulators.results(merged)
    return {row["group"]: typed({name: row[field_column(name)] for name in ALL}) for row in read.iter_rows(named=True)}


def typed(row: Any) -> tuple[Any, ...]:
    return tuple((name, type(value).__name__, value) for name, value in row.items())


@settings(deadline=None, max_examples=EXAMPLES)
@given(log=logs, gap_ms=st.sampled_from([None, GAP_MS]))
def test_merged_records_give_what_the_interpreter_computes_from_all_of_them(
    log: list[dict[str, Any]], gap_ms: int | None
) -> None:
    accumulators = Accumulators(ALL, FIELDS, gap_ms)
    merged = accumulators.merged(accumulators.lifted(frame(log)), ["group"])
    assert by_accumulators(merged, accumulators) == by_interpreter(log, gap_ms)


@settings(deadline=None, max_examples=EXAMPLES)
@given(log=logs, shuffled=st.randoms())
def test_any_grouping_and_order_of_merging_gives_the_same(log: list[dict[str, Any]], shuffled: Any) -> None:
    accumulators = Accumulators(ALL, FIELDS)
    lifted = accumulators.lifted(frame(log))
    parts = accumulators.merged(lifted, ["group", "part"])
    mixed = parts[shuffled.sample(range(parts.height), parts.height)]
    whole = accumulators.merged(lifted, ["group"])
    again = accumulators.merged(accumulators.merged(mixed, ["group"]), ["group"])
    assert again.sort("group").equals(whole.sort("group"))


@settings(deadline=None, max_examples=EXAMPLES)
@given(log=logs)
def test_a_running_merge_is_the_merge_of_each_row_with_all_before_it(log: list[dict[str, Any]]) -> None:
    accumulators = Accumulators(ALL, FIELDS)
    lifted = accumulators.lifted(frame(log)).with_columns(pl.int_range(pl.len()).over("group").alias("position"))
    latest = {TIMESTAMP: pl.col(TIMESTAMP).max()}
    running = accumulators.running(lifted, ["group"], "position", **latest)
    assert running["part"].equals(lifted["part"])
    columns = ["group", *accumulators.schema, TIMESTAMP]
    for number in range(lifted.height):
        row = lifted[number]
        upto = lifted.head(number + 1).join(row, on="group", how="semi", nulls_equal=True)
        assert running[number].select(columns).equals(accumulators.merged(upto, ["group"], **latest).select(columns))


@settings(deadline=None, max_examples=20)
@given(log=logs)
def test_accumulators_have_the_columns_of_their_schema(log: list[dict[str, Any]]) -> None:
    accumulators = Accumulators(ALL, FIELDS)
    lifted = accumulators.lifted(frame(log))
    merged = accumulators.merged(lifted, ["group"])
    assert dict(lifted.select(list(accumulators.schema)).schema) == accumulators.schema
    assert dict(merged.drop("group").schema) == accumulators.schema
    read = accumulators.results(merged)
    declared = {name: polars_type(aggregate.type_over(FIELDS)) for name, aggregate in ALL.items()}
    assert {name: read.schema[field_column(name)] for name in ALL} == declared


def record(**values: Any) -> dict[str, Any]:
    return {**dict.fromkeys([*FIELDS, "group"]), "at": 0, "part": 0, **values}


@pytest.mark.parametrize("size", [1_023, 1_024, 1_025, 3_000])
def test_a_sketch_estimates_with_the_interpreters_hashes(size: int) -> None:
    log = [record(word=f"word {number}", part=number % 4) for number in range(size)]
    sketch = {"words": distinct("word", sketch=True)}
    accumulators = Accumulators(sketch, FIELDS)
    parts = accumulators.merged(accumulators.lifted(frame(log)), ["group", "part"])
    found = accumulators.results(accumulators.merged(parts, ["group"]))[field_column("words")].item()
    members = [Record(row=row, timestamp_ms=0, order=(), entry=None) for row in log]
    assert found == results(sketch, members)["words"]
    assert abs(found - size) <= size * 0.1


def test_sums_of_decimals_and_means_of_longs_are_exact_beyond_64_bits() -> None:
    log = [record(items=2**62, amount=Decimal("9999999.99")) for _ in range(6)]
    accumulators = Accumulators({"mean": average("items"), "sum": total("amount")}, FIELDS)
    read = accumulators.results(accumulators.merged(accumulators.lifted(frame(log)), ["group"]))
    assert read[field_column("mean")].item() == float(2**62)
    assert read[field_column("sum")].item() == Decimal("59999999.94")


@pytest.mark.parametrize("gap_ms", [None, GAP_MS])
def test_a_reduce_passes_over_nulls_also_where_sessions_merge(gap_ms: int | None) -> None:
    log = [record(word=word, at=at) for word, at in [("x", 0), (None, 6), (None, 3), ("y", 4)]]
    accumulators = Accumulators({"words": reduce("word", operator.add)}, FIELDS, gap_ms)
    read = accumulators.results(accumulators.merged(accumulators.lifted(frame(log)), ["group"]))
    assert read[field_column("words")].to_list() == ["xy"]


def test_of_nothing_there_is_no_row() -> None:
    accumulators = Accumulators(ALL, FIELDS)
    assert accumulators.results(accumulators.merged(accumulators.lifted(frame([])), ["group"])).is_empty()
