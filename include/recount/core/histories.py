"""How far back lookups as of the event's time look, and for which rows that can be bounded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from recount.core.durations import Duration, milliseconds
from recount.core.errors import require
from recount.core.in_order import leaves_at_once
from recount.core.joins import AsOf, StreamStreamJoin, StreamTableJoin
from recount.core.nodes import Filter, Node, SelectKey, WithFields
from recount.core.processing import Deduplicate, InOrder
from recount.core.stateless import FlatMap, Peek, Repartition, Select, Through

BY_DEFAULT: Literal["default"] = "default"
DEFAULT_HISTORY = "400 d"
"""As long as ``Topology.retention``: what a lookup can still reach does not outlive the results that it made."""

_ROW_BY_ROW = (Filter, WithFields, SelectKey, Select, FlatMap, Peek, Repartition, Through)


def history_ms_of(history: Duration | None, left: Node, as_of: AsOf) -> int | None:
    """``history`` as declared for a lookup of the rows of ``left``, in milliseconds; None: unlimited.

    By default 400 days where a history can be bounded, and else unlimited.
    """
    if history is None:
        return None
    if history != BY_DEFAULT:
        return milliseconds(history, "history")
    return milliseconds(DEFAULT_HISTORY) if as_of == "event" and can_be_bounded(left) else None


def require_histories(nodes: Iterable[Node]) -> None:
    """Refuse a history for rows of which nothing tells in which batch they come to the lookup."""
    for node in nodes:
        if isinstance(node, StreamTableJoin) and node.history_ms is not None:
            require(
                can_be_bounded(node.left),
                f"history of {node}",
                given=f"the rows of {node.left}, of which the log does not tell in which batch they come",
                expected="records of topics, in order or first ones too, or pairs of an inner join; filters and maps "
                "may stand between",
                remedy="leave the history out: it is unlimited then; or look the row up further up",
            )


def can_be_bounded(node: Node) -> bool:
    """Whether log and batch ledger tell in which batch each row leaves ``node``."""
    return leaves_at_once(node) or _is_held_back(node) or _is_paired(node)


def _is_held_back(node: Node) -> bool:
    """Whether records that were judged, and held back until time had passed, leave ``node``."""
    match node:
        case InOrder():
            return True
        case Deduplicate(input=above):
            return leaves_at_once(above) or _is_held_back(above)
        case StreamTableJoin(left=left, grace_ms=None):
            return _is_held_back(left)
    return isinstance(node, _ROW_BY_ROW) and _is_held_back(node.input)


def _is_paired(node: Node) -> bool:
    """Whether pairs leave ``node``, each in the batch that reads the later of its records."""
    match node:
        case StreamStreamJoin(kind="inner", left=left, right=right):
            return leaves_at_once(left) and leaves_at_once(right)
        case StreamTableJoin(left=left, grace_ms=None):
            return _is_paired(left)
    return isinstance(node, _ROW_BY_ROW) and _is_paired(node.input)
