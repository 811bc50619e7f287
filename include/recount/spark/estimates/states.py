"""Which formula belongs to which state: every state that an operator of the engine declares has one."""

from __future__ import annotations

from recount.core.changelogs import Suppress, TableAggregate, TableFilter, ToTable
from recount.core.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.core.nodes import Node, WindowedAggregate
from recount.core.processing import Deduplicate, InOrder, Process
from recount.spark.estimates import joined, remembering, windowed
from recount.spark.estimates.inflow import Inflow
from recount.spark.estimates.kept import Kept, one_per_key, passing
from recount.spark.estimates.workload import Workload, key_name

CLOCK = "time of "
"""How the engine names the state in which an operator remembers how far time has come."""


def kept_by(node: Node, state: str, inflow: Inflow, given: Workload) -> Kept:
    """What the state called ``state`` of ``node`` keeps."""
    if state.startswith(CLOCK):
        return _clock(inflow)
    match node, state:
        case WindowedAggregate(), "windows":
            return windowed.merged_windows(node, inflow)
        case WindowedAggregate(), "own":
            return windowed.own_sessions(node, inflow)
        case WindowedAggregate(), "records":
            return windowed.kept_records(node, inflow)
        case WindowedAggregate(), "results":
            return windowed.results(node, inflow)
        case StreamStreamJoin(), "left" | "right":
            return joined.joined_stream(node, inflow, ("left", "right").index(state))
        case StreamTableJoin(), "table":
            return joined.joined_table(node, inflow)
        case StreamTableJoin(), "waiting":
            return joined.waiting_for_table(node, inflow)
        case TableTableJoin(), _:
            return joined.joined_tables(node, inflow, state)
        case TableAggregate(), _:
            return joined.grouped_rows(node, inflow, state, given.keys_of(key_name(node)))
        case ToTable() | TableFilter(), _:
            return one_per_key(inflow.only, inflow, "keys")
        case Suppress(), _:
            return remembering.held_updates(node, inflow)
        case Deduplicate(), "winners":
            return remembering.winners(node, inflow)
        case Deduplicate(), "waiting":
            return remembering.undecided(node, inflow)
        case InOrder(), _:
            return passing(inflow.only.per_s, node.grace_ms, inflow, "records")
        case Process(), _:
            return one_per_key(inflow.only, inflow, "keys that something is remembered of (its size is not counted)")
    raise AssertionError(f"no formula for the state {state!r} of {node}")


def _clock(inflow: Inflow) -> Kept:
    rows = inflow.source_partitions + 1
    return Kept(rows=rows, changed=rows, formula=f"{inflow.source_partitions} partitions + 1 frontier")
