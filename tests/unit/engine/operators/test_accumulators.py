"""Accumulators: any grouping and order of merging gives the same, and a sketch has the interpreter's hashes."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recount.declare.aggregates import Aggregate, average, distinct, first, fold, largest, last, reduce, total
from recount.declare.columns import TIMESTAMP
from recount.declare.expressions import coalesce, col
from recount.declare.schema import LONG, STRING, FieldType
from recount.engine.operators.accumulators import Accumulators
from recount.engine.operators.batch_rows import ORDER
from recount.engine.stage.polars_expressions import field_column, polars_type
from recount.reference.record_aggregates import results
from recount.reference.records import Record


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
