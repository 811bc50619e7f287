"""Checks at declaration: what may stand above and below ``in_order``, final results, and lookups by event time."""

from collections.abc import Iterable, Iterator
from typing import Literal

from recount.declare.expressions import Column
from recount.declare.operators.joins import AsOf, StreamStreamJoin, StreamTableJoin
from recount.declare.operators.nodes import (
    WINDOW_END,
    WINDOW_START,
    Filter,
    Node,
    SelectKey,
    Sink,
    Source,
    WindowedAggregate,
    WithFields,
)
from recount.declare.operators.processing import Deduplicate, InOrder, Process
from recount.declare.operators.stateless import FlatMap, Foreach, Merge, Peek, Repartition, Select, Through
from recount.declare.windows import SessionWindows
from recount.runtime.errors import require
from recount.runtime.times import Duration, milliseconds

_ROW_BY_ROW = (Filter, WithFields, SelectKey, Select, FlatMap, Peek, Repartition, Through, Merge)
_SAME_KEY = (Filter, WithFields, Select, Peek, Repartition, Through)
_FOLLOW = (*_SAME_KEY, WindowedAggregate, Sink, Foreach)
BY_DEFAULT: Literal["default"] = "default"
DEFAULT_HISTORY = "400 d"
"""As long as ``Topology.retention``: what a lookup can still reach does not outlive the results that it made."""
_IN_PLACE = (Filter, WithFields, SelectKey, Select, FlatMap, Peek, Repartition, Through)


def require_order(nodes: Iterable[Node]) -> None:
    """Refuse ``in_order`` over rows without a place in the log, and timers below it."""
    for node in nodes:
        if isinstance(node, InOrder):
            elsewhere = next(_made_elsewhere(node.input), None)
            require(
                elsewhere is None,
                "in-order-of-derived-records",
                given=f"the rows of {elsewhere}, which derives rows or holds records back",
            )
        if isinstance(node, Process) and node.on_timer is not None:
            require(not _is_below(node.input), "timers-of-derived-records", given="timers, below in_order", node=node)


def leaves_at_once(node: Node) -> bool:
    """Whether each row leaves ``node`` in the batch that reads its record, at its own place in the log."""
    return next(_made_elsewhere(node), None) is None


def _made_elsewhere(node: Node) -> Iterator[Node]:
    """The nearest operators from ``node`` up of which a row does not leave at once at its own place in the log."""
    match node:
        case Source():
            return
        case Deduplicate(partitioned=True) | Process(on_timer=None) | StreamTableJoin(grace_ms=None):
            yield from _made_elsewhere(node.inputs[0])
        case _ if isinstance(node, _ROW_BY_ROW):
            for above in node.inputs:
                yield from _made_elsewhere(above)
        case _:
            yield node


def _is_below(node: Node) -> bool:
    return isinstance(node, InOrder) or any(map(_is_below, node.inputs))


def can_be_withdrawn(node: Node) -> bool:
    """Whether a final result that leaves ``node`` can be replaced by another one, or by a deletion.

    A session can be taken in by a longer one after it has left, and windows over sessions change with them.
    """
    windowed = _windowed(node)
    return windowed is not None and windowed.emission.kind == "final" and _follows_sessions(windowed)


def _windowed(node: Node) -> WindowedAggregate | None:
    """The aggregation whose results leave ``node``, as they are or changed one by one."""
    while isinstance(node, _SAME_KEY):
        node = node.input
    return node if isinstance(node, WindowedAggregate) else None


def _follows_sessions(node: WindowedAggregate) -> bool:
    above = _windowed(node.input)
    return isinstance(node.windows, SessionWindows) or (above is not None and _follows_sessions(above))


def require_followed(nodes: Iterable[Node]) -> None:
    """Refuse what cannot take back what it has made of a result that is withdrawn, and sinks that cannot tell which."""
    for node in nodes:
        if isinstance(node, Sink | Through) and can_be_withdrawn(node.input):
            lost = {WINDOW_START, WINDOW_END} - node.fields.keys()
            require(
                not lost,
                "withdrawn-without-their-window",
                given=f"results that can be withdrawn after they have left, without {' and '.join(sorted(lost))}",
                node=node,
            )
        if isinstance(node, WithFields | Select) and can_be_withdrawn(node.input):
            anew = sorted(_computed(node) & {node.key, WINDOW_START, WINDOW_END})
            require(
                not anew,
                "withdrawn-under-another-key",
                given=f"{', '.join(anew)} computed again, of results that can be withdrawn after they have left",
                node=node,
            )
        for above in node.inputs:
            require(
                isinstance(node, _FOLLOW) or not can_be_withdrawn(above),
                "withdrawn-to-an-operator",
                given=f"{above}, of which a result can be withdrawn after it has left",
                node=node,
            )


def _computed(node: WithFields | Select) -> set[str]:
    """The fields that do not pass as they are."""
    made = node.added if isinstance(node, WithFields) else node.chosen
    return {name for name, tree in made.items() if not (isinstance(tree, Column) and tree.name == name)}


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
                "history-without-a-bound",
                given=f"the rows of {node.left}, of which the log does not tell in which batch they come",
                node=node,
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
    return isinstance(node, _IN_PLACE) and _is_held_back(node.input)


def _is_paired(node: Node) -> bool:
    """Whether pairs leave ``node``, each in the batch that reads the later of its records."""
    match node:
        case StreamStreamJoin(kind="inner", left=left, right=right):
            return leaves_at_once(left) and leaves_at_once(right)
        case StreamTableJoin(left=left, grace_ms=None):
            return _is_paired(left)
    return isinstance(node, _IN_PLACE) and _is_paired(node.input)
