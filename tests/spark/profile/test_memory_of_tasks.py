"""What one task of a job can hold at once."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession

JOINS = 40


def test_a_task_has_memory_for_many_joins_of_few_rows(spark: SparkSession) -> None:
    """Each join keeps one of its sides as long as the task lives; none of it can be spilled."""
    frames = [spark.range(3).coalesce(1).withColumnRenamed("id", f"id{number}") for number in range(JOINS)]

    def joined(left: DataFrame, right: DataFrame) -> DataFrame:
        return left.join(right.hint("shuffle_hash"), left[left.columns[0]] == right[right.columns[0]], "left")

    assert reduce(joined, frames).count() == 3
