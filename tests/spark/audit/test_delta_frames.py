"""Frames that audits read and keep: of Delta tables, of snapshots, of the tables of side ledgers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as T

from recount.audit.audit_session import FEW_OFFSETS
from recount.audit.carry import delta_frames
from recount.audit.carry.delta_frames import delta_frame, local_frame
from recount.audit.carry.snapshots import Frames, Snapshots
from recount.audit.carry.store import VERDICTS, AuditStore
from recount.declare.columns import AUDIT
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import frame_of
from recount.tables.places import Tables

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


_KEPT = "key string, `weight.kg` double, amount decimal(15, 2), steps array<struct<topic: string, offset: long>>"
Put = Callable[[str, Mapping[str, Frames]], None]
_ROWS = [("a", 1.5, Decimal("10.50"), [("orders", 7)]), ("b", None, None, [])]


@pytest.fixture
def snapshots(spark: SparkSession, tmp_path: Path) -> Snapshots:
    return Snapshots(session=spark, tables=Tables(str(tmp_path)), stream="carts")


@pytest.fixture(params=[FEW_OFFSETS, FEW_OFFSETS + 1], ids=["through the driver", "by Spark"])
def put(snapshots: Snapshots, request: pytest.FixtureRequest) -> Put:
    return partial(snapshots.put, offsets=request.param)


def frame(spark: SparkSession, rows: list[object]) -> DataFrame:
    return spark.createDataFrame(rows, _KEPT)


def test_frames_come_back_as_they_were(spark: SparkSession, snapshots: Snapshots, put: Put) -> None:
    put("1", {"truth": {"window": frame(spark, _ROWS), "empty": frame(spark, [])}, "claims": {}})
    put("2", {"truth": {"window": frame(spark, _ROWS[:1])}})
    found = snapshots.of("1").part("truth")
    assert found.keys() == {"window", "empty"}
    assert found["window"].schema == frame(spark, []).schema
    assert sorted(found["window"].collect()) == sorted(frame(spark, _ROWS).collect())
    assert found["empty"].collect() == []
    assert snapshots.of("1").part("claims") == {}


def test_frames_of_the_recompute_come_back_beside_those_of_spark(
    spark: SparkSession, snapshots: Snapshots, put: Put
) -> None:
    database = Database()
    schema = pa.schema([("key", pa.string()), ("weight.kg", pa.float64())])
    ours = frame_of(database, [pa.table({"key": ["a", None], "weight.kg": [1.5, None]}, schema)], schema)
    for _ in range(2):
        put(
            "1", {"truth": {"ours": ours, "empty": ours.where(F.lit(False))}, "claims": {"window": frame(spark, _ROWS)}}
        )
    found = snapshots.of("1")
    assert sorted(map(str, found.part("truth")["ours"].collect())) == sorted(
        map(str, [Row(**{"key": "a", "weight.kg": 1.5}), Row(**{"key": None, "weight.kg": None})])
    )
    assert (found.part("truth")["empty"].columns, found.part("truth")["empty"].count()) == (schema.names, 0)
    assert found.part("claims")["window"].count() == 2
    database.close()


def test_a_second_try_replaces_what_the_first_one_left(spark: SparkSession, snapshots: Snapshots, put: Put) -> None:
    put("1", {"truth": {"window": frame(spark, _ROWS)}})
    put("1", {"truth": {"window": frame(spark, _ROWS[:1])}})
    assert [row.key for row in snapshots.of("1").part("truth")["window"].collect()] == ["a"]


def test_only_the_newest_are_kept(spark: SparkSession, snapshots: Snapshots, put: Put) -> None:
    for audit in ("1", "2", "3"):
        put(audit, {"truth": {"window": frame(spark, _ROWS)}})
    snapshots.keep_newest("3", 2)
    assert [snapshots.has(audit) for audit in ("1", "2", "3")] == [False, True, True]


def test_the_hash_tells_a_snapshot_from_any_other(spark: SparkSession, snapshots: Snapshots, put: Put) -> None:
    put("1", {"truth": {"window": frame(spark, _ROWS[:1])}})
    before = snapshots.sha256("1")
    put("2", {"truth": {"window": frame(spark, _ROWS[:1])}})
    assert snapshots.sha256("2") == before
    put("1", {"truth": {"window": frame(spark, [("a", 1.5, Decimal("10.51"), [("orders", 7)])])}})
    assert snapshots.sha256("1") != before


ROWS = pl.DataFrame({"region": ["EU", None], "revenue": ["1.50", "2.00"], "orders": [1, 2]}).cast(
    {"revenue": pl.Decimal(38, 2)}
)


def test_a_table_that_an_earlier_release_wrote_with_spark_is_written_on_without(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = AuditStore(spark, Tables(str(tmp_path)), "revenue")
    store.put(VERDICTS, "old", spark.createDataFrame(ROWS.to_arrow()))
    store.put_rows(VERDICTS, "new", ROWS.head(1))
    store.put_rows(VERDICTS, "new", ROWS)
    store.put_rows(VERDICTS, "new", ROWS.tail(1), part=1)

    assert store.rows(VERDICTS, ["old"]).drop(AUDIT).collect().sort("orders").equals(ROWS)
    assert store.rows(VERDICTS, ["old", "new"]).collect().height == 5
    read_by_spark = store.read(VERDICTS, ["new"]).collect()
    assert sorted(row.orders for row in read_by_spark) == [1, 2, 2]
