"""Names of the sides that are compared, and a certificate's chart: totals of windows, expected and published."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.declare.operators.nodes import WINDOW_START
from recount.declare.schema import FieldType
from recount.declare.topology import Topology
from recount.recompute.rules.range_rules import MOST_DIGITS
from recount.recompute.rules.result_rules import adds_up
from recount.recompute.spark_columns import spark_type

EXPECTED, COMPLETE = "expected", "complete"
RELATIVE_TOLERANCE = 1e-9
MAX_WINDOWS = 500
_PLACES = 6
"""Decimal places of a double on the chart."""


@dataclass(frozen=True, kw_only=True)
class WindowTotal:
    """One window over all keys: the total of the charted aggregate as expected, as published, with unlimited grace."""

    window_start: int
    expected: Decimal
    published: Decimal
    complete: Decimal


@dataclass(frozen=True, kw_only=True)
class Chart:
    """The totals of each window of the aggregate ``charted``."""

    charted: str
    series: tuple[WindowTotal, ...]


def chart_of(judged: DataFrame, topology: Topology) -> Chart | None:
    """The first count or sum of the first sink of ``judged`` rows with time windows that add up; None without one."""
    for written in topology.written:
        if adds_up(written.input):
            for name, aggregate in written.input.aggregates.items():
                if aggregate.kind in ("count", "sum"):
                    mine = judged.where(F.col("sink") == written.topic.name)
                    return Chart(charted=name, series=_series_of(mine, name, written.fields[name]))
    return None


def _series_of(judged: DataFrame, name: str, kind: FieldType) -> tuple[WindowTotal, ...]:
    """The newest ``MAX_WINDOWS`` windows in order. One of which a total is beyond its type has no bar."""
    total = T.DecimalType(MOST_DIGITS, kind.scale if kind.kind == "decimal" else 0)
    summed: T.DataType = T.DoubleType() if kind.kind == "double" else total
    row = T.StructType([T.StructField("row", T.StructType([T.StructField(name, spark_type(kind))]))])
    corrected = F.when(F.col("completeness") == "repaired", F.col("seen_text"))
    texts = {
        "expected": F.col("expected_text"),
        "published": F.coalesce(corrected, F.col("kafka_text")),
        "complete": F.col("complete_text"),
    }
    values = {side: F.from_json(text, row, {"prefersDecimal": "true"}) for side, text in texts.items()}
    totals = [
        F.try_sum(F.coalesce(value["row"][name].cast(summed), F.lit(0).cast(summed))).alias(side)
        for side, value in values.items()
    ]
    windows = judged.where(F.col(WINDOW_START).isNotNull()).groupBy(WINDOW_START).agg(*totals)
    newest = windows.orderBy(F.desc(WINDOW_START)).limit(MAX_WINDOWS).collect()
    return tuple(
        WindowTotal(window_start=one[WINDOW_START], **{side: _as_decimal(one[side]) for side in texts})
        for one in reversed(newest)
        if all(one[side] is not None and isfinite(one[side]) for side in texts)
    )


def _as_decimal(total: Any) -> Decimal:
    return Decimal(str(round(total, _PLACES))) if isinstance(total, float) else Decimal(total)
