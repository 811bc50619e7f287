"""State of joins and tables; the formulas for what the operators of these names in ``operators/`` keep."""

from __future__ import annotations

import math
from dataclasses import replace

from recount.core.changelogs import TableAggregate
from recount.core.durations import readable
from recount.core.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.spark.estimates.amounts import counted
from recount.spark.estimates.arrivals import Arrivals, Inflow
from recount.spark.estimates.kept import Kept, lasting, one_per_key, passing
from recount.spark.operators.lookups import SWEEPS


def joined_stream(node: StreamStreamJoin, inflow: Inflow, port: int) -> Kept:
    """One side of a join of streams (states ``left`` and ``right``).

    A row is kept while a partner can come: before + after + grace. 100 rows/s, 5 min either way, grace 1 min: 66,000.
    """
    return passing(inflow.inputs[port].per_s, node.delay_ms, inflow, "rows")


def pairs_per_s(node: StreamStreamJoin, left: Arrivals, right: Arrivals) -> float:
    """How many pairs a join of streams makes a second.

    Each left row meets the right rows of its key in before + after: 100/s and 50/s of 1,000 keys, 60 s: 100 x 50 x 60 /
    1,000 = 300. With keys of which none comes twice on a side, each row meets one at most.
    """
    keys = max(left.keys, right.keys)
    if math.isinf(keys):
        return min(left.per_s, right.per_s)
    return left.per_s * right.within(node.before_ms + node.after_ms) / keys


def join_cost(node: StreamStreamJoin, left: Arrivals, right: Arrivals) -> str:
    """``pairs_per_s``, and how it follows."""
    pairs, span = counted(pairs_per_s(node, left, right)), readable(node.before_ms + node.after_ms)
    if math.isinf(max(left.keys, right.keys)):
        return f"{pairs} pairs/s: one for each row of the rarer side"
    keys = counted(max(left.keys, right.keys))
    return f"{pairs} pairs/s: {counted(left.per_s)}/s x {counted(right.per_s)}/s x {span} / {keys} keys"


def joined_table(node: StreamTableJoin, inflow: Inflow) -> Kept:
    """The table of a lookup (state ``table``): versions, or as of arrival the row of each key.

    Versions are kept for a history and up to a sixteenth more, and of each key the newest for good; with unlimited
    history all are. 10 changes/s of 100 keys, a history of 160 s: 100 + 10 x (170 s + a batch).
    """
    _, changes = inflow.inputs
    if node.as_of == "arrival":
        return one_per_key(changes, inflow, "keys")
    if node.history_ms is None or math.isinf(changes.keys):
        return lasting(changes.per_s, inflow, "versions")
    span_ms = node.history_ms + node.history_ms // SWEEPS
    passed = passing(changes.per_s, span_ms, replace(inflow, settles=True), "versions")
    formula = f"{counted(changes.keys)} keys, kept for ever, + {passed.formula}"
    return replace(passed, rows=changes.keys + passed.rows, formula=formula)


def waiting_for_table(node: StreamTableJoin, inflow: Inflow) -> Kept:
    """The records that wait for the table's time (state ``waiting``, with a grace)."""
    return passing(inflow.only.per_s, node.grace_ms or 0, inflow, "records")


def joined_tables(node: TableTableJoin, inflow: Inflow, state: str) -> Kept:  # noqa: ARG001 - of every kind of join
    """Each side's row of each key (states ``left``, ``right``), and whether a key has a result (``results``)."""
    sides = {"left": inflow.inputs[0], "right": inflow.inputs[1]}
    return one_per_key(sides.get(state) or _either(inflow.inputs), inflow, "keys")


def grouped_rows(node: TableAggregate, inflow: Inflow, state: str, groups: float) -> Kept:  # noqa: ARG001 - as above
    """The table's rows, each in its group (state ``rows``), and the ``groups``."""
    changes = inflow.only if state == "rows" else Arrivals(per_s=inflow.only.per_s, keys=groups)
    return one_per_key(changes, inflow, state)


def _either(sides: tuple[Arrivals, ...]) -> Arrivals:
    """The rows of both tables, over the keys of the one that has more."""
    return Arrivals(per_s=sum(side.per_s for side in sides), keys=max(side.keys for side in sides))
