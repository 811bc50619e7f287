"""Whose event time an operator goes by: what the declaration alone says of it, for every implementation alike."""

from __future__ import annotations

from collections.abc import Iterator

from recount.core.changelogs import Suppress, TableAggregate
from recount.core.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.core.nodes import Node, Source, WindowedAggregate
from recount.core.processing import Deduplicate, InOrder, Process

_JUDGES_TIME = (WindowedAggregate, StreamStreamJoin, Deduplicate, InOrder, Process)
"""Operators that let results go by their frontier, or refuse what comes too late."""


def waits_for(node: Node) -> tuple[Node, ...]:
    """The inputs by whose time an operator goes; a table only where its join has a grace."""
    return (node.left,) if isinstance(node, StreamTableJoin) and node.grace_ms is None else node.inputs


def topics_of(node: Node) -> frozenset[str]:
    """The source topics whose time an operator waits for."""
    if isinstance(node, Source):
        return frozenset({node.topic.name})
    return frozenset().union(*(topics_of(above) for above in waits_for(node)))


def delay_above_ms(node: Node) -> int:
    """How far behind the frontier the records can be that reach an operator: what the operators above wait for."""
    return max((delay_above_ms(above) + getattr(above, "delay_ms", 0) for above in waits_for(node)), default=0)


def judges_above(node: Node) -> Iterator[tuple[Node, int]]:
    """On each path up from an operator the first that judges time, and how much it and those between them wait for."""
    for above in waits_for(node):
        delay_ms = getattr(above, "delay_ms", 0)
        if isinstance(above, _JUDGES_TIME):
            yield above, delay_ms
        else:
            yield from ((judge, delay_ms + further_ms) for judge, further_ms in judges_above(above))


def records_from(node: Node) -> tuple[Node, ...]:
    """The inputs whose records leave an operator again, each at its own place in the log; all others are derived."""
    if isinstance(node, WindowedAggregate | StreamStreamJoin | TableTableJoin | TableAggregate):
        return ()
    return (node.left,) if isinstance(node, StreamTableJoin) else node.inputs


def refusing_above(node: Node) -> Iterator[Node]:
    """On each path on which records come to an operator the nearest above that refuses those without a key."""
    for above in node.inputs:
        yield from _refusing(above)


def _refusing(node: Node) -> Iterator[Node]:
    if isinstance(node, Deduplicate | Process):
        yield node
    else:
        for above in records_from(node):
            yield from _refusing(above)


def holds_back(node: Node) -> bool:
    """Whether an operator lets records go only when time has passed: others of their partition may overtake them."""
    if isinstance(node, StreamTableJoin):
        return node.grace_ms is not None
    return isinstance(node, Suppress | InOrder) or (isinstance(node, Deduplicate) and not node.partitioned)


def is_held_back(node: Node) -> bool:
    """Whether records come to an operator that one above has held back."""
    return any(map(_comes_late, node.inputs))


def _comes_late(node: Node) -> bool:
    return holds_back(node) or any(map(_comes_late, records_from(node)))
