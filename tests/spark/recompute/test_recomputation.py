"""The recompute by hand, and beside the interpreter on random logs."""

import random
from collections.abc import Iterator, Mapping
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.recompute.conftest import LogRecord, MemoryLog, framed, order, recomputed_of, results_of, told
from tests.user_names import USER_NAMES

from recount.declare.aggregates import average, count, largest, total
from recount.declare.columns import RESULT_TIME
from recount.declare.expressions import coalesce, col, when
from recount.declare.operators.nodes import WINDOW_START
from recount.declare.schema import DOUBLE, LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import TimeWindows, tumbling
from recount.recompute.decoding import Limits
from recount.recompute.frames import duck_functions as D
from recount.recompute.frames.duck_columns import Column
from recount.recompute.frames.duck_database import Database, NotComputable
from recount.recompute.operators.exact_totals import Sum, whole_sum
from recount.recompute.operators.log_aggregates import Over, with_totals
from recount.recompute.raw_log import RawLog
from recount.recompute.rules.range_rules import is_carried_apart
from recount.recompute.spark_columns import spark_type

ORDERS = Topic(
    name="orders", key="id", value=RecordSchema.of(region=STRING, amount=decimal(9, 2), required=("amount",))
)
OUT = Topic(name="out", key="region")


def revenue(windows: TimeWindows) -> Topology:
    by_region = stream(ORDERS).select_key(region=col("region")).windowed_by(windows)
    return Topology(
        name="revenue", sinks=[by_region.aggregate(orders=count(), sum=total("amount")).emit_final().to(OUT)]
    )


def test_a_record_is_late_by_the_stream_time_of_its_own_partition_at_its_own_offset(spark: SparkSession) -> None:
    """Tumbling 10 s, grace 3 s: [0, 10) closes at 13 s of the record's own partition.

    partition 0:  5 s   12.999 s   6 s (on time)   13 s   7 s (late by 0 ms)
    partition 1:  8 s (on time, though partition 0 is ahead)
    """
    times = [(0, 5_000), (0, 12_999), (0, 6_000), (0, 13_000), (0, 7_000), (1, 8_000)]
    log = MemoryLog([LogRecord(partition=p, timestamp_ms=at, value=order(region="EU", amount=0.1)) for p, at in times])
    done = recomputed_of(spark, revenue(tumbling("10 s", grace="3 s")), log)

    expected = told(results_of(done), "region", WINDOW_START, "orders", "sum")
    assert expected == [("EU", 0, 3, Decimal("0.30")), ("EU", 10_000, 2, Decimal("0.20"))]
    late = done.late.rows()
    assert told(late, "partition", "offset", WINDOW_START, "margin_ms") == [(0, 4, 0, 0)]
    whole = recomputed_of(spark, revenue(tumbling("10 s", grace="3 s")), log, lateness=False)
    complete = [row for row in results_of(whole) if row[WINDOW_START] == 0]
    assert told(complete, "orders", "sum", RESULT_TIME) == [(4, Decimal("0.40"), 8_000)]


def test_bad_records_and_null_keys_have_a_fate_and_do_not_advance_stream_time(spark: SparkSession) -> None:
    log = MemoryLog(
        [
            LogRecord(timestamp_ms=1_000, value=order(region="EU", amount=1)),
            LogRecord(timestamp_ms=90_000, value=b"{"),
            LogRecord(timestamp_ms=90_000, value=order(region="EU")),
            LogRecord(timestamp_ms=90_000, value=order(amount=1)),
            LogRecord(timestamp_ms=-1, value=order(region="EU", amount=1)),
            LogRecord(timestamp_ms=95_001, value=order(region="EU", amount=1)),
            LogRecord(timestamp_ms=80_000, value=order(region="EU", amount=1)),
            LogRecord(timestamp_ms=2_000, value=order(region="EU", amount=1)),
        ]
    )
    limits = {0: Limits(starts=[0, 7], latest_ms=[95_000, 1])}
    done = recomputed_of(spark, revenue(tumbling("10 s", grace="3 s")), log, limits=limits)
    fates = {row["fate"]: row["n"] for row in done.fate_counts()}
    assert fates == {"counted": 2, "null key": 1, "dead-lettered": 5}
    [sink] = done.results
    assert done.latest_ms(sink.input) == {("orders", 0): 80_000}
    assert told(done.ledgers["rejected"].rows(), "offset", "reason") == [
        (1, "undecodable"),
        (2, "schema"),
        (4, "negative-timestamp"),
        (5, "future-timestamp"),
        (7, "future-timestamp"),
    ]


def test_a_log_that_is_not_in_offset_order_is_refused(spark: SparkSession) -> None:
    class Shuffled(MemoryLog):
        def read(self, *given: Any, **options: Any) -> RawLog:
            return RawLog(frame=super().read(*given, **options).frame.orderBy(F.desc("offset")).coalesce(1))

    log = Shuffled([LogRecord(timestamp_ms=at, value=order(region="EU", amount=1)) for at in (1, 2)])
    with pytest.raises(Exception, match="not in offset order"):
        recomputed_of(spark, revenue(tumbling("10 s", grace="3 s")), log)


