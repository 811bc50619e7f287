"""Item 1.6: the recompute's sums are exact, or an error; never null, and never another number."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.recompute.conftest import LogRecord, MemoryLog
from tests.user_names import USER_NAMES

from recount.declare.aggregates import average, total
from recount.declare.columns import IS_LATE
from recount.declare.expressions import col
from recount.declare.schema import DOUBLE, LONG, LONG_MAX, LONG_MIN, FieldType, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.recompute.operators.log_aggregates import Over, with_totals
from recount.recompute.rules.number_rules import Total, as_long, exact_sum, finished, is_carried_apart, total_of
from recount.recompute.single_flow import Flow
from recount.recompute.single_recompute import declared, recompute, results
from recount.recompute.spark_columns import spark_type

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


def _drawn(dice: random.Random, number: int) -> Iterator[tuple[str, list[str], object]]:
    """Values near the ends of their types whose sum is exact, and fits or not."""
    for _ in range(number):
        name, places = dice.choice([("d", 0), ("m", 18), ("e", 38), ("x", 0)])
        if name == "x":
            doubles = [dice.choice([1.5, -1.5, 1.0, -1.0]) * 2.0 ** dice.choice([1023, 1022]) for _ in range(6)]
            whole = sum(map(Fraction, doubles))
            fits = abs(whole) < 2**1024
            yield name, list(map(repr, doubles)), float(whole) if fits else None
            continue
        units = [dice.choice([1, -1]) * (10**38 - 1 - dice.choice([0, 1, dice.randrange(10**38)])) for _ in range(6)]
        texts = [f"{Decimal(one).scaleb(-places, Context(prec=100)):f}" for one in units]
        fits = abs(sum(units)) < 10**38
        yield name, texts, Decimal(sum(units)).scaleb(-places, Context(prec=100)) if fits else None


KINDS = {"d": decimal(38, 0), "m": decimal(38, 18), "e": decimal(38, 38), "x": DOUBLE, "s": decimal(15, 2)}
TOTALS: list[tuple[str, list[str], object]] = [
    ("d", [NINES, NINES, f"-{NINES}"], Decimal(NINES)),
    ("d", [f"-{NINES}", f"-{NINES}", NINES, NINES, "-5"], Decimal(-5)),
    ("d", [NINES, "1"], None),
    ("m", ["9" * 20, "9" * 20, "-" + "9" * 20, "0." + "1" * 18], Decimal("9" * 20 + "." + "1" * 18)),
    ("e", [f"0.{NINES}", f"0.{NINES}", f"-0.{NINES}", "0"], Decimal(f"0.{NINES}")),
    ("x", ["1.7e308", "1.7e308", "-1.7e308"], 1.7e308),
    ("x", ["-1.7e308", "-1.7e308"], None),
    ("x", ["0.25", "0.5"], 0.75),
    ("s", ["0.01", "-5"], Decimal("-4.99")),
    *_drawn(random.Random(7), 60),
]


def test_totals_and_averages_depend_on_no_order_and_may_be_made_of_parts(spark: SparkSession) -> None:
    texts = [(case, place, text) for case, (_, values, _) in enumerate(TOTALS) for place, text in enumerate(values)]
    frame = spark.createDataFrame(texts, "case int, place int, text string").repartition(3)
    field = dict(enumerate(name for name, _, _ in TOTALS))
    for name, kind in KINDS.items():
        mine = F.col("case").isin([case for case, one in field.items() if one == name])
        frame = frame.withColumn(name, F.when(mine, F.col("text").cast(spark_type(kind))))
    aggregates = {f"{of.kind} {name}": of for name in KINDS for of in (total(name), average(name))}
    fitting = frame.where(~F.col("case").isin([case for case, (_, _, right) in enumerate(TOTALS) if right is None]))
    amounts = fitting.where("place < 2").groupBy("case").agg(*_named(Over(fields=KINDS).amounts(aggregates)))
    rest = fitting.where("place >= 2").unionByName(with_totals(amounts, aggregates, KINDS), allowMissingColumns=True)
    going_on = Over(fields=KINDS, counting=F.col("place").isNotNull(), goes_on=True)
    parts = rest.groupBy("case").agg(*_named(going_on.results(aggregates))).collect()
    assert len(parts) == sum(right is not None for _, _, right in TOTALS)
    for row in parts:
        name, values, right = TOTALS[row["case"]]
        with localcontext(Context(prec=100)):
            mean = float(sum(map(Fraction, values))) / len(values) if name != "x" else right / len(values)  # type: ignore[operator]
        assert row[f"sum {name}"] == right and type(row[f"sum {name}"]) is type(right)
        assert row[f"avg {name}"] == pytest.approx(mean, rel=1e-12)
    sums = {name: total_of(_total(name), kind) for name, kind in KINDS.items() if is_carried_apart(kind)}
    beyond = frame.groupBy("case").agg(*(one.struct.alias(name) for name, one in sums.items())).collect()
    for case, (name, _, right) in enumerate(TOTALS):
        if right is None:
            [row] = [one for one in beyond if one["case"] == case]
            assert row[name]["beyond"] is not None


def _named(columns: Mapping[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]


def _total(name: str) -> Total:
    kind = KINDS[name]
    return Total(F.col(name), F.lit(None).cast("double" if kind.kind == "double" else "long"))


def test_amounts_that_an_earlier_release_has_kept_are_read_as_they_are(spark: SparkSession) -> None:
    aggregates = {"a": total("d"), "b": average("x"), "c": total("x")}
    kept = spark.sql(
        f"select 'k' k, cast('{NINES}' as decimal(38, 0)) `__before_a`,"
        " named_struct('total', 3.0D, 'number', 2L) `__before_b`, 1.5D `__before_c`"
    )
    new = spark.sql("select 'k' k, 1 n, cast(-1 as decimal(38, 0)) d, 3.0D x")
    both = new.unionByName(with_totals(kept, aggregates, KINDS), allowMissingColumns=True)
    over = Over(fields=KINDS, counting=F.col("n").isNotNull(), goes_on=True)
    [row] = both.groupBy("k").agg(*_named(over.results(aggregates))).collect()
    assert (row["a"], row["b"], row["c"]) == (Decimal(NINES[:-1] + "8"), 2.0, 4.5)


def test_a_sum_of_decimals_is_exact_or_an_error(spark: SparkSession) -> None:
    kind = FieldType(kind="decimal", precision=38, scale=0)

    def summed(*values: str) -> object:
        made = total_of(Total(F.col("v"), F.lit(None).cast("long")), kind)
        return rows(spark, "decimal(38, 0)", *values).select(finished(made, kind).alias("sum")).collect()[0]["sum"]

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
