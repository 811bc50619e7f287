"""What an audit hands to the next comes back as it was: any columns, no rows, only that of its own audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from recount.audit.audit_session import FEW_OFFSETS
from recount.audit.carry.snapshots import Frames, Snapshots
from recount.tables.places import Tables

_SCHEMA = "key string, `weight.kg` double, amount decimal(15, 2), steps array<struct<topic: string, offset: long>>"
Put = Callable[[str, Mapping[str, Frames]], None]
_ROWS = [("a", 1.5, Decimal("10.50"), [("orders", 7)]), ("b", None, None, [])]


@pytest.fixture
def snapshots(spark: SparkSession, tmp_path: Path) -> Snapshots:
    return Snapshots(session=spark, tables=Tables(str(tmp_path)), stream="carts")


@pytest.fixture(params=[FEW_OFFSETS, FEW_OFFSETS + 1], ids=["through the driver", "by Spark"])
def put(snapshots: Snapshots, request: pytest.FixtureRequest) -> Put:
    return partial(snapshots.put, offsets=request.param)


def frame(spark: SparkSession, rows: list[object]) -> DataFrame:
    return spark.createDataFrame(rows, _SCHEMA)


def test_frames_come_back_as_they_were(spark: SparkSession, snapshots: Snapshots, put: Put) -> None:
    put("1", {"truth": {"window": frame(spark, _ROWS), "empty": frame(spark, [])}, "claims": {}})
    put("2", {"truth": {"window": frame(spark, _ROWS[:1])}})
    found = snapshots.of("1").part("truth")
    assert found.keys() == {"window", "empty"}
    assert found["window"].schema == frame(spark, []).schema
    assert sorted(found["window"].collect()) == sorted(frame(spark, _ROWS).collect())
    assert found["empty"].collect() == []
    assert snapshots.of("1").part("claims") == {}


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
