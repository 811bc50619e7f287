"""The recompute joins records that are near in time, and compares no others, however many a key has."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import psutil
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.audit_session import FEW_OFFSETS, suit
from recount.declare.flow import stream
from recount.declare.operators.joins import StreamStreamJoin
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.recompute.decoding import IS_NULL
from recount.recompute.operators.carried import IS_NEW
from recount.recompute.operators.log_joins import paired
from recount.recompute.operators.log_rows import CARRIED, OFFSET, ORDER, PARTITION, SUPERSEDED, TIME, TOPIC, at_place

CLICKS = Topic(name="clicks", key="shop", value=RecordSchema.of(click=LONG))
SALES = Topic(name="sales", key="shop", value=RecordSchema.of(sale=LONG))
DAY_MS, KEYS = 86_400_000, 3
MOST_CPU_S = 60.0
"""Of the JVM, however busy the machine is."""


def joined(kind: str, before: str, after: str) -> StreamStreamJoin:
    sides = stream(CLICKS), stream(SALES)
    how = {"inner": sides[0].join, "left": sides[0].left_join, "outer": sides[0].outer_join}[kind]
    node = how(sides[1], before=before, after=after, grace="0 ms").node
    assert isinstance(node, StreamStreamJoin)
    return node


def cpu_s(spark: SparkSession) -> float:
    """What the JVM has cost so far."""
    times = psutil.Process(spark.sparkContext._gateway.proc.pid).cpu_times()
    found = float(times.user + times.system)
    assert found > 1, "it is another process"
    return found


def drawn(spark: SparkSession, topic: Topic, field: str, records: int) -> DataFrame:
    """``records`` at all times of a day, of three keys; a hash draws them."""
    hashed = F.xxhash64(F.lit(topic.name), "id")
    frame = spark.range(records).withColumns({"__key": F.pmod(hashed, F.lit(KEYS)).cast("string"), field: F.col("id")})
    return shaped_as_read(frame, topic, F.pmod(F.shiftrightunsigned(hashed, 8), F.lit(DAY_MS))).drop("id")


def shaped_as_read(frame: DataFrame, topic: Topic, time: Column) -> DataFrame:
    """``frame`` with the columns of records that lie in a log at the offsets ``id``."""
    columns: dict[str, Column] = {
        TOPIC: F.lit(topic.name),
        PARTITION: F.lit(0),
        OFFSET: F.col("id"),
        TIME: time,
        CARRIED: F.lit(None).cast("long"),
        IS_NULL: F.lit(False),
        SUPERSEDED: F.lit(False),
        IS_NEW: F.lit(True),
    }
    return frame.withColumns(columns).withColumn(ORDER, at_place())


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """The settings of a job of many records."""
    suit(spark, FEW_OFFSETS + 1)
    yield
    suit(spark, FEW_OFFSETS)


@pytest.mark.usefixtures("compiled")
def test_300_000_records_meet_30_000_of_three_keys_before_all_their_pairs_could_be_tried(spark: SparkSession) -> None:
    """There are 3 * 10^9 pairs of one key, and some 350,000 within five seconds of each other."""
    node = joined("outer", "5 s", "5 s")
    left, right = drawn(spark, CLICKS, "click", 300_000), drawn(spark, SALES, "sale", 30_000)
    rows = paired(node, left, right, alone_before_ms=DAY_MS, alone_since_ms=0).frame
    context = spark.sparkContext
    context.setJobGroup("pairs", "records near in time", interruptOnCancel=True)
    begun_s, over = cpu_s(spark), threading.Event()

    def cancel_in_time() -> None:
        while not over.wait(0.5):
            if cpu_s(spark) - begun_s > MOST_CPU_S:
                context.cancelJobGroup("pairs")

    limit = threading.Thread(target=cancel_in_time)
    limit.start()
    try:
        [met] = rows.agg(
            F.count_if(F.col("click").isNotNull() & F.col("sale").isNotNull()).alias("pairs"),
            F.count_distinct("click").alias("clicks"),
            F.count_distinct("sale").alias("sales"),
        ).collect()
    except PySparkException as error:
        raise AssertionError(f"not done after {MOST_CPU_S} CPU seconds") from error
    finally:
        over.set()
        limit.join()
        context.setLocalProperty("spark.jobGroup.id", None)
    print(f"{cpu_s(spark) - begun_s:.0f} CPU seconds")
    assert 300_000 < met["pairs"] < 400_000
    assert (met["clicks"], met["sales"]) == (300_000, 30_000), "without a partner they leave alone"


@pytest.mark.parametrize(
    ("kind", "before_ms", "after_ms"),
    [
        *(("outer", *interval) for interval in [(0, 0), (3, 0), (0, 2), (2, 5), (2**44, 2**45), (1, 864 * 10**12)]),
        ("inner", 2, 5),
        ("left", 5, 2),
    ],
)
def test_pairs_are_those_that_trying_all_finds_whatever_the_interval(
    spark: SparkSession, kind: str, before_ms: int, after_ms: int
) -> None:
    """Every time from 0 to 30, on the border of a stretch and beside it, under each of two keys and none."""
    node = joined(kind, f"{before_ms} ms", f"{after_ms} ms")
    clicks, sales = (
        [(key, at_ms) for at_ms in times for key in ("0", "1", None) if (key, at_ms) != ("1", 9)]
        for times in (range(31), range(0, 31, 3))
    )
    sides = at_times(spark, CLICKS, "click", clicks), at_times(spark, SALES, "sale", sales)
    rows = (
        paired(node, *sides, alone_before_ms=10**6, alone_since_ms=0)
        .frame.select("__key", "click", "sale", TIME)
        .collect()
    )
    expected = tried(clicks, sales, before_ms, after_ms)
    lone = {"inner": set(), "left": {"click"}, "outer": {"click", "sale"}}[kind]
    expected = [(c, s) for c, s in expected if (c and s) or (c and "click" in lone) or (s and "sale" in lone)]
    texts = [(c or s, c and c[1], s and s[1], max(one[1] for one in (c, s) if one)) for c, s in expected]
    assert Counter(map(tuple, rows)) == Counter(
        (one[0], click, sale, at_ms) for one, click, sale, at_ms in texts if one
    )


Record = tuple[str | None, int]


def tried(left: list[Record], right: list[Record], before_ms: int, after_ms: int) -> list[tuple[Record | None, ...]]:
    """All pairs whose times fit, and the records of both sides that are in none."""
    pairs = [
        (one, other)
        for one in left
        for other in right
        if one[0] is not None and one[0] == other[0] and one[1] - before_ms <= other[1] <= one[1] + after_ms
    ]
    met = [set(side) for side in zip(*pairs, strict=True)]
    return [
        *pairs,
        *((one, None) for one in left if one not in met[0]),
        *((None, one) for one in right if one not in met[1]),
    ]


def at_times(spark: SparkSession, topic: Topic, field: str, records: list[Record]) -> DataFrame:
    """One record for each key and time, whose field says its time."""
    rows = [(key, at_ms, offset) for offset, (key, at_ms) in enumerate(records)]
    frame = spark.createDataFrame(rows, "__key string, at long, id long")
    return shaped_as_read(frame.withColumn(field, F.col("at")), topic, F.col("at")).drop("at", "id")
