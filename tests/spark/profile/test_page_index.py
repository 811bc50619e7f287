"""What a Parquet file says of its pages hides no row from a job, though it would hide it from Spark."""

from __future__ import annotations

import struct
from pathlib import Path

import polars as pl
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

THERE, SAID = 123_456_789, 987_654_321


def test_a_page_index_that_lies_hides_no_row(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pl.DataFrame({"batch": [THERE]}))
    [file] = tmp_path.glob("*.parquet")
    file.write_bytes(with_other_index(file.read_bytes()))

    careless = spark.newSession()
    careless.conf.set("spark.sql.parquet.filterPushdown", "true")
    assert (found(careless, tmp_path), found(spark, tmp_path)) == (0, 1)


def with_other_index(parquet: bytes) -> bytes:
    """The file with another value in its page indexes, which lie between the pages and the footer."""
    before, (length,) = parquet[:-8], struct.unpack("<i", parquet[-8:-4])
    start = before.index(struct.pack("<q", THERE)) + 8  # behind the one page
    rest, footer = before[start:-length], before[-length:]
    there, said = (struct.pack("<q", value) for value in (THERE, SAID))
    assert there in rest
    return parquet[:start] + rest.replace(there, said) + footer + parquet[-8:]


def found(session: SparkSession, table: Path) -> int:
    return session.read.format("delta").load(str(table)).where(F.col("batch") == THERE).count()
