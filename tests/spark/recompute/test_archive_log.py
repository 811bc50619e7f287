"""A stretch of an archive costs its own files, and is the same whichever way it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from recount.recompute.archived_log import ArchiveLog
from recount.recompute.raw_log import SCHEMA, Ranges
from recount.tables.places import Tables

DAY_MS = 86_400_000
BATCH = 20
_STATISTICS = "spark.databricks.delta.stats.collect"


def append(spark: SparkSession, tables: Tables, first: int, *, statistics: bool = True) -> None:
    """The next ``BATCH`` offsets of two partitions: a file for each of two dates, both partitions in it in no order."""
    records = [
        (partition, offset, (offset % 2) * DAY_MS, b"key", f"{partition}/{offset}".encode())
        for partition in (0, 1)
        for offset in range(first, first + BATCH)
    ]
    dated = spark.createDataFrame(records, SCHEMA).withColumn(
        "event_date", F.to_date(F.timestamp_millis("timestamp_ms"))
    )
    before = spark.conf.get(_STATISTICS)
    spark.conf.set(_STATISTICS, statistics)
    try:
        rows = dated.orderBy(F.hash("offset")).coalesce(1)
        rows.write.format("delta").partitionBy("event_date").mode("append").save(tables.archive("orders"))
    finally:
        spark.conf.set(_STATISTICS, before or "true")


def read(spark: SparkSession, tables: Tables, ranges: Ranges) -> list[Row]:
    return ArchiveLog(tables=tables).read(spark, "orders", ranges).through(SCHEMA).collect()


@pytest.mark.parametrize("statistics", [True, False])
def test_each_partition_is_read_in_offset_order_and_no_further_than_its_range(
    spark: SparkSession, tmp_path: Path, statistics: bool
) -> None:
    tables = Tables(str(tmp_path))
    for batch in range(3):
        append(spark, tables, batch * BATCH, statistics=statistics)
    rows = read(spark, tables, {0: (5, 45), 1: (19, 21), 2: (0, 0)})
    offsets = {partition: [row.offset for row in rows if row.partition == partition] for partition in (0, 1)}
    assert offsets == {0: list(range(5, 45)), 1: [19, 20]}
    values = {(row.timestamp_ms, bytes(row.key), bytes(row.value).decode()) for row in rows if row.partition == 1}
    assert values == {(DAY_MS, b"key", "1/19"), (0, b"key", "1/20")}
    assert read(spark, tables, {0: (7, 7)}) == []


def test_files_of_other_offsets_are_not_opened(spark: SparkSession, tmp_path: Path) -> None:
    """Those of the first batch are not there any more."""
    tables = Tables(str(tmp_path))
    append(spark, tables, 0)
    for file in Path(tables.archive("orders")).rglob("*.parquet"):
        file.unlink()
    append(spark, tables, BATCH)
    rows = read(spark, tables, {0: (BATCH, 2 * BATCH)})
    assert [row.offset for row in rows] == list(range(BATCH, 2 * BATCH))


def test_an_archive_of_which_rows_were_deleted_does_not_bring_them_back(spark: SparkSession, tmp_path: Path) -> None:
    """With deletion vectors the files still hold the rows: then Spark reads them."""
    tables = Tables(str(tmp_path))
    append(spark, tables, 0)
    path = tables.archive("orders")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    DeltaTable.forPath(spark, path).delete("offset = 3")
    rows = read(spark, tables, {0: (0, 5)})
    assert [row.offset for row in rows] == [0, 1, 2, 4]
