"""An expression compiled to Spark columns means what ``evaluate`` says, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from tests.unit.engine.stage.test_polars_expressions import FIELDS, OUT_OF_RANGE, ROW, evaluated, rows, trees

from recount.declare.expressions import Expression, coalesce, col, lit
from recount.recompute.rules.number_rules import kind_beyond
from recount.recompute.spark_columns import column, exact_in, spark_type

SCHEMA = T.StructType([T.StructField(name, spark_type(kind)) for name, kind in FIELDS.items()])


def computed(spark: SparkSession, given_trees: Sequence[Expression], given_rows: Sequence[dict[str, Any]]) -> list[Any]:
    frame = spark.createDataFrame([tuple(row[name] for name in FIELDS) for row in given_rows], SCHEMA).coalesce(1)
    exact_in(spark)
    kinds = [kind_beyond(tree, FIELDS, "") for tree in given_trees]
    reasons = [F.lit(None).cast("string") if kind is None else kind for kind in kinds]
    found = frame.select(*(column(tree, FIELDS) for tree in given_trees), *reasons).collect()
    many = len(given_trees)
    return [
        tuple(
            value if kind is None else f"{OUT_OF_RANGE}: {kind}"
            for value, kind in zip(row[:many], row[many:], strict=True)
        )
        for row in map(tuple, found)
    ]


def expected_of(given_trees: Sequence[Expression], given_rows: Sequence[dict[str, Any]]) -> list[Any]:
    return [tuple(evaluated(tree, row) for tree in given_trees) for row in given_rows]


@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
@given(st.lists(trees, min_size=1, max_size=15), rows.filter(bool))
def test_spark_computes_what_the_reference_evaluates(
    spark: SparkSession, given_trees: list[Expression], given_rows: list[dict[str, Any]]
) -> None:
    assert computed(spark, given_trees, given_rows) == expected_of(given_trees, given_rows), list(map(str, given_trees))


def test_null_division_and_exact_decimals_are_as_the_reference_has_them(spark: SparkSession) -> None:
    given_trees = [
        col("amount") * col("fee"),
        col("amount") / 0,
        col("amount") / 4,
        col("vip") & lit(None),
        col("vip") | True,
        col("count") == coalesce(lit(None)),
        col("name").is_null(),
    ]
    expected = (Decimal("3.375"), None, 0.5625, None, True, None, True)
    assert computed(spark, given_trees, [ROW]) == [expected] == expected_of(given_trees, [ROW])
