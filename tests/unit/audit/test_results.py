"""Results are merged and compared as the recompute merges them: exactly, doubles nearly, nulls passed over."""

from __future__ import annotations

import math

import polars as pl
import pytest
from tests.unit.audit.test_judgement import ORDERS, OUT

from recount.audit.compare.results import merged, result_of, same_result, text_of
from recount.declare.aggregates import count, largest, smallest, total
from recount.declare.columns import RECORDS, RESULT_TIME
from recount.declare.expressions import col
from recount.declare.schema import DOUBLE, LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.recompute.single_flow import Flow

VALUE = RecordSchema.of(region=STRING, ratio=DOUBLE, pieces=LONG)
AGGREGATES = {
    "n": count(),
    "ratio": total("ratio"),
    "high": largest("ratio"),
    "low": smallest("pieces"),
    "all": total("pieces"),
}


def a_flow() -> Flow:
    topic = Topic(name=ORDERS.name, key="id", value=VALUE)
    grouped = stream(topic).select_key(region=col("region")).windowed_by(tumbling("10 s", grace="3 s"))
    return Flow.of(Topology(name="mixed", sinks=[grouped.aggregate(**AGGREGATES).emit_each_batch().to(OUT)]))


def partials(*given: tuple[float | None, float | None, int | None, int | None]) -> pl.DataFrame:
    place = {"region": "EU", "window_start": 0, "window_end": 10_000, RESULT_TIME: 5, RECORDS: 1, "n": 1}
    types = {"ratio": pl.Float64, "high": pl.Float64, "low": pl.Int64, "all": pl.Int64}
    rows = [{**place, **dict(zip(types, one, strict=True))} for one in given]
    return pl.DataFrame(rows, schema_overrides=types)


def test_of_nothing_but_nulls_every_aggregate_but_the_count_is_null() -> None:
    [row] = merged(partials((None, None, None, None), (None, None, None, None)), a_flow()).to_dicts()
    assert [row[name] for name in AGGREGATES] == [2, None, None, None, None]
    assert text_of({name: row[name] for name in AGGREGATES}) == '{"n":2}'


def test_nulls_are_passed_over() -> None:
    [row] = merged(partials((0.5, 0.5, 3, 3), (None, None, None, None), (0.25, 0.25, 1, 1)), a_flow()).to_dicts()
    assert [row[name] for name in AGGREGATES] == [3, 0.75, 0.5, 1, 4]
    assert (row[RESULT_TIME], row[RECORDS]) == (5, 3)


def test_no_number_is_larger_than_not_a_number() -> None:
    [row] = merged(partials((1.0, math.nan, 1, 1), (1.0, 2.0, 1, 1)), a_flow()).to_dicts()
    assert math.isnan(row["high"])


def test_a_sum_beyond_64_bits_is_no_other_number() -> None:
    of_two = merged(partials((1.0, 1.0, 1, 2**63 - 1), (1.0, 1.0, 1, 1)), a_flow())
    of_three = merged(partials((1.0, 1.0, 1, 2**63 - 1), (1.0, 1.0, 1, 1), (1.0, 1.0, 1, -1)), a_flow())
    assert of_two["all"].to_list() == [None] and of_three["all"].to_list() == [2**63 - 1]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((1.0, 1.0, 1, 1), (1.0 + 9e-10, 1.0, 1, 1), True),
        ((1.0, 1.0, 1, 1), (1.0 + 2e-9, 1.0, 1, 1), False),
        ((math.inf, math.nan, 1, 1), (math.inf, math.nan, 1, 1), True),
        ((None, 1.0, 1, 1), (None, 1.0, 1, 1), True),
        ((None, 1.0, 1, 1), (0.0, 1.0, 1, 1), False),
        ((1.0, 1.0, 10**17, 1), (1.0, 1.0, 10**17 + 1, 1), False),
    ],
)
def test_doubles_are_equal_within_a_relative_1e_9_and_all_else_exactly(
    one: tuple[float, float, int, int], other: tuple[float, float, int, int], same: bool
) -> None:
    flow = a_flow()
    sides = [partials(given).select(result_of(flow).alias(name)) for given, name in ((one, "one"), (other, "other"))]
    both = pl.concat(sides, how="horizontal")
    assert both.select(same_result(pl.col("one"), pl.col("other"), flow)).item() is same
