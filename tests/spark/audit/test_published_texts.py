"""A plain value in a sink's topic is read back as what the stream wrote, and any other text as none."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from recount.audit.compare.claims import published
from recount.declare.output import encode_plain
from recount.declare.plain_values import PlainValue
from recount.declare.schema import BOOLEAN, DOUBLE, LONG, LONG_MAX, LONG_MIN, STRING, FieldType, decimal

MONEY, WHOLE = decimal(15, 2), decimal(38, 0)


def read(spark: SparkSession, kind: FieldType, values: list[bytes | None]) -> list[Any]:
    rows = spark.createDataFrame([(number, value) for number, value in enumerate(values)], "n int, value binary")
    told = rows.select("n", published(F.col("value"), PlainValue(name="v", kind=kind)).alias("v"))
    return [row["v"] for row in sorted(told.collect())]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (STRING, ["", " a ", '"', "größer\n", "\x00", "null"]),
        (LONG, [0, -5, LONG_MIN, LONG_MAX]),
        (DOUBLE, [0.0, -2.5, 1e16, 5e-324, 1.7976931348623157e308]),
        (BOOLEAN, [True, False]),
        (MONEY, [Decimal("0.00"), Decimal("-9999999999999.99"), Decimal("10.50")]),
        (WHOLE, [Decimal("9" * 38), Decimal(0)]),
    ],
)
def test_what_the_stream_writes_is_read_back(spark: SparkSession, kind: FieldType, values: list[Any]) -> None:
    assert read(spark, kind, [encode_plain(value) for value in values]) == values


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (STRING, [b"\xff", b"a\xc3"]),
        (LONG, [b"", b" 1", b"1\n", b"+1", b"01", b"1.0", b"1e2", b"%d" % (LONG_MAX + 1), b"\xff", b"one"]),
        (DOUBLE, [b"", b"Infinity", b"NaN", b"1.", b".5", b"1d", b"1 "]),
        (BOOLEAN, [b"", b"True", b"1", b"t", b"true "]),
        (MONEY, [b"10.5", b"10.505", b"10", b"1e1", b"10000000000000.00", b"10.50\n"]),
        (WHOLE, [b"1.0", b"1" + b"0" * 38]),
    ],
)
def test_any_other_text_is_none(spark: SparkSession, kind: FieldType, values: list[bytes]) -> None:
    assert read(spark, kind, [*values, None]) == [None] * (len(values) + 1)
