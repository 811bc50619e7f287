"""Rows of state, in general: those that pass, those that stay, those that each key has one of."""

from __future__ import annotations

import math
from dataclasses import dataclass

from recount.core.durations import readable
from recount.spark.estimates.amounts import counted
from recount.spark.estimates.arrivals import Arrivals, Inflow


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What one state of an operator holds once the stream has run for a while; ``formula`` says how that follows.

    ``rows`` at most, ``changed`` of them written by each batch. ``grows_per_s``: rows that come and are never dropped,
    beside ``rows``. ``records``: how many records are behind a row, and so the values in its lists; ``values_per_s``:
    how many values a second are added to lists for good.
    """

    rows: float
    changed: float
    formula: str
    grows_per_s: float = 0.0
    records: float = 1.0
    values_per_s: float = 0.0


def passing(per_s: float, span_ms: int, inflow: Inflow, what: str) -> Kept:
    """Rows that come and go: as many as come in the time for which one is kept.

    Source: Little's law, L = lambda W (Little, Operations Research 9, 1961). 100 rows/s kept 60 s: 6,000. A row is
    written as it comes and again as it goes.
    """
    if not inflow.settles:
        return lasting(per_s, inflow, what)
    kept_ms = inflow.kept_ms(span_ms)
    return Kept(
        rows=per_s * kept_ms / 1_000,
        changed=2 * per_s * inflow.trigger_ms / 1_000,
        formula=f"{counted(per_s)} {what}/s x {_parts(span_ms, inflow)}",
    )


def lasting(per_s: float, inflow: Inflow, what: str, rows: float = 0.0) -> Kept:
    """Rows that come and stay for ever, beside ``rows`` that are there anyway."""
    why = "" if inflow.settles else ": what comes from above can be old, or be revised"
    return Kept(
        rows=rows,
        changed=per_s * inflow.trigger_ms / 1_000,
        grows_per_s=per_s,
        formula=f"{counted(per_s)} {what}/s, kept for ever{why}",
    )


def one_per_key(arrivals: Arrivals, inflow: Inflow, what: str) -> Kept:
    """A row for each key that has ever spoken: it grows as long as new keys come."""
    if math.isinf(arrivals.keys):
        return lasting(arrivals.per_s, inflow, f"{what}, of a new key each")
    return Kept(
        rows=arrivals.keys,
        changed=arrivals.keys_within(inflow.trigger_ms),
        formula=f"{counted(arrivals.keys)} {what}, kept for ever: grows with new keys",
    )


def _parts(span_ms: int, inflow: Inflow) -> str:
    """``(60 s + 1 s a batch + 10 s behind)``."""
    parts = [readable(span_ms), f"{readable(inflow.trigger_ms)} a batch"]
    return f"({' + '.join([*parts, *behind(inflow)])})"


def behind(inflow: Inflow) -> list[str]:
    """How far time is behind, where it is."""
    return [f"{readable(inflow.behind_ms)} behind"] if inflow.behind_ms else []
