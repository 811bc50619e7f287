"""Keys and headers of records that anybody may have written, as Spark reads them back."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from recount.audit.compare.committed import as_text, header


def test_bytes_that_are_no_text_are_null(spark: SparkSession) -> None:
    """Spark takes them for text; in a file they are no Parquet that Polars reads, and every later audit ended there."""
    records = [(b"a\xff", [("name", b"\xff")]), (b"a", [("name", b"\xff"), ("name", b"one")]), (None, []), (b"", None)]
    frame = spark.createDataFrame(records, "key binary, headers array<struct<key: string, value: binary>>")
    found = [tuple(row) for row in frame.select(as_text(F.col("key")), header("name")).collect()]
    assert found == [(None, None), ("a", "one"), (None, None), ("", None)]
