"""Expected and published totals per window: the chart of a certificate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any

import polars as pl

from recount.audit.copies import KAFKA
from recount.audit.results import COMPLETE, EXPECTED
from recount.core.nodes import WINDOW_START
from recount.core.schema import FieldType
from recount.core.sums import fits
from recount.recompute.flow import Flow

MAX_WINDOWS = 500
_SIDES = {EXPECTED: EXPECTED, "published": f"{KAFKA}_latest", COMPLETE: COMPLETE}
_PLACES = 6
"""Decimal places of a double on the chart."""


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


def totals_by_window(judged: pl.DataFrame, flow: Flow) -> Sequence[Mapping[str, Any]]:
    """The totals of the rows of ``judged`` that name a window."""
    name = charted(flow)
    if name is None:
        return []
    kind = flow.aggregate.fields[name]
    totals = [
        _summable(judged, pl.col(column).struct.field(name), kind).sum().alias(side) for side, column in _SIDES.items()
    ]
    return judged.filter(pl.col(WINDOW_START).is_not_null()).group_by(WINDOW_START).agg(*totals).to_dicts()


def _summable(judged: pl.DataFrame, values: pl.Expr, kind: FieldType) -> pl.Expr:
    """``values`` as a type that holds their sum: over all keys it need not fit into the type of one result."""
    if kind.kind == "long":
        return values.cast(pl.Int128)
    found = [abs(one) for one in judged.select(least=values.min(), most=values.max()).row(0) if one]
    if kind.kind == "decimal" and not all(fits(one * judged.height, kind) for one in found):
        return values.cast(pl.Float64)
    return values


def series_of(totals: Iterable[Mapping[str, Any]]) -> tuple[WindowTotal, ...]:
    """``totals``, of which several may be about one window, as the newest ``MAX_WINDOWS`` windows in order.

    A window whose total is beyond every double has no bar.
    """
    windows: dict[int, dict[str, Decimal]] = {}
    totals = list(totals)
    beyond = {one[WINDOW_START] for one in totals if not all(isfinite(one[side]) for side in _SIDES)}
    for total in (one for one in totals if one[WINDOW_START] not in beyond):
        window = windows.setdefault(total[WINDOW_START], dict.fromkeys(_SIDES, Decimal(0)))
        for side in _SIDES:
            window[side] += _exact(total[side])
    newest = sorted(windows)[-MAX_WINDOWS:]
    return tuple(WindowTotal(window_start=start, **windows[start]) for start in newest)


def _exact(total: Any) -> Decimal:
    return Decimal(str(round(total, _PLACES))) if isinstance(total, float) else Decimal(total)
