"""Long side ledgers are compared by Spark, and it finds what is found without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.unit.audit.test_side_ledgers import (
    LATE,
    LETTER,
    LETTERS,
    LISTED,
    LOG,
    NAMED,
    ROW,
    letters_and_rejected,
    rows,
)

from recount.audit.compare import side_ledgers
from recount.audit.compare.side_ledgers import (
    Comparison,
    late_records,
    posted_letters,
    side_ledger_differences,
    side_ledger_differences_by_spark,
    within,
    within_by_spark,
)


def in_spark(spark: SparkSession, comparison: Comparison[pl.DataFrame]) -> Comparison[DataFrame]:
    recomputed, listed = (spark.createDataFrame(one.to_arrow()) for one in (comparison.recomputed, comparison.listed))
    return replace(comparison, recomputed=recomputed, listed=listed)  # type: ignore[arg-type]


@pytest.mark.parametrize("listed", [[ROW], *(given for given, _ in LISTED)])
def test_spark_finds_what_is_found_without(spark: SparkSession, listed: list[tuple[Any, ...]]) -> None:
    comparisons = [late_records(rows(LATE, ROW), rows(LATE, *listed)), *letters_and_rejected()]
    found = side_ledger_differences_by_spark([in_spark(spark, one) for one in comparisons])
    assert found == side_ledger_differences(comparisons)


def test_many_differences_of_one_list_do_not_hide_those_of_another(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_ledgers, "MAX_DIFFERENCES", 2)
    many = rows(LATE, *((*ROW[:2], offset, *ROW[3:]) for offset in range(5)))
    letters = rows(LETTER, ("orders", 0, 3, "schema"))
    comparisons = [late_records(rows(LATE, ROW), many), posted_letters(letters[:0], letters, "dlq")]
    found = side_ledger_differences_by_spark([in_spark(spark, one) for one in comparisons])
    assert [one.evidence[0] for one in found] == ["orders-0@0", "orders-0@1", "orders-0@2", "orders-0@3"]
    assert [one.verdict for one in found] == ["extra", "extra", "unlisted", "extra"]


def test_only_letters_of_the_audited_offsets_count_and_those_that_name_none(spark: SparkSession) -> None:
    letters = rows(NAMED, *LETTERS, ("orders", 0, 4, None))
    mine = ("recount.mine", "orders", {0: (0, 10)}, LOG)
    kept = within_by_spark(spark.createDataFrame(letters.to_arrow()), *mine).collect()
    assert [tuple(row) for row in kept] == within(letters, *mine).rows()