@pytest.mark.parametrize(("key", "may_be_null"), [("reason", False), ("partition", True), ("offset", False)])
def test_fields_can_have_any_name_the_recompute_has_for_its_own_columns(
    spark: SparkSession, key: str, may_be_null: bool
) -> None:
    names = ("reason", "offset", "partition", "detail", "fate")
    topic = Topic(name="odd", key="id", value=RecordSchema.of(**dict.fromkeys(names, STRING)))
    read = when(col("detail") == col("offset"), col(key), None) if may_be_null else coalesce(col(key), "none")
    kept = stream(topic).filter(coalesce(col("reason") != col("partition"), False)).select_key(**{key: read})
    counted = kept.windowed_by(tumbling("10 s", grace="3 s")).aggregate(n=count(), most=largest("fate"))
    topology = Topology(name="odd", sinks=[counted.emit_final().to(Topic(name="out", key=key))])
    odd = {"reason": "r", "offset": "o", "partition": "p", "detail": "o", "fate": "f"}
    log = MemoryLog([LogRecord(timestamp_ms=1_000, value=value) for value in (order(**odd), b"{", order(**odd))])

    done = recomputed_of(spark, topology, log)

    assert told(results_of(done), key, "n", "most") == [(odd[key], 2, "f")]
    assert told(done.ledgers["rejected"].rows(), "partition", "offset", "reason") == [(0, 1, "undecodable")]
    done.release()


NINES = "9" * 38


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


def test_totals_and_averages_depend_on_no_order_and_may_be_made_of_parts(database: Database) -> None:
    texts = [
        (case, place, name, text) for case, (name, values, _) in enumerate(TOTALS) for place, text in enumerate(values)
    ]
    of_text = pa.schema([("case", pa.int64()), ("place", pa.int64()), ("name", pa.string()), ("text", pa.string())])
    frame = framed(database, of_text, texts)
    for name, kind in KINDS.items():
        frame = frame.with_column(name, D.when(D.col("name") == name, D.col("text")).cast(spark_type(kind)))
    unfit = [case for case, (_, _, right) in enumerate(TOTALS) if right is None]
    aggregates = {f"{of.kind} {name}": of for name in KINDS for of in (total(name), average(name))}
    fitting = frame.where(reduce(and_, (D.col("case") != case for case in unfit)))
    amounts = fitting.where(D.col("place") < 2).group_by("case").agg(*_named(Over(fields=KINDS).amounts(aggregates)))
    rest = fitting.where(D.col("place") >= 2).union(with_totals(amounts, aggregates, KINDS))
    going_on = Over(fields=KINDS, counting=D.col("place").is_not_null(), goes_on=True)
    parts = rest.group_by("case").agg(*_named(going_on.results(aggregates))).rows()
    assert len(parts) == sum(right is not None for _, _, right in TOTALS)
    for row in parts:
        name, values, right = TOTALS[row["case"]]
        with localcontext(Context(prec=100)):
            mean = float(sum(map(Fraction, values))) / len(values) if name != "x" else right / len(values)  # type: ignore[operator]
        assert row[f"sum {name}"] == right and type(row[f"sum {name}"]) is type(right)
        assert row[f"avg {name}"] == pytest.approx(mean, rel=1e-12)
    apart = {name: kind for name, kind in KINDS.items() if is_carried_apart(kind)}
    sums = {name: whole_sum(_sum(name), kind, lambda one: one).struct for name, kind in apart.items()}
    for row in frame.group_by("case").agg(*_named(sums)).rows():
        name, _, right = TOTALS[row["case"]]
        assert name not in apart or (row[name]["beyond"] is not None) == (right is None)


def _named(columns: Mapping[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]


def _sum(name: str) -> Sum:
    kind = KINDS[name]
    return Sum(D.col(name), D.lit(None).cast("double" if kind.kind == "double" else "long"))


def test_amounts_that_an_earlier_release_has_kept_are_read_as_they_are(database: Database) -> None:
    aggregates = {"a": total("d"), "b": average("x"), "c": total("x")}
    mean, whole = pa.struct([("total", pa.float64()), ("number", pa.int64())]), pa.decimal128(38, 0)
    of_kept = [("k", pa.string()), ("__before_a", whole), ("__before_b", mean), ("__before_c", pa.float64())]
    kept = framed(database, pa.schema(of_kept), [("k", Decimal(NINES), {"total": 3.0, "number": 2}, 1.5)])
    of_new = [("k", pa.string()), ("n", pa.int64()), ("d", whole), ("x", pa.float64())]
    new = framed(database, pa.schema(of_new), [("k", 1, Decimal(-1), 3.0)])
    both = new.union(with_totals(kept, aggregates, KINDS))
    over = Over(fields=KINDS, counting=D.col("n").is_not_null(), goes_on=True)
    [row] = both.group_by("k").agg(*_named(over.results(aggregates))).rows()
    assert (row["a"], row["b"], row["c"]) == (Decimal(NINES[:-1] + "8"), 2.0, 4.5)


def test_a_sum_of_longs_beyond_64_bits_is_refused_under_any_names(spark: SparkSession) -> None:
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
    done = recomputed_of(spark, topology, log)
    with pytest.raises(NotComputable, match="more than 64 bits"):
        done.result("out").rows()
    done.release()
