"""Functions over the rows of one group: each sees all rows of its group, and no others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from recount.recompute.operators.log_rows import in_groups

ROWS_OF_A_BATCH = 4


def _together(rows: pa.Table) -> pa.Table:
    """One row for the group: its first key, and how many rows it has."""
    return pa.table({"rows": [rows.num_rows], "a.key": rows.column("a.key").slice(0, 1)})


def _counted(spark: SparkSession, keys: list[float | None]) -> list[tuple[float | None, int]]:
    frame = spark.createDataFrame([(key, 0) for key in keys], "`a.key` double, other int")
    schema = T.StructType([T.StructField("a.key", T.DoubleType()), T.StructField("rows", T.LongType())])
    return [(row["a.key"], row["rows"]) for row in in_groups(frame, ["a.key"], _together, schema).collect()]


@pytest.fixture(autouse=True)
def _small_batches(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, ROWS_OF_A_BATCH)
    yield
    spark.conf.set(name, before)


@pytest.mark.parametrize("larger", range(1, 3 * ROWS_OF_A_BATCH))
def test_groups_that_end_within_at_the_end_of_and_behind_a_batch_are_whole(spark: SparkSession, larger: int) -> None:
    keys = [1.0, *[2.0] * larger, 3.0, 3.0, *[4.0] * larger]
    assert sorted(_counted(spark, keys)) == sorted(Counter(keys).items())


def test_keys_are_the_same_where_spark_groups_them_so(spark: SparkSession) -> None:
    found = _counted(spark, [None, math.nan, 0.0, None, -0.0, math.nan, 1.0])
    # 0.0 + -0.0 is 0.0
    told = [(None if key is None else key + 0.0, rows) for key, rows in found]
    assert sorted((str(key), rows) for key, rows in told) == [("0.0", 2), ("1.0", 1), ("None", 2), ("nan", 2)]


def test_without_rows_there_is_no_group(spark: SparkSession) -> None:
    assert _counted(spark, []) == []
