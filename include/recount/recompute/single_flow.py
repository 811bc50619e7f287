"""The topology of a single aggregation: a straight path from a source through stateless steps."""

from __future__ import annotations

from dataclasses import dataclass

from recount.declare.expression_types import type_of
from recount.declare.operators.nodes import (
    WINDOW_END,
    WINDOW_START,
    Filter,
    SelectKey,
    Sink,
    Source,
    WindowedAggregate,
    WithFields,
)
from recount.declare.topology import Topology
from recount.declare.windows import TimeWindows
from recount.recompute.rules.number_rules import is_carried_apart
from recount.runtime.errors import Terminal

Step = Filter | WithFields | SelectKey
_KINDS = frozenset({"count", "sum", "min", "max"})


class NotRecomputable(Terminal):
    """A topology with an operator that the recompute does not know."""


@dataclass(frozen=True, kw_only=True)
class Flow:
    """One source, its stateless steps in order, the aggregation and its sink."""

    topology: Topology
    source: Source
    steps: tuple[Step, ...]
    aggregate: WindowedAggregate
    windows: TimeWindows
    sink: Sink

    @classmethod
    def of(cls, topology: Topology) -> Flow:
        """The flow of ``topology``; raises ``NotRecomputable`` naming the operator that stands in the way."""
        if len(topology.sinks) != 1:
            raise _not_recomputable(topology, f"{len(topology.sinks)} sinks")
        sink = topology.sinks[0]
        aggregate = sink.input
        if not isinstance(aggregate, WindowedAggregate) or not isinstance(aggregate.windows, TimeWindows):
            raise _not_recomputable(topology, str(aggregate))
        for one in aggregate.aggregates.values():
            if one.kind not in _KINDS or one.where is not None:
                raise _not_recomputable(topology, str(one))
        steps: list[Step] = []
        node = aggregate.input
        while isinstance(node, Filter | WithFields | SelectKey):
            steps.insert(0, node)
            node = node.input
        if not isinstance(node, Source):
            raise _not_recomputable(topology, str(node))
        return cls(
            topology=topology,
            source=node,
            steps=tuple(steps),
            aggregate=aggregate,
            windows=aggregate.windows,
            sink=sink,
        )

    @property
    def key(self) -> str:
        """The column of the grouping key."""
        return self.aggregate.key

    @property
    def group(self) -> list[str]:
        """The columns that identify a result."""
        return [self.key, WINDOW_START, WINDOW_END]

    @property
    def sums_apart(self) -> list[str]:
        """The sums that can have something ``BEYOND`` their own column."""
        found = {name: one.of for name, one in self.aggregate.aggregates.items() if one.kind == "sum"}
        given = {name: None if of is None else type_of(of, self.aggregate.input.fields) for name, of in found.items()}
        return [name for name, kind in given.items() if kind is not None and is_carried_apart(kind)]


def _not_recomputable(topology: Topology, given: str) -> NotRecomputable:
    return NotRecomputable(
        f"{topology.name} cannot be recomputed",
        given=given,
        expected="source, filter, with_fields, select_key, then count, sum, min or max over time windows, one sink",
        remedy="split the topology, or audit the parts that have this shape",
    )


_KEPT_AS_PARTIALS = ("final", "each batch")
"""Emissions for which the stream keeps partial aggregates, which the incremental audit reads for causes."""


def flow_of(topology: Topology) -> Flow | None:
    """The single aggregation over time windows that ``topology`` is; None where it has another shape.

    It decides which of the two audits a topology gets.
    """
    try:
        flow = Flow.of(topology)
    except NotRecomputable:
        return None
    is_short = not topology.actions and flow.aggregate.emission.kind in _KEPT_AS_PARTIALS
    return flow if is_short else None
