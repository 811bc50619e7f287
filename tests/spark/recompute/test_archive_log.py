"""A log on its way to the recompute's rows: read from the archive, with its headers, in groups and columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema
from tests.spark.recompute.conftest import framed
from tests.unit.engine.stage.test_polars_expressions import FIELDS, OUT_OF_RANGE, ROW, evaluated, rows, trees

from recount.declare.expressions import Expression, coalesce, col, lit
from recount.recompute.archived_log import ArchiveLog
from recount.recompute.frames import duck_functions as duck
from recount.recompute.frames.duck_database import Database
from recount.recompute.operators.log_rows import in_groups
from recount.recompute.raw_log import COLUMNS, HEADERS, SCHEMA, Ranges, RawLog, headers_never_null, null_headers
from recount.recompute.rules.expression_rules import column
from recount.recompute.rules.range_rules import kind_beyond
from recount.recompute.spark_columns import spark_type
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


def test_headers_are_never_null_on_their_way_to_the_tasks_and_null_again_in_them(spark: SparkSession) -> None:
    """Nulls on that way cost time that grows with the square of a batch's rows."""
    some = [("trace", bytearray(b"1")), ("nothing", None)]
    records = [(0, offset, 0, None, b"{}", some if offset % 3 else None) for offset in range(10)]
    frame = spark.createDataFrame(records, SCHEMA + HEADERS)
    raw = RawLog(frame=frame.select(*COLUMNS, headers_never_null()), reading=null_headers)
    assert not raw.frame.schema["headers"].nullable
    read = raw.through(SCHEMA + HEADERS, lambda batches: batches).sort("offset").collect()
    assert read == frame.sort("offset").collect()


ROWS_OF_A_BATCH = 2_048
"""As DuckDB has them."""
GROUPED = pa.schema([("a.key", pa.float64()), ("other", pa.int32())])


def _together(rows: pa.Table) -> pa.Table:
    """One row for the group: its first key, and how many rows it has."""
    return pa.table({"rows": [rows.num_rows], "a.key": rows.column("a.key").slice(0, 1)})


def _counted(database: Database, keys: list[float | None]) -> list[tuple[float | None, int]]:
    frame = framed(database, GROUPED, [(key, 0) for key in keys])
    schema = T.StructType([T.StructField("a.key", T.DoubleType()), T.StructField("rows", T.LongType())])
    return [(row["a.key"], row["rows"]) for row in in_groups(frame, ["a.key"], _together, schema).rows()]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recount.recompute.frames.duck_database.ROWS_AT_ONCE", ROWS_OF_A_BATCH)


@pytest.mark.parametrize("larger", [1, 2, *range(ROWS_OF_A_BATCH - 3, ROWS_OF_A_BATCH + 2), 5 * ROWS_OF_A_BATCH])
def test_groups_that_end_within_at_the_end_of_and_behind_a_batch_are_whole(database: Database, larger: int) -> None:
    keys = [1.0, *[2.0] * larger, 3.0, 3.0, *[4.0] * larger]
    assert sorted(_counted(database, keys)) == sorted(Counter(keys).items())


def test_keys_are_the_same_where_the_database_groups_them_so(database: Database) -> None:
    found = _counted(database, [None, math.nan, 0.0, None, -0.0, math.nan, 1.0])
    # 0.0 + -0.0 is 0.0
    told = [(None if key is None else key + 0.0, rows) for key, rows in found]
    assert sorted((str(key), rows) for key, rows in told) == [("0.0", 2), ("1.0", 1), ("None", 2), ("nan", 2)]


def test_without_rows_there_is_no_group(database: Database) -> None:
    assert _counted(database, []) == []


PLACE = "__place"
COLUMN_TYPES = T.StructType([T.StructField(name, spark_type(kind)) for name, kind in FIELDS.items()])


def computed(database: Database, given_trees: Sequence[Expression], given_rows: Sequence[dict[str, Any]]) -> list[Any]:
    rows = [[*(row[name] for name in FIELDS), place] for place, row in enumerate(given_rows)]
    frame = framed(database, to_arrow_schema(COLUMN_TYPES).append(pa.field(PLACE, pa.int64())), rows)
    kinds = [kind_beyond(tree, FIELDS) for tree in given_trees]
    reasons = [duck.lit(None).cast("string") if kind is None else kind for kind in kinds]
    made = [*(column(tree, FIELDS) for tree in given_trees), *reasons]
    found = frame.select(PLACE, *(one.alias(f"c{at}") for at, one in enumerate(made))).sorted_by(PLACE).rows()
    many = len(given_trees)
    return [
        tuple(
            row[f"c{at}"] if row[f"c{at + many}"] is None else f"{OUT_OF_RANGE}: {row[f'c{at + many}']}"
            for at in range(many)
        )
        for row in found
    ]


def expected_of(given_trees: Sequence[Expression], given_rows: Sequence[dict[str, Any]]) -> list[Any]:
    return [tuple(evaluated(tree, row) for tree in given_trees) for row in given_rows]


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.lists(trees, min_size=1, max_size=15), rows.filter(bool))
def test_duckdb_computes_what_the_reference_evaluates(
    database: Database, given_trees: list[Expression], given_rows: list[dict[str, Any]]
) -> None:
    found = computed(database, given_trees, given_rows)
    assert found == expected_of(given_trees, given_rows), list(map(str, given_trees))


def test_null_division_and_exact_decimals_are_as_the_reference_has_them(database: Database) -> None:
    given_trees = [
        col("amount") * col("fee"),
        col("amount") / 0,
        col("amount") / 4,
        col("vip") & lit(None),
        col("vip") | True,
        col("count") == coalesce(lit(None)),
        col("name").is_null(),
    ]
    expected = (Decimal("3.375"), None, 0.5625, None, True, None, True)
    assert computed(database, given_trees, [ROW]) == [expected] == expected_of(given_trees, [ROW])
