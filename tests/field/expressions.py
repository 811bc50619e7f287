"""Cases of expressions over the fields of a record: values that do not fit, decimals of many digits, DOUBLE."""

from __future__ import annotations

from decimal import Decimal

from tests.field.case import CLOSING, Case, Result, ending, record, source

from recount.core.aggregates import count, largest
from recount.core.expressions import col
from recount.core.flow import stream
from recount.core.schema import decimal
from recount.core.windows import tumbling

MONEY = decimal(19, 4)


CASES: tuple[Case, ...] = (
    Case(
        name="F1 product of a few places",
        topology=ending(
            "f1-product", stream(source("f1-product", a=MONEY, b=MONEY)).with_fields(p=col("a") * col("b"))
        ),
        log=[[record("f1-product", at_ms=1_000, a=Decimal("1.01"), b=Decimal("1.01"))]],
        results={"f1-product": [Result(key="k", value={"p": Decimal("1.02010000")})]},
    ),
    Case(
        name="F1 largest product of a window",
        topology=ending(
            "f1-largest",
            stream(source("f1-largest", a=MONEY, b=MONEY))
            .with_fields(p=col("a") * col("b"))
            .windowed_by(tumbling("10 s", grace="0 s"))
            .aggregate(n=count(), p=largest("p"))
            .emit_final(),
        ),
        log=[
            [record("f1-largest", at_ms=1_000, a=Decimal("1.01"), b=Decimal("1.01"))],
            [record("f1-largest", at_ms=2_000, a=Decimal("1"), b=Decimal("1"))],
            [record("f1-largest", at_ms=90_000, key=CLOSING, a=Decimal("1"), b=Decimal("1"))],
        ],
        results={"f1-largest": [Result(key="k", window=(0, 10_000), value={"n": 2, "p": Decimal("1.02010000")})]},
    ),
)
