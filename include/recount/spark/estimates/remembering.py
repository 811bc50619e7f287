"""State of operators that hold rows back or remember ids; the formulas for ``operators/remembering.py``."""

from __future__ import annotations

import math

from recount.core.changelogs import Suppress
from recount.core.durations import readable
from recount.core.nodes import WINDOW_START, Node, WindowedAggregate
from recount.core.processing import Deduplicate
from recount.core.windows import TimeWindows
from recount.spark.estimates.amounts import counted
from recount.spark.estimates.arrivals import Arrivals
from recount.spark.estimates.inflow import Inflow
from recount.spark.estimates.kept import Kept, passing


def held_updates(node: Suppress, inflow: Inflow) -> Kept:
    """The latest update of each key and window until the limit has passed (state ``held``).

    As many as get an update in the limit: 1,000 updates/s of 100 keys held 60 s: 100. ``max_rows`` is the most there
    can be.
    """
    kept_ms = inflow.kept_ms(node.limit_ms)
    held = Arrivals(per_s=inflow.only.per_s, keys=inflow.only.keys * _windows_of_a_key(node, kept_ms))
    rows, most = held.keys_within(kept_ms), math.inf if node.max_rows is None else node.max_rows
    limit = "" if node.max_rows is None else f", at most {node.max_rows:,}"
    return Kept(
        rows=min(rows, most),
        changed=held.keys_within(inflow.trigger_ms) + min(rows, most) * inflow.trigger_ms / kept_ms,
        formula=f"{counted(rows)} keys and windows with an update in {readable(kept_ms)}{limit}",
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
    """The winners of each id (state ``winners``), kept for two horizons: nothing older can be compared with them.

    After a winner an id loses for the horizon, then wins with its next record: per id one winner in horizon + 1 / its
    rate (Ross, 7.3: alternating renewal). 100 records/s of ids that come once: 100 winners/s.
    """
    records = inflow.only
    return passing(winners_per_s(node, records), 2 * node.horizon_ms, inflow, "winners")


def winners_per_s(node: Deduplicate, records: Arrivals) -> float:
    """How many records a second are the first of their id."""
    return records.per_s / (1 + records.within(node.horizon_ms) / records.keys)


def undecided(node: Deduplicate, inflow: Inflow) -> Kept:
    """The records before which an earlier one may still come (state ``waiting``); none where offsets decide."""
    if node.partitioned:
        return Kept(rows=0, changed=0, formula="none: the id determines the partition, so the offset decides at once")
    return passing(inflow.only.per_s, node.horizon_ms, inflow, "records")
