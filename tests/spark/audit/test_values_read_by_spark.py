"""Which published values are a stream's: what Spark says of each is what its encoding says."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.audit.topologies.published_json import is_encoded, is_written_so
from recount.core.nodes import KEY
from recount.core.output import encode_value
from recount.core.schema import BOOLEAN, DOUBLE, LONG, STRING, FieldType, decimal, list_of
from recount.recompute.columns import spark_type

pytestmark = pytest.mark.usefixtures("tiny")

PLAIN = {"name": STRING, "n": LONG, "ok": BOOLEAN, "amount": decimal(15, 2), "whole": decimal(38, 0)}
SETS: dict[str, dict[str, FieldType]] = {
    "as Spark writes them": PLAIN,
    "with doubles": {**PLAIN, "x": DOUBLE},
    "with lists": {**PLAIN, "tags": list_of(STRING)},
    "with many places": {**PLAIN, "tiny": decimal(20, 10)},
    "with the key of the record": {KEY: STRING, **PLAIN},
    "with nothing else": {KEY: STRING},
    "with a name to be escaped": {**PLAIN, "größe": LONG},
}
ROWS = [
    {
        "name": name,
        "n": n,
        "ok": ok,
        "amount": amount,
        "whole": whole,
        "x": 1e-5,
        "tags": ["a"],
        "tiny": Decimal("0E-10"),
        "größe": 1,
    }
    for name, n, ok, amount, whole in [
        ("a", 1, True, Decimal("10.50"), Decimal(10**37)),
        ("", -(2**63), False, Decimal("-0.01"), Decimal(0)),
        (None, None, None, None, None),
        ('say "hi" \\ \n \x1f \x7f / é \u2028 😀', 0, True, Decimal("0.00"), Decimal(-1)),
    ]
]
FORGED = [
    b'{"name":"a","n":1,"ok":true,"amount":10.504,"whole":1}',
    b'{"name":"a","n":1,"ok":true,"amount":10.5,"whole":1}',
    b'{"name":"a","n":1,"ok":true,"amount":"10.50","whole":1}',
    b'{"name":"a","n":1,"ok":true,"amount":-0.00,"whole":1}',
    b'{"name":"a","n":1,"ok":true,"amount":1.050e1,"whole":1}',
    b'{"name":"a","n":1,"ok":true,"amount":10.50,"whole":1} and more',
    b'{"name":"b","name":"a","n":1,"ok":true,"amount":10.50,"whole":1}',
    b'{"n":1,"name":"a","ok":true,"amount":10.50,"whole":1}',
    b'{ "name":"a","n":1,"ok":true,"amount":10.50,"whole":1}',
    b'{"name":"\\u001F","n":1,"ok":true,"amount":10.50,"whole":1}',
    b'{"name":"\\/","n":1,"ok":true,"amount":10.50,"whole":1}',
    b'{"name":"\xff","n":1,"ok":true,"amount":10.50,"whole":1}',
    b'{"name":1,"n":1,"ok":true,"amount":10.50,"whole":1}',
    b'{"name":"a","n":"1","ok":true,"amount":10.50,"whole":1}',
    b'{"name":"a","n":1.0,"ok":true,"amount":10.50,"whole":1}',
    b'{"name":"a","n":9223372036854775808,"ok":true,"amount":10.50,"whole":1}',
    b'{"name":"a"}',
    b"{}",
    b"null",
    b"",
    b"{",
]


@pytest.mark.parametrize("fields", SETS.values(), ids=SETS)
def test_spark_takes_what_the_encoding_takes(spark: SparkSession, fields: dict[str, FieldType]) -> None:
    written = [encode_value({name: row[name] for name in fields if name != KEY}) for row in ROWS]
    values = [*written, *FORGED]
    schema = T.StructType([T.StructField(name, spark_type(kind)) for name, kind in fields.items()])
    frame = spark.createDataFrame(
        [(number, value) for number, value in enumerate([*values, None])], "n int, value binary"
    )
    read = F.from_json(F.col("value").cast("string"), schema, {"prefersDecimal": "true"})
    told = frame.select("n", is_written_so(F.col("value"), fields, read).alias("told")).orderBy("n").collect()
    assert [row.told for row in told] == [*(is_encoded(value, fields) for value in values), None]
    assert all(row.told for row in told[: len(written)])
