"""The shape of topology that tasks can reduce to partials: a straight path to one aggregation over time windows."""

from __future__ import annotations

from dataclasses import dataclass

from recount.core.errors import Terminal
from recount.core.fields_read import columns_read
from recount.core.nodes import KEY, Filter, Node, SelectKey, Sink, Source, WindowedAggregate, WithFields
from recount.core.topology import Topology
from recount.core.windows import TimeWindows

Step = Filter | WithFields | SelectKey


AGGREGATES = ("count", "sum", "min", "max")


class NotExpressible(Terminal):
    """A topology that the Spark engine does not run."""


@dataclass(frozen=True, kw_only=True)
class AggregationPlan:
    """Source, stateless steps, one aggregation over time windows, one sink."""

    topology: Topology
    source: Source
    steps: tuple[Step, ...]
    aggregate: WindowedAggregate
    windows: TimeWindows
    sink: Sink

    @property
    def columns(self) -> list[str]:
        """The declared fields of the value that the steps and the aggregates read, and event time."""
        return columns_read(self.topology, self.source.topic)

    @property
    def uses_record_key(self) -> bool:
        """Whether records are grouped by their own key, so that one without a key is a bad record."""
        return self.aggregate.key == KEY


def plan_of(topology: Topology) -> AggregationPlan | None:
    """The plan of ``topology``; None where it has another shape: more than one sink, other operators or windows."""
    if len(topology.sinks) != 1 or topology.actions:
        return None
    [sink] = topology.sinks
    aggregate = sink.input
    windows = aggregate.windows if isinstance(aggregate, WindowedAggregate) else None
    if not isinstance(aggregate, WindowedAggregate) or not isinstance(windows, TimeWindows):
        return None
    if aggregate.emission.kind not in ("final", "each batch"):
        return None
    if any(each.kind not in AGGREGATES or each.where is not None for each in aggregate.aggregates.values()):
        return None
    steps: list[Step] = []
    node: Node = aggregate.input
    while isinstance(node, Filter | WithFields | SelectKey):
        steps.insert(0, node)
        node = node.input
    if not isinstance(node, Source):
        return None
    return AggregationPlan(
        topology=topology, source=node, steps=tuple(steps), aggregate=aggregate, windows=windows, sink=sink
    )
