"""Frames of DuckDB: kept once, within their memory, and the same rows on their way from Spark and back."""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from tests.spark.recompute.conftest import framed

from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import ROWS_BEFORE, Window
from recount.recompute.frames.duck_database import Database, NotComputable
from recount.recompute.frames.duck_frames import once, union_of
from recount.recompute.frames.duck_handover import Handover
from recount.recompute.raw_log import RawLog
from recount.runtime.errors import Terminal

STEP = pa.struct([("topic", pa.string()), ("offset", pa.int64())])
SCHEMA = pa.schema(
    [("a.key", pa.string()), ("n", pa.int64()), ("amount", pa.decimal128(38, 2)), ("steps", pa.list_(STEP))]
)
ROWS = [
    ("x", 1, Decimal("1.50"), [{"topic": "orders", "offset": 7}]),
    ("x", 2, None, []),
    (None, None, Decimal("-0.01"), None),
]


def test_null_is_the_least_and_the_window_before_a_row_has_the_rows_before_it(database: Database) -> None:
    frame = framed(database, SCHEMA, ROWS)
    so_far = Window.of().sorted("n").ending(ROWS_BEFORE)
    found = frame.select("n", F.count_of().over(so_far).alias("before")).sorted_by("before").rows()
    assert [tuple(row.values()) for row in found] == [(None, 0), (1, 1), (2, 2)]


def test_a_column_that_one_frame_lacks_is_null_and_many_frames_are_taken_together(database: Database) -> None:
    frame = framed(database, SCHEMA, ROWS)
    assert frame.union(frame.select("n").with_column("more", True)).number() == 6
    many = union_of([frame.select(F.lit(number).alias("number")) for number in range(700)])
    assert many.number() == 2_100 and many.distinct().number() == 700


def test_what_is_kept_is_computed_once_and_gone_with_its_last_reader(database: Database) -> None:
    calls: list[int | None] = []

    def noted(number: int | None) -> int:
        calls.append(number)
        return len(calls)

    kept = once(framed(database, SCHEMA, ROWS).select(F.by_python(noted, T.LongType())("n").alias("call")))
    assert calls == []
    assert (kept.number(), kept.rows(), len(calls)) == (3, kept.rows(), 3)
    tables = "SELECT count(*) AS n FROM duckdb_tables()"
    before = database.arrow(tables).to_pylist()[0]["n"]
    del kept
    assert database.arrow(tables).to_pylist()[0]["n"] < before


def test_an_error_of_a_function_is_raised_as_it_is_and_one_of_a_query_says_what_to_do(database: Database) -> None:
    def raising(_: object) -> int:
        raise KeyError("no such thing")

    frame = framed(database, SCHEMA, ROWS)
    with pytest.raises(KeyError, match="no such thing"):
        frame.select(F.by_python(raising, T.LongType())("n").alias("n")).rows()
    with pytest.raises(NotComputable, match="a sum is too large"):
        frame.select(F.error(F.lit("a sum is too large")).alias("n")).rows()


def test_a_database_spills_and_where_even_that_is_not_enough_says_what_to_set() -> None:
    database = Database("60MB")
    try:
        numbers = framed(database, pa.schema([("n", pa.int64())]), [(number,) for number in range(1_000)])
        crossed = numbers.join(numbers.renamed({"n": "m"}), F.lit(True))
        million = crossed.select((F.col("n") * 1_000 + F.col("m")).alias("n"))
        wide = million.with_column("text", F.concat("a text that takes some room ", F.col("n")))
        ranked = wide.with_column("rank", F.row_number().over(Window.of().sorted(F.col("n").descending())))
        assert once(ranked).where(F.col("rank") == 1).select("n").rows() == [{"n": 999_999}]
        with pytest.raises(Terminal, match="RECOUNT_AUDIT_MEMORY"):
            wide.agg(F.all_values(F.col("text")).alias("all")).rows()
    finally:
        database.close()


def test_many_rows_that_are_kept_are_compressed_and_their_memory_comes_back(database: Database) -> None:
    numbers = framed(database, pa.schema([("n", pa.int64())]), [(number,) for number in range(600)])
    crossed = numbers.join(numbers.renamed({"n": "m"}), F.lit(True))
    kept = once(crossed.with_column("text", F.concat("a text that takes some room ", F.col("n"))))
    assert kept.agg(F.total(F.col("n")).alias("n")).rows() == [{"n": 600 * sum(range(600))}]
    [used] = database.arrow("SELECT sum(memory_usage_bytes) AS n FROM duckdb_memory()").to_pylist()
    assert used["n"] < kept.number() * 8


@pytest.fixture
def handovers(spark: SparkSession, tmp_path: Path) -> Iterator[list[Handover]]:
    """Through this process, and by files."""
    found = [Handover.of(spark), Handover.of(spark, folder=str(tmp_path / "passing"))]
    yield found
    for one in found:
        one.close()
        one.database.close()
    assert list((tmp_path / "passing").iterdir()) == []


def test_what_tasks_make_of_a_log_is_a_frame_whichever_way_it_came(
    spark: SparkSession, handovers: list[Handover]
) -> None:
    """Two tasks, one of which has nothing to write."""
    columns = "name string, n long, amount decimal(38, 2), steps array<struct<topic: string, offset: long>>"
    rows = [(key, n, d, s and [tuple(one.values()) for one in s]) for key, n, d, s in ROWS]
    given = spark.createDataFrame(rows, columns).coalesce(1)
    log = RawLog(frame=given.union(spark.createDataFrame([], columns)))
    for one in handovers:
        found = one.passed(log, given.schema, lambda batches: batches, iter)
        assert found.schema == given.schema
        assert Counter(str(tuple(row.values())) for row in found.rows()) == Counter(map(str, ROWS))
        assert found.where(F.col("n") > 1).select("n").rows() == [{"n": 2}]
        nothing = RawLog(frame=given.limit(0))
        assert one.passed(nothing, given.schema).is_empty()
