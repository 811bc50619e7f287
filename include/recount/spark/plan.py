"""What the engine runs: a topology as straight paths from a source to its sinks."""

from __future__ import annotations

from dataclasses import dataclass

from recount.core.errors import Terminal
from recount.core.expression_types import columns_of
from recount.core.nodes import KEY, Filter, Node, SelectKey, Sink, Source, WindowedAggregate, WithFields
from recount.core.topology import Topology
from recount.core.windows import TimeWindows

Step = Filter | WithFields | SelectKey


AGGREGATES = ("count", "sum", "min", "max")
RESERVED = frozenset({"timestamp_ms", "generation", "batch", "revision"})
"""Columns that the engine adds to the results in its tables."""


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
        """The declared fields of the value that the steps and the aggregates read."""
        read = [step.predicate for step in self.steps if isinstance(step, Filter)]
        read += [tree for step in self.steps if isinstance(step, WithFields) for tree in step.added.values()]
        read += [step.by for step in self.steps if isinstance(step, SelectKey)]
        read += [aggregate.of for aggregate in self.aggregate.aggregates.values() if aggregate.of is not None]
        used = frozenset().union(*(columns_of(tree) for tree in read)) | {self.source.topic.event_time}
        assert self.source.topic.value is not None
        return [name for name in self.source.topic.value.fields if name in used]

    @property
    def uses_record_key(self) -> bool:
        """Whether records are grouped by their own key, so that one without a key is a bad record."""
        return self.aggregate.key == KEY


def plan_of(topology: Topology) -> AggregationPlan:
    """The plan of ``topology``; raises ``NotExpressible`` naming the operator that the engine does not run."""
    if len(topology.sinks) != 1 or topology.actions:
        raise _refusal(topology, f"{len(topology.sinks)} sinks, {len(topology.actions)} actions", "one sink, no action")
    [sink] = topology.sinks
    aggregate = sink.input
    windows = aggregate.windows if isinstance(aggregate, WindowedAggregate) else None
    if not isinstance(aggregate, WindowedAggregate) or not isinstance(windows, TimeWindows):
        raise _refusal(topology, str(aggregate), "an aggregation over tumbling or hopping windows before the sink")
    if aggregate.emission.kind not in ("final", "each batch"):
        raise _refusal(topology, f"emit {aggregate.emission.kind}", "emission final or each batch")
    steps: list[Step] = []
    node: Node = aggregate.input
    while isinstance(node, Filter | WithFields | SelectKey):
        steps.insert(0, node)
        node = node.input
    if not isinstance(node, Source):
        raise _refusal(topology, str(node), "filter, with_fields or select_key between the source and the window")
    results = aggregate.aggregates
    unknown = [str(each) for each in results.values() if each.kind not in AGGREGATES or each.where is not None]
    if unknown:
        raise _refusal(topology, ", ".join(unknown), f"aggregates among {', '.join(AGGREGATES)}")
    taken = sorted(RESERVED & {aggregate.key, *results})
    if taken:
        raise _refusal(topology, ", ".join(taken), f"results not called {', '.join(sorted(RESERVED))}")
    return AggregationPlan(
        topology=topology, source=node, steps=tuple(steps), aggregate=aggregate, windows=windows, sink=sink
    )


def _refusal(topology: Topology, given: str, expected: str) -> NotExpressible:
    return NotExpressible(
        f"the Spark engine does not run {topology.name}",
        given=given,
        expected=expected,
        remedy="test it with recount.core's interpreter, or split it into topologies that the engine runs",
    )
