"""Cases of expressions over the fields of a record: values that do not fit, decimals of many digits, DOUBLE."""

from __future__ import annotations

from decimal import Context, Decimal

from tests.field.case import CLOSING, Case, Result, Sent, ending, record, source

from recount.declare.aggregates import count, largest, total
from recount.declare.expressions import coalesce, col, when
from recount.declare.flow import stream
from recount.declare.schema import DOUBLE, LONG, LONG_MAX, STRING, decimal
from recount.declare.windows import tumbling

MONEY, COIN, WHOLE = decimal(19, 4), decimal(38, 18), decimal(38, 0)
TINY = Decimal("0.000000000000000001")
"""The last place of a ``COIN``."""


def coins(name: str, at_ms: int, a: str, b: str, key: str = "k") -> Sent:
    return record(name, at_ms=at_ms, key=key, a=Decimal(a), b=Decimal(b))


def places(number: Decimal | int) -> Decimal:
    """``number`` with the places of the product of two coins."""
    return Decimal(number).quantize(TINY * TINY, context=Context(prec=38))


PRODUCT = Case(
    name="F1 product of two decimals",
    topology=ending("f1-product", stream(source("f1-product", a=MONEY, b=MONEY)).with_fields(p=col("a") * col("b"))),
    log=[[record("f1-product", at_ms=1_000, a=Decimal("1.0001"), b=Decimal("1.0001"))]],
    results={"f1-product": [Result(key="k", value={"p": Decimal("1.00020001")})]},
)

EXACT = Case(
    name="F1 decimals of many digits in all that is computed of them",
    topology=ending(
        "f1-exact",
        stream(source("f1-exact", a=COIN, b=COIN, w=WHOLE, n=LONG, m=MONEY))
        .filter(col("w") > col("b"))
        .filter(col("n") == col("m"))
        .with_fields(
            difference=col("a") - col("b"),
            sum=col("a") + col("b"),
            many=col("n") * col("m"),
            whole=col("w") - col("a"),
            chosen=when(col("n") > 0, col("m"), col("a")),
            first=coalesce(col("m"), col("a")),
            constant=col("a") + Decimal("0.123456789012345678"),
        ),
    ),
    log=[
        [
            record(
                "f1-exact",
                at_ms=1_000,
                a=Decimal("1.000000000000000001"),
                b=Decimal("10000000000000000000.000000000000000001"),
                w=Decimal("9" * 20),
                n=7,
                m=Decimal(7),
            ),
            record("f1-exact", at_ms=2_000, a=TINY, b=TINY, w=Decimal(0), n=7, m=Decimal(7)),
            record("f1-exact", at_ms=3_000, a=TINY, b=TINY, w=Decimal(1), n=7, m=Decimal("7.0001")),
        ]
    ],
    results={
        "f1-exact": [
            Result(
                key="k",
                value={
                    "difference": Decimal("-9999999999999999999.000000000000000000"),
                    "sum": Decimal("10000000000000000001.000000000000000002"),
                    "many": Decimal("49.0000"),
                    "whole": Decimal("99999999999999999997.999999999999999999"),
                    "chosen": Decimal("7.000000000000000000"),
                    "first": Decimal("7.000000000000000000"),
                    "constant": Decimal("1.123456789012345679"),
                },
            )
        ]
    },
)

TOTALS = Case(
    name="F1 difference of two totals",
    topology=ending(
        "f1-totals",
        stream(source("f1-totals", a=decimal(15, 8), b=decimal(15, 8)))
        .windowed_by(tumbling("10 s", grace="0 s"))
        .aggregate(a=total("a"), b=total("b"))
        .emit_final()
        .with_fields(d=col("a") - col("b")),
    ),
    log=[
        [coins("f1-totals", 1_000, "0.00000003", "0.00000001"), coins("f1-totals", 2_000, "1", "0.5")],
        [coins("f1-totals", 60_000, "0", "0", CLOSING)],
    ],
    results={"f1-totals": [Result(key="k", window=(0, 10_000), value={"d": Decimal("0.50000002")})]},
)

LARGEST = Case(
    name="F1 largest product of a window",
    on_broker=False,
    topology=ending(
        "f1-largest",
        stream(source("f1-largest", a=MONEY, b=MONEY))
        .windowed_by(tumbling("10 s", grace="0 s"))
        .aggregate(n=count(), p=largest(col("a") * col("b")), s=total(col("a") * col("b")))
        .emit_final(),
    ),
    log=[
        [coins("f1-largest", 1_000, "1.0001", "1.0001"), coins("f1-largest", 2_000, "1", "1")],
        [coins("f1-largest", 90_000, "1", "1", CLOSING)],
    ],
    results={
        "f1-largest": [
            Result(key="k", window=(0, 10_000), value={"n": 2, "p": Decimal("1.00020001"), "s": Decimal("2.00020001")})
        ]
    },
)

FITTING = Case(
    name="F2 product that fits although its factors have many places",
    topology=ending(
        "f2-fits", stream(source("f2-fits", a=COIN, b=COIN)).with_fields(p=col("a") * col("b")).select("p")
    ),
    log=[
        [coins("f2-fits", 1_000, "100", "0.01"), coins("f2-fits", 2_000, "1000", "1")],
        [coins("f2-fits", 3_000, "-10", "9.999999999999999999"), coins("f2-fits", 4_000, "-10", "10")],
    ],
    results={
        "f2-fits": [
            Result(key="k", value={"p": places(1)}),
            Result(key="k", value={"p": places(Decimal("-99.99999999999999999"))}),
        ]
    },
    dead_letters={
        "f2-fits-in-0@1": "out-of-range: decimal in with p = (a * b)",
        "f2-fits-in-0@3": "out-of-range: decimal in with p = (a * b)",
    },
)

