"""The late ledger and the dead letters are judged record by record."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from recount.audit import side_ledgers
from recount.audit.side_ledgers import late_records, posted_letters, rejected_records, side_ledger_differences, within

_LATE = "topic string, partition int, offset long, timestamp_ms long, stream_time_ms long, key string, "
_LATE += "window_start long, window_end long, margin_ms long"
ROW = ("orders", 0, 7, 10, 400, "EU", 0, 300, 40)


def late(spark: SparkSession, *rows: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), _LATE)


@pytest.mark.parametrize(
    ("listed", "verdict"),
    [
        ([], "lost"),
        ([ROW, ROW], "duplicated"),
        ([(*ROW[:8], 41)], "altered"),
        ([ROW, (*ROW[:2], 8, *ROW[3:])], "extra"),
        ([ROW, (*ROW[:6], 300, 600, 40)], "extra"),
        ([ROW, (*ROW[:3], 11, *ROW[4:])], "altered"),
    ],
)
def test_a_late_ledger_that_differs_is_found(
    spark: SparkSession, listed: list[tuple[object, ...]], verdict: str
) -> None:
    [difference] = side_ledger_differences([late_records(late(spark, ROW), late(spark, *listed))])
    assert (difference.kind, difference.verdict) == ("late ledger", verdict)
    assert difference.evidence[0] in ("orders-0@7", "orders-0@8")


def test_a_late_ledger_that_lists_every_late_record_once_has_no_difference(spark: SparkSession) -> None:
    assert side_ledger_differences([late_records(late(spark, ROW), late(spark, ROW))]) == []


def test_dead_letters_are_compared_by_source_offset_and_reason(spark: SparkSession) -> None:
    columns = "topic string, partition int, offset long, timestamp_ms long, reason string, detail string"
    bad = spark.createDataFrame([("orders", 0, 3, 5, "schema", "x"), ("orders", 0, 4, 5, "schema", "x")], columns)
    other = spark.createDataFrame([("orders", 0, 3, 5, "schema", "y"), ("orders", 0, 4, 5, "null-key", "")], columns)
    letters = other.unionByName(other.where("offset = 3")).select("topic", "partition", "offset", "reason")
    found = side_ledger_differences(
        [rejected_records(bad, bad), rejected_records(bad, other), posted_letters(bad, letters, "orders.dlq")]
    )
    assert [(one.place, one.verdict, one.evidence[0]) for one in found] == [
        ("rejected table", "altered", "orders-0@4"),
        ("orders.dlq", "duplicated", "orders-0@3"),
        ("orders.dlq", "altered", "orders-0@4"),
    ]


def test_many_differences_of_one_list_do_not_hide_those_of_another(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_ledgers, "MAX_DIFFERENCES", 2)
    rows = [(*ROW[:2], offset, *ROW[3:]) for offset in range(5)]
    columns = "topic string, partition int, offset long, reason string"
    letters = spark.createDataFrame([("orders", 0, 3, "schema")], columns)
    comparisons = [late_records(late(spark, ROW), late(spark, *rows)), posted_letters(letters.limit(0), letters, "dlq")]
    found = side_ledger_differences(comparisons)
    assert [(one.place, one.evidence[0]) for one in found] == [
        ("late table", "orders-0@0"),
        ("late table", "orders-0@1"),
        ("dlq", "orders-0@3"),
    ]


def test_only_letters_of_the_audited_offsets_count_and_those_that_name_none(spark: SparkSession) -> None:
    rows = [("orders", 0, 3), ("orders", 0, 10), ("other", 0, 3), (None, None, None)]
    letters = spark.createDataFrame(rows, "topic string, partition int, offset long")
    kept = within(letters, "orders", {0: (0, 10)}).collect()
    assert [tuple(row) for row in kept] == [("orders", 0, 3), (None, None, None)]
