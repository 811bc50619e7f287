"""State of operators that hold rows back or remember ids; the formulas for ``operators/remembering.py``."""

from __future__ import annotations

import math
from dataclasses import replace

from recount.core.changelogs import Suppress
from recount.core.nodes import WINDOW_START, Node, WindowedAggregate
from recount.core.processing import Deduplicate
from recount.core.windows import TimeWindows
from recount.spark.estimates.arrivals import Arrivals, Inflow
from recount.spark.estimates.kept import Kept, passing


def held_updates(node: Suppress, inflow: Inflow) -> Kept:
    """The latest update of each key and window until the limit has passed since its first one (state ``held``).

    1,000 updates/s of 100 keys held 60 s: each key has one held nearly always, 100. ``max_rows`` is the most there are.
    """
    kept_ms = inflow.kept_ms(node.limit_ms)
    updates = Arrivals(per_s=inflow.only.per_s, keys=inflow.only.keys * _windows_of_a_key(node, kept_ms))
    firsts_per_s = updates.firsts_per_s(node.limit_ms)
    held = passing(firsts_per_s, node.limit_ms, inflow, "keys and windows with a first update")
    most = math.inf if node.max_rows is None else node.max_rows
    return replace(
        held,
        rows=min(held.rows, most),
        changed=updates.keys_within(inflow.trigger_ms) + firsts_per_s * inflow.trigger_ms / 1_000,
        formula=held.formula + ("" if node.max_rows is None else f", at most {node.max_rows:,}"),
    )


def _windows_of_a_key(node: Node, stretch_ms: int) -> float:
    """How many windows of one key can have an update in a stretch of time; those of records have no number."""
    if WINDOW_START not in node.fields:
        return 1
    while not isinstance(node, WindowedAggregate):
        node = node.inputs[0]
    windows = node.windows
    return (windows.size_ms + stretch_ms) / windows.advance_ms if isinstance(windows, TimeWindows) else math.inf


def winners(node: Deduplicate, inflow: Inflow) -> Kept:
    """The winners of each id (state ``winners``), kept for two horizons: nothing older can be compared with them."""
    winners_per_s = inflow.only.firsts_per_s(node.horizon_ms)
    return passing(winners_per_s, 2 * node.horizon_ms, inflow, "winners")


def undecided(node: Deduplicate, inflow: Inflow) -> Kept:
    """The records before which an earlier one may still come (state ``waiting``); none where offsets decide."""
    if node.partitioned:
        return Kept(rows=0, changed=0, formula="none: the id determines the partition, so the offset decides at once")
    return passing(inflow.only.per_s, node.horizon_ms, inflow, "records")
