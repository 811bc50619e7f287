"""A topology with a longer grace, to be estimated: its declaration is made anew, and nothing else changes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

from recount.core.joins import StreamStreamJoin
from recount.core.nodes import Node, WindowedAggregate
from recount.core.processing import InOrder
from recount.core.topology import Topology
from recount.core.windows import SessionWindows, SlidingWindows, TimeWindows

_INPUTS = {"input", "inputs", "left", "right"}


def lengthened(topology: Topology, nodes: Collection[Node], added_ms: int) -> Topology:
    """``topology`` with ``added_ms`` more grace in each of ``nodes``, which have one."""
    made: dict[Node, Node] = {}

    def anew(node: Node) -> Any:
        if node not in made:
            changed: dict[str, Any] = {}
            for name in _INPUTS & {field.name for field in fields(node)}:
                above = getattr(node, name)
                changed[name] = tuple(map(anew, above)) if isinstance(above, tuple) else anew(above)
            longer = _longer(node, added_ms) if node in nodes else {}
            made[node] = replace(node, **changed, **longer)
        return made[node]

    return replace(
        topology, sinks=[anew(sink) for sink in topology.sinks], actions=[anew(end) for end in topology.actions]
    )


def _longer(node: Node, added_ms: int) -> dict[str, Any]:
    match node:
        case StreamStreamJoin() | InOrder():
            return {"grace_ms": node.grace_ms + added_ms}
        case WindowedAggregate(windows=TimeWindows() | SlidingWindows() | SessionWindows() as windows):
            return {"windows": replace(windows, grace_ms=windows.grace_ms + added_ms)}
    raise AssertionError(f"{node} judges nothing by a grace")
