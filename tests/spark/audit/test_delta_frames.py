"""A small Delta table that comes through this process is what Spark's reader makes of it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from recount.audit.carry import delta_frames
from recount.audit.carry.delta_frames import delta_frame, local_frame

_SCHEMA = """key string, `weight.kg` double, share float, n int, at_ms long, small short, tiny byte, ok boolean,
amount decimal(38, 9), raw binary, day date, moment timestamp, steps array<struct<topic: string, offset: long>>,
named map<string, decimal(5, 2)>, inner struct<a: int, b: struct<c: string>>, recount_batch long"""
_ROW = (
    *("a", 1.5, 0.25, 7, 2**60, 3, 1, True, Decimal("-12345678901234567890123456789.123456789"), b"\x00\xff"),
    *(date(1969, 12, 31), datetime(2026, 1, 1, tzinfo=UTC), [("orders", 7), None], {"k": Decimal("1.50"), "l": None}),
    *((1, ("c",)), 4),
)
_NULLS = (None,) * 15 + (5,)


@pytest.fixture
def path(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    for row in (_ROW, _NULLS):
        frame = spark.createDataFrame([row], _SCHEMA)
        frame.write.format("delta").mode("append").partitionBy("recount_batch").save(path)
    return path


def test_a_small_table_has_the_rows_and_columns_that_spark_reads(spark: SparkSession, path: str) -> None:
    by_spark = spark.read.format("delta").load(path)
    found = delta_frame(spark, path)
    assert found.schema == by_spark.schema
    assert found.orderBy("recount_batch").collect() == by_spark.orderBy("recount_batch").collect()


def test_no_row_is_lost_behind_a_batch_without_rows(spark: SparkSession) -> None:
    """A file of a table can have none: Spark writes such, and whoever may write to the table can add one."""
    some = pa.table({"n": [1, 2]})
    found = local_frame(spark, pa.concat_tables([some, some.slice(2), some]), T.StructType().add("n", "long"))
    assert [row.n for row in found.collect()] == [1, 2, 1, 2]


def test_a_table_that_has_lost_all_its_rows_keeps_its_columns(spark: SparkSession, path: str) -> None:
    DeltaTable(path).delete()
    found = delta_frame(spark, path)
    assert found.collect() == []
    assert found.schema == spark.read.format("delta").load(path).schema


def test_a_table_that_is_not_small_is_read_by_spark(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_frames, "SMALL_BYTES", 1)
    found = delta_frame(spark, path)
    assert len(found.inputFiles()) == 2
    assert found.count() == 2
