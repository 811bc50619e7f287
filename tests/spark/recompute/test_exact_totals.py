"""Item 1.6: the recompute's sums are exact, or an error; never null, and never another number."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.recompute.conftest import LogRecord, MemoryLog
from tests.user_names import USER_NAMES

from recount.core.aggregates import total
from recount.core.expressions import col
from recount.core.own_columns import IS_LATE
from recount.core.schema import LONG, LONG_MAX, LONG_MIN, FieldType, RecordSchema, decimal
from recount.core.topics import Topic
from recount.core.topology import Topology, stream
from recount.core.windows import tumbling
from recount.recompute.aggregating import declared, results
from recount.recompute.flow import Flow
from recount.recompute.recomputation import recompute
from recount.recompute.rules.exact_totals import as_long, exact_sum

NINES = "9" * 38


def rows(spark: SparkSession, kind: str, *values: object) -> DataFrame:
    return spark.createDataFrame([(str(value),) for value in values], "text string").select(
        F.col("text").cast(kind).alias("v")
    )


@pytest.mark.parametrize(
    "values",
    [
        (LONG_MAX,),
        (LONG_MIN,),
        (5 * 10**18, 5 * 10**18),
        (LONG_MIN, LONG_MIN, -1),
        (LONG_MAX, LONG_MAX, LONG_MIN),
        (-1,),
    ],
)
def test_a_sum_of_longs_is_exact(spark: SparkSession, values: tuple[int, ...]) -> None:
    found = rows(spark, "long", *values).select(exact_sum(F.col("v"), LONG).alias("sum"))
    assert found.collect()[0]["sum"] == sum(values)
    narrow = found.select(as_long(F.col("sum")).alias("sum"))
    if LONG_MIN <= sum(values) <= LONG_MAX:
        assert narrow.collect()[0]["sum"] == sum(values)
    else:
        with pytest.raises(PySparkException, match="more than 64 bits"):
            narrow.collect()


def test_a_sum_of_decimals_is_exact_or_an_error(spark: SparkSession) -> None:
    kind = FieldType(kind="decimal", precision=38, scale=0)

    def summed(*values: str) -> object:
        return (
            rows(spark, "decimal(38, 0)", *values).select(exact_sum(F.col("v"), kind).alias("sum")).collect()[0]["sum"]
        )

    assert summed(NINES) == Decimal(NINES) and summed("9" * 37 + "8", "1") == Decimal(NINES)
    with pytest.raises(PySparkException, match="more than 38 digits"):
        summed(NINES, "1")


def test_a_flow_adds_up_longs_beyond_64_bits_and_takes_any_names(spark: SparkSession) -> None:
    value = RecordSchema(fields={**dict.fromkeys(USER_NAMES, LONG), "amount": decimal(38, 0)})
    orders = Topic(name="orders", key="id", value=value)
    windows = stream(orders).select_key(origin=col("origin")).windowed_by(tumbling("10 s", grace="3 s"))
    sums = {name: total(name) for name in [*USER_NAMES, "amount"] if name != "origin"}
    topology = Topology(
        name="named", sinks=[windows.aggregate(**sums).emit_final().to(Topic(name="out", key="origin"))]
    )
    members = [*(f'"{name}":{5 * 10**18}' for name in USER_NAMES if name != "origin"), f'"amount":"{"4" * 38}"']
    text = "{" + ",".join(['"origin":7', *members]) + "}"
    log = MemoryLog([LogRecord(partition=0, timestamp_ms=at, value=text.encode()) for at in (1, 2)])
    done = recompute(spark, Flow.of(topology), log, log.ranges)
    found = results(done.partials.where(~F.col(IS_LATE)), done.flow)
    [row] = found.collect()
    assert row["origin"] == 7 and row["amount"] == Decimal("8" * 38)
    assert {row[name] for name in sums if name != "amount"} == {Decimal(10**19)}
    with pytest.raises(PySparkException, match="more than 64 bits"):
        declared(found, done.flow).collect()
    done.release()
