"""What the stream writes without Spark, Spark reads: rows, types, the ledger, and who has written what."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from recount.engine.commit.delta_table import AppendOnlyTable

ROWS = pl.DataFrame(
    {"key": ["a", None], "n": [1, 2], "amount": [Decimal("1.20"), None], "share": [0.5, None], "names": [["x"], []]},
    schema={
        "key": pl.String(),
        "n": pl.Int64(),
        "amount": pl.Decimal(38, 2),
        "share": pl.Float64(),
        "names": pl.List(pl.String()),
    },
)


def test_spark_reads_what_the_stream_appended(spark: SparkSession, tmp_path: Path) -> None:
    table = AppendOnlyTable(path=str(tmp_path / "table"), schema=dict(ROWS.schema))
    table.create()
    table.append(ROWS, writer="stream", version=0, metadata="the proof")
    table.append(ROWS, writer="stream", version=0, metadata="a replay")

    seen = spark.read.format("delta").load(table.path)
    assert [tuple(row) for row in seen.orderBy("n").collect()] == ROWS.rows()
    assert seen.schema["amount"].dataType.simpleString() == "decimal(38,2)"
    commits = DeltaTable.forPath(spark, table.path).history().select("userMetadata").collect()
    assert [commit.userMetadata for commit in commits] == ["the proof", None]
    assert last_version(spark, table.path, "stream") == 0


def test_spark_reads_a_table_whose_old_commits_were_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    table = AppendOnlyTable(path=str(tmp_path / "table"), schema=dict(ROWS.schema), log_kept_ms=0)
    table.create()
    for version in range(25):
        table.append(ROWS, writer="stream", version=version)
    table.forget_commits()
    assert not (tmp_path / "table" / "_delta_log" / f"{0:020}.json").exists()
    assert spark.read.format("delta").load(table.path).count() == 25 * ROWS.height
    assert last_version(spark, table.path, "stream") == 24


def test_spark_takes_the_properties_that_the_stream_gave_the_table(spark: SparkSession, tmp_path: Path) -> None:
    table = AppendOnlyTable(path=str(tmp_path / "table"), schema=dict(ROWS.schema), carries_proofs=True)
    table.create()
    given = DeltaTable.forPath(spark, table.path).detail().select("properties").first()
    assert given is not None
    said = ", ".join(f"'{name}' = '{value}'" for name, value in given.properties.items())
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ({said})")  # refuses what it cannot read


def last_version(spark: SparkSession, path: str, writer: str) -> int:
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    nothing = jvm.scala.Option.empty()
    return int(log.update(False, nothing, nothing).transactions().get(writer).get())
