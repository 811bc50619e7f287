"""The audit's tables go on, whichever library began them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession

from recount.audit.carry.store import PARTIALS, AuditStore
from recount.declare.columns import AUDIT
from recount.tables.places import Tables

ROWS = pl.DataFrame({"region": ["EU", None], "revenue": ["1.50", "2.00"], "orders": [1, 2]}).cast(
    {"revenue": pl.Decimal(38, 2)}
)


def test_a_table_that_an_earlier_release_wrote_with_spark_is_written_on_without(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = AuditStore(spark, Tables(str(tmp_path)), "revenue")
    store.put(PARTIALS, "old", spark.createDataFrame(ROWS.to_arrow()))
    store.put_rows(PARTIALS, "new", ROWS.head(1))
    store.put_rows(PARTIALS, "new", ROWS)
    store.put_rows(PARTIALS, "new", ROWS.tail(1), part=1)

    assert store.rows(PARTIALS, ["old"]).drop(AUDIT).collect().sort("orders").equals(ROWS)
    assert store.rows(PARTIALS, ["old", "new"]).collect().height == 5
    read_by_spark = store.read(PARTIALS, ["new"]).collect()
    assert sorted(row.orders for row in read_by_spark) == [1, 2, 2]
