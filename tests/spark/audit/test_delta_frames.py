"""Frames that audits read and keep: of Delta tables, of snapshots, of the tables of side ledgers."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from recount.audit.carry.snapshots import Snapshots
from recount.audit.carry.store import VERDICTS, AuditStore
from recount.audit.expectations import audited_frames
from recount.audit.expectations.audited_frames import delta_frame
from recount.declare.columns import AUDIT
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_database import Database
from recount.recompute.frames.duck_frames import Frame, frame_of
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


def test_a_table_that_has_lost_all_its_rows_keeps_its_columns(spark: SparkSession, path: str) -> None:
    DeltaTable(path).delete()
    found = delta_frame(spark, path)
    assert found.collect() == []
    assert found.schema == spark.read.format("delta").load(path).schema


def test_a_table_that_is_not_small_is_read_by_spark(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audited_frames, "SMALL_BYTES", 1)
    found = delta_frame(spark, path)
    assert len(found.inputFiles()) == 2
    assert found.count() == 2


_KEPT = pa.schema(
    [
        ("key", pa.string()),
        ("weight.kg", pa.float64()),
        ("amount", pa.decimal128(15, 2)),
        ("steps", pa.list_(pa.field("element", pa.struct([("topic", pa.string()), ("offset", pa.int64())])))),
    ]
)
_ROWS: list[Mapping[str, Any]] = [
    {"key": "a", "weight.kg": 1.5, "amount": Decimal("10.50"), "steps": [{"topic": "orders", "offset": 7}]},
    {"key": "b", "weight.kg": None, "amount": None, "steps": []},
]


@pytest.fixture
def database() -> Iterator[Database]:
    found = Database()
    yield found
    found.close()


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tables=Tables(str(tmp_path)), stream="carts")


def frame(database: Database, rows: Sequence[Mapping[str, Any]]) -> Frame:
    return frame_of(database, [pa.Table.from_pylist([one], _KEPT) for one in rows], _KEPT)


def test_frames_come_back_as_they_were(database: Database, snapshots: Snapshots) -> None:
    made = frame(database, _ROWS)
    snapshots.put("1", {"truth": {"window": made, "empty": made.where(F.lit(False))}, "claims": {}})
    snapshots.put("2", {"truth": {"window": frame(database, _ROWS[:1])}})
    found = snapshots.of("1").part("truth", database)
    assert found.keys() == {"window", "empty"}
    assert found["window"].schema == made.schema
    assert found["window"].sorted_by("key").rows() == _ROWS
    assert (found["empty"].rows(), found["empty"].columns) == ([], _KEPT.names)
    assert snapshots.of("1").part("claims", database) == {}


def test_a_second_try_replaces_what_the_first_one_left(database: Database, snapshots: Snapshots) -> None:
    snapshots.put("1", {"truth": {"window": frame(database, _ROWS)}})
    snapshots.put("1", {"truth": {"window": frame(database, _ROWS[:1])}})
    assert [row["key"] for row in snapshots.of("1").part("truth", database)["window"].rows()] == ["a"]


def test_the_hash_tells_a_snapshot_from_any_other(database: Database, snapshots: Snapshots) -> None:
    snapshots.put("1", {"truth": {"window": frame(database, _ROWS[:1])}})
    before = snapshots.sha256("1")
    snapshots.put("2", {"truth": {"window": frame(database, _ROWS[:1])}})
    assert snapshots.sha256("2") == before
    snapshots.put("1", {"truth": {"window": frame(database, [{**_ROWS[0], "amount": Decimal("10.51")}])}})
    assert snapshots.sha256("1") != before


ROWS = pl.DataFrame({"region": ["EU", None], "revenue": ["1.50", "2.00"], "orders": [1, 2]}).cast(
    {"revenue": pl.Decimal(38, 2)}
)


def test_a_table_that_an_earlier_release_wrote_with_spark_is_written_on_without(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = AuditStore(Tables(str(tmp_path)), "revenue")
    path = Tables(str(tmp_path)).audit("revenue", VERDICTS)
    old = spark.createDataFrame(ROWS.with_columns(pl.lit("old").alias(AUDIT)).to_arrow())
    old.write.format("delta").partitionBy(AUDIT).save(path)
    store.put_rows(VERDICTS, "new", ROWS.head(1))
    store.put_rows(VERDICTS, "new", ROWS)

    assert store.rows(VERDICTS, ["old"]).drop(AUDIT).collect().sort("orders").equals(ROWS)
    assert store.rows(VERDICTS, ["old", "new"]).collect().height == 4
    read_by_spark = spark.read.format("delta").load(path).where(f"{AUDIT} = 'new'").collect()
    assert sorted(row.orders for row in read_by_spark) == [1, 2]
