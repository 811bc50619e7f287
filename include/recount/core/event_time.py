"""Whose event time an operator goes by: what the declaration alone says of it, for every implementation alike."""

from __future__ import annotations

from collections.abc import Iterator

from recount.core.joins import StreamStreamJoin, StreamTableJoin
from recount.core.nodes import Node, Source, WindowedAggregate
from recount.core.processing import Deduplicate, Process

_JUDGES_TIME = (WindowedAggregate, StreamStreamJoin, Deduplicate, Process)
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


def is_held_back(node: Node) -> bool:
    """Whether an operator above lets records go only when time has passed."""
    return any(
        (isinstance(above, Deduplicate) and not above.partitioned)
        or (isinstance(above, StreamTableJoin) and above.grace_ms is not None)
        or is_held_back(above)
        for above in waits_for(node)
    )