OVERFLOWING = Case(
    name="F2 LONG beyond 64 bits in each operator that computes",
    topology=ending(
        "f2-longs",
        stream(source("f2-longs", a=LONG, b=LONG, to=STRING))
        .filter(col("a") - 1 < 10)
        .with_fields(guarded=when(col("b") < 10, col("b") * col("b"), None), both=coalesce(col("a") + col("b"), 0))
        .select_key(key=col("a") * 4_611_686_018_427_387_904)
        .select("guarded", "both"),
    ),
    log=[
        [
            record("f2-longs", at_ms=1_000, a=1, b=3),
            record("f2-longs", at_ms=2_000, a=-LONG_MAX - 1, b=3),
            record("f2-longs", at_ms=3_000, a=1, b=LONG_MAX),
        ],
        [
            record("f2-longs", at_ms=4_000, a=2, b=3),
            record("f2-longs", at_ms=5_000, a=LONG_MAX, b=LONG_MAX),
            record("f2-longs", at_ms=6_000, a=0, b=LONG_MAX),
            record("f2-longs", at_ms=7_000, a=None, b=LONG_MAX),
        ],
    ],
    results={
        "f2-longs": [
            Result(key=2**62, value={"guarded": 9, "both": 4}),
            Result(key=0, value={"guarded": None, "both": LONG_MAX}),
        ]
    },
    dead_letters={
        "f2-longs-in-0@1": "out-of-range: long in filter ((a - 1) < 10)",
        "f2-longs-in-0@2": (
            "out-of-range: long in with guarded = when((b < 10), (b * b), None), both = coalesce((a + b), 0)"
        ),
        "f2-longs-in-0@3": "out-of-range: long in select key key = (a * 4611686018427387904)",
    },
)

IN_A_TOTAL = Case(
    name="F2 value of a total that does not fit, in a window that counts the others",
    topology=ending(
        "f2-total",
        stream(source("f2-total", a=COIN, b=COIN))
        .windowed_by(tumbling("10 s", grace="0 s"))
        .aggregate(n=count(), s=total(col("a") * col("b")))
        .emit_final(),
    ),
    log=[
        [coins("f2-total", 1_000, "100", "0.01"), coins("f2-total", 12_000, "10", "10")],
        [
            coins("f2-total", 2_000, "1", "1"),
            coins("f2-total", 13_000, "1", "1"),
            coins("f2-total", 60_000, "0", "0", CLOSING),
        ],
    ],
    results={
        "f2-total": [
            Result(key="k", window=(0, 10_000), value={"n": 1, "s": places(1)}),
            Result(key="k", window=(10_000, 20_000), value={"n": 1, "s": places(1)}),
        ]
    },
    dead_letters={
        "f2-total-in-0@1": (
            "out-of-range: decimal in n = count(), s = sum((a * b)) per __key, tumbling 10 s, grace 0 ms, emit final"
        )
    },
)

DOUBLES = Case(
    name="F8 DOUBLE beyond its range",
    topology=ending(
        "f8",
        stream(source("f8", d=DOUBLE, n=DOUBLE)).with_fields(x=col("d") * 10.0, y=col("d") / col("n")).select("x", "y"),
    ),
    log=[
        [
            record("f8", at_ms=1_000, d=1.5, n=2.0),
            record("f8", at_ms=2_000, d=1.7e308, n=2.0),
            record("f8", at_ms=3_000, d=1e300, n=1e-300),
            record("f8", at_ms=4_000, d=1.0, n=0.0),
        ]
    ],
    results={"f8": [Result(key="k", value={"x": 15.0, "y": 0.75}), Result(key="k", value={"x": 10.0, "y": None})]},
    dead_letters={
        "f8-in-0@1": "out-of-range: double in with x = (d * 10.0), y = (d / n)",
        "f8-in-0@2": "out-of-range: double in with x = (d * 10.0), y = (d / n)",
    },
)

AT_A_RESULT = Case(
    name="F2 product of a window's result",
    topology=ending(
        "f2-result",
        stream(source("f2-result", a=LONG))
        .windowed_by(tumbling("10 s", grace="0 s"))
        .aggregate(s=total("a"))
        .emit_final()
        .with_fields(p=col("s") * 2),
    ),
    log=[[record("f2-result", at_ms=1_000, a=LONG_MAX)], [record("f2-result", at_ms=60_000, a=0)]],
    stops="with p = (s * 2), at a derived row",
)

BELOW_A_HOLD = Case(
    name="F2 product below an operator that holds records back",
    topology=ending(
        "f2-held", stream(source("f2-held", a=LONG)).in_order(grace="10 s").with_fields(p=col("a") * 2).select("p")
    ),
    log=[[record("f2-held", at_ms=1_000, a=LONG_MAX)], [record("f2-held", at_ms=60_000, a=0)]],
    stops="with p = (a * 2), at f2-held-in-0@0",
)

CASES: tuple[Case, ...] = (
    *(PRODUCT, EXACT, TOTALS, LARGEST, FITTING, OVERFLOWING, IN_A_TOTAL, DOUBLES, AT_A_RESULT, BELOW_A_HOLD),
)
