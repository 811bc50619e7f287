"""Which rows can be replaced by later ones, and what that means for functions over them."""

from __future__ import annotations

from recount.core.changelogs import TableAggregate
from recount.core.event_time import is_held_back
from recount.core.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.core.nodes import Node, Source, WindowedAggregate
from recount.core.windows import GlobalWindow, SessionWindows, TimeWindows


def can_be_revised(node: Node) -> bool:
    """Whether a row without a place in the log that leaves ``node`` can replace an earlier one of its order."""
    match node:
        case WindowedAggregate() | TableAggregate() | TableTableJoin():
            return True
        case Source() | StreamStreamJoin():
            return False
        case StreamTableJoin(left=left):
            return can_be_revised(left)
    return any(can_be_revised(above) for above in node.inputs)


def tries_folds(node: WindowedAggregate) -> bool:
    """Whether the folds of ``node`` are tried with each record as it is read, so that one that raises is set aside.

    Not where a window's records are known only later (sliding, last n, sessions that are cut), nor where rows were held
    back or can be replaced: docs/semantics.md, "Functions that raise".
    """
    if all(aggregate.fold is None for aggregate in node.aggregates.values()):
        return False
    if is_held_back(node) or can_be_revised(node.input):
        return False
    match node.windows:
        case TimeWindows() | GlobalWindow():
            return True
        case SessionWindows(max_duration_ms=None):
            return node.emission.kind != "each record"
    return False
