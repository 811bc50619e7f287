"""Expected and published totals per window: the chart of a certificate."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from recount.audit.copies import KAFKA
from recount.audit.fidelity import COMPLETE, EXPECTED
from recount.core.nodes import WINDOW_START
from recount.recompute.flow import Flow

MAX_WINDOWS = 500


@dataclass(frozen=True, kw_only=True)
class WindowTotal:
    """One window over all keys: the total of the charted aggregate as expected, as published, with unlimited grace."""

    window_start: int
    expected: Decimal
    published: Decimal
    complete: Decimal


def charted(flow: Flow) -> str | None:
    """The aggregate that is charted: the first count or sum, None without one."""
    additive = (name for name, aggregate in flow.aggregate.aggregates.items() if aggregate.kind in ("count", "sum"))
    return next(additive, None)


def window_totals(judged: DataFrame, flow: Flow) -> tuple[WindowTotal, ...]:
    """The newest ``MAX_WINDOWS`` windows, in order of their start; empty when nothing can be added up."""
    name = charted(flow)
    if name is None:
        return ()

    def total(side: str) -> Column:
        return F.coalesce(F.sum(F.col(side)[name]), F.lit(0)).cast("decimal(38,6)")

    sides = {EXPECTED: EXPECTED, "published": f"{KAFKA}_latest", COMPLETE: COMPLETE}
    rows = (
        judged.where(F.col(WINDOW_START).isNotNull())
        .groupBy(WINDOW_START)
        .agg(*(total(column).alias(side) for side, column in sides.items()))
        .orderBy(F.desc(WINDOW_START))
        .limit(MAX_WINDOWS)
        .collect()
    )
    return tuple(WindowTotal(**row.asDict()) for row in reversed(rows))
