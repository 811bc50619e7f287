"""The comparison of ``side_ledgers`` for lists of any length: Spark lines them up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from recount.audit.side_ledgers import MAX_DIFFERENCES, RECORD, Comparison, difference, unlisted_difference
from recount.core.nodes import WINDOW_START
from recount.core.verdict import Difference

_COMPARISON = "comparison"


def side_ledger_differences_by_spark(comparisons: Sequence[Comparison[DataFrame]]) -> list[Difference]:
    """Where the lists differ, at most ``MAX_DIFFERENCES`` of each and one that says that there are more; one
    shuffle lines all of them up."""
    claims = [_claims(number, one) for number, one in enumerate(comparisons)]
    lined_up = (
        reduce(DataFrame.unionByName, claims)
        .groupBy(_COMPARISON, *RECORD, WINDOW_START)
        .agg(
            F.array_sort(F.collect_list(F.when(F.col("expected"), F.col("said")))).alias("should"),
            F.array_sort(F.collect_list(F.when(~F.col("expected"), F.col("said")))).alias("does"),
        )
    )
    in_order = Window.partitionBy(_COMPARISON).orderBy(*RECORD, WINDOW_START)
    wrong = lined_up.where(F.col("should") != F.col("does")).withColumn("number", F.row_number().over(in_order))
    listed = wrong.where(F.col("number") <= MAX_DIFFERENCES + 1).collect()
    found = []
    for row in sorted(listed, key=lambda row: (row[_COMPARISON], row.number)):
        comparison = comparisons[row[_COMPARISON]]
        one = difference(comparison, row.asDict(), row.should, row.does)
        found.append(one if row.number <= MAX_DIFFERENCES else unlisted_difference(comparison, one))
    return found


def _claims(number: int, comparison: Comparison[DataFrame]) -> DataFrame:
    def claimed(rows: DataFrame, *, expected: bool) -> DataFrame:
        window_start = F.col(WINDOW_START) if comparison.by_window else F.lit(None)
        return rows.select(
            F.lit(number).alias(_COMPARISON),
            *RECORD,
            window_start.cast("long").alias(WINDOW_START),
            F.to_json(F.struct(*comparison.values)).alias("said"),
            F.lit(expected).alias("expected"),
        )

    return claimed(comparison.recomputed, expected=True).unionByName(claimed(comparison.listed, expected=False))
