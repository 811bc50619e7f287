"""Headers of the records of a log."""

from __future__ import annotations

from pyspark.sql import SparkSession

from recount.recompute.raw_log import COLUMNS, HEADERS, SCHEMA, RawLog, headers_never_null, null_headers


def test_headers_are_never_null_on_their_way_to_the_tasks_and_null_again_in_them(spark: SparkSession) -> None:
    """Nulls on that way cost time that grows with the square of a batch's rows."""
    some = [("trace", bytearray(b"1")), ("nothing", None)]
    records = [(0, offset, 0, None, b"{}", some if offset % 3 else None) for offset in range(10)]
    frame = spark.createDataFrame(records, SCHEMA + HEADERS)
    raw = RawLog(frame=frame.select(*COLUMNS, headers_never_null()), reading=null_headers)
    assert not raw.frame.schema["headers"].nullable
    read = raw.through(SCHEMA + HEADERS, lambda batches: batches).sort("offset").collect()
    assert read == frame.sort("offset").collect()
