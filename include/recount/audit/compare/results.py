"""Names of the sides that are compared, and a certificate's chart: totals of windows, expected and published."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import types as T

from recount.declare.operators.nodes import WINDOW_START
from recount.declare.schema import FieldType
from recount.declare.topology import Topology, Written
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.rules.range_rules import MOST_DIGITS
from recount.recompute.rules.result_rules import adds_up

EXPECTED, COMPLETE, PUBLISHED = "expected", "complete", "published"
CHARTED = {side: f"charted_{side}" for side in (EXPECTED, PUBLISHED, COMPLETE)}
"""The columns of judged rows that the chart shows."""
RELATIVE_TOLERANCE = 1e-9
MAX_WINDOWS = 500
_DIGITS_OF_ROWS = 8
"""Of so many digits may be the number of rows of a window."""
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


def charted(topology: Topology) -> tuple[Written, str] | None:
    """The first sink of ``topology`` with time windows that add up, and its first count or sum; None without one."""
    for written in topology.written:
        if adds_up(written.input):
            for name, aggregate in written.input.aggregates.items():
                if aggregate.kind in ("count", "sum"):
                    return written, name
    return None


def chart_of(rows: Frame, name: str, kind: FieldType) -> Chart:
    """The totals of ``name``, which is of ``kind``, of the newest ``MAX_WINDOWS`` windows, in order.

    ``rows`` have the values ``CHARTED`` by ``window_start``. A window of which a value
    is so large that a total may be beyond its type has no bar.
    """
    scale = kind.scale if kind.kind == "decimal" else 0
    summed: T.DataType = T.DoubleType() if kind.kind == "double" else T.DecimalType(MOST_DIGITS, scale)
    most = 10.0 ** (MOST_DIGITS - scale - _DIGITS_OF_ROWS)
    values = {side: F.coalesce(F.col(column), F.lit(0)).cast(summed) for side, column in CHARTED.items()}
    is_small = F.lit(True)
    for value in values.values():
        is_small &= F.magnitude(value.cast("double")) < most
    totals = [F.total(F.when(is_small, value)).alias(side) for side, value in values.items()]
    windows = (
        rows.where(F.col(WINDOW_START).is_not_null())
        .group_by(WINDOW_START)
        .agg(F.all_hold(is_small).alias("is_small"), *totals)
    )
    newest = windows.with_column("before", F.lit(0) - F.col(WINDOW_START)).sorted_by("before", at_most=MAX_WINDOWS)
    series = tuple(
        WindowTotal(window_start=one[WINDOW_START], **{side: _as_decimal(one[side]) for side in CHARTED})
        for one in reversed(newest.rows())
        if one["is_small"]
    )
    return Chart(charted=name, series=series)


def _as_decimal(total: Any) -> Decimal:
    return Decimal(str(round(total, _PLACES))) if isinstance(total, float) else Decimal(total)
