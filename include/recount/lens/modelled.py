"""The topologies that can be looked at: one source, stateless steps, one windowed aggregation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recount.core.errors import Terminal
from recount.core.nodes import Filter, Node, SelectKey, Sink, Source, WindowedAggregate, WithFields
from recount.core.stateless import FlatMap, Peek, Repartition, Select
from recount.core.topology import Topology
from recount.core.windows import GlobalWindow, LastN, SessionWindows, SlidingWindows, TimeWindows

_STATELESS = (Filter, WithFields, SelectKey, Select, FlatMap, Repartition, Peek)
"""``Foreach`` is a ``Peek``."""


class NoModel(Terminal):
    """A topology with an operator of which there is no model of the other engines."""


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """The way of a record from ``source`` over ``steps`` to ``aggregate``; what comes below it is not looked at.

    Actions are no steps: nothing is done to the world when a log is looked at.
    """

    topology: Topology
    source: Source
    steps: tuple[Filter | WithFields | SelectKey | Select | FlatMap | Repartition, ...]
    aggregate: WindowedAggregate

    @classmethod
    def of(cls, topology: Topology) -> Modelled:
        """The way through ``topology``; raises ``NoModel`` with the name of the operator that has no model."""
        aggregates = [node for node in topology.nodes() if isinstance(node, WindowedAggregate)]
        for node in topology.nodes():
            if node not in aggregates and not isinstance(node, (Source, Sink, *_STATELESS)):
                raise _no_model(topology, str(node))
        if len(aggregates) != 1:
            raise _no_model(topology, f"{len(aggregates)} windowed aggregations")
        [aggregate] = aggregates
        way = tuple(reversed(list(_above(aggregate))))
        source, steps = way[0], way[1:]
        assert isinstance(source, Source), "no other operator is without an input"
        kept = [step for step in steps if not isinstance(step, Peek)]
        found = cls(topology=topology, source=source, steps=tuple(kept), aggregate=aggregate)  # type: ignore[arg-type]
        objection = found._objection()
        if objection is not None:
            raise _no_model(topology, objection)
        return found

    def _objection(self) -> str | None:
        if isinstance(self.aggregate.windows, GlobalWindow | LastN):
            return f"{self.aggregate}: no record is late for it in any engine"
        if isinstance(self.aggregate.windows, SlidingWindows):
            return str(self.aggregate)
        if isinstance(self.aggregate.windows, SessionWindows) and self.aggregate.windows.max_duration_ms is not None:
            return f"{self.aggregate.windows}: neither of the others has a longest duration of sessions"
        keyed_again = [number for number, step in enumerate(self.steps) if isinstance(step, SelectKey)]
        spread = [number for number, step in enumerate(self.steps) if isinstance(step, Repartition)]
        if spread and (len(spread) > 1 or spread[0] < max(keyed_again, default=0)):
            return f"{self.steps[spread[0]]}, after which records are spread once more"
        if any(source.topic != self.source.topic for source in self.topology.sources):
            return f"{len(self.topology.sources)} source topics"
        return None

    @property
    def windows(self) -> TimeWindows | SessionWindows:
        """The windows of the aggregation."""
        assert isinstance(self.aggregate.windows, TimeWindows | SessionWindows), "checked by of"
        return self.aggregate.windows

    @property
    def is_spread_by_key(self) -> bool:
        """Whether Kafka Streams would send the records through a repartition topic."""
        return any(isinstance(step, SelectKey | Repartition) for step in self.steps)

    @property
    def declared_tasks(self) -> int | None:
        """Into how many partitions they would be spread; None: as many as the source topic has."""
        return next((step.partitions for step in self.steps if isinstance(step, Repartition)), None)


def _above(node: Node) -> Iterator[Node]:
    while node.inputs:
        [node] = node.inputs
        yield node


def _no_model(topology: Topology, given: str) -> NoModel:
    return NoModel(
        f"the lens has no model of {topology.name}",
        given=given,
        expected="one source topic, stateless operators, and one aggregation over tumbling, hopping or session windows",
        remedy="look at a stream of this shape; recount describe shows the operators of this one",
    )
