"""The topology of a single aggregation: a straight path from a source through stateless steps."""

from __future__ import annotations

from dataclasses import dataclass

from recount.declare.expression_types import columns_of, type_of
from recount.declare.expressions import Expression
from recount.declare.operators.nodes import KEY, Filter, SelectKey, Sink, Source, WindowedAggregate, WithFields
from recount.declare.schema import FieldType
from recount.declare.topology import Topology
from recount.declare.windows import TimeWindows
from recount.recompute.rules.value_rules import has_key_fields
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
    def key_type(self) -> FieldType:
        """The type of the grouping key."""
        return self.aggregate.fields[self.key]

    def given_type(self, name: str) -> FieldType:
        """The type of the values of the aggregate ``name``, a sum."""
        of = self.aggregate.aggregates[name].of
        given = None if of is None else type_of(of, self.aggregate.input.fields)
        assert given is not None, "refused at declaration"
        return given

    @property
    def needs_record_key(self) -> bool:
        """Whether records are grouped by the key they came with, so that one without a key is a bad record."""
        return self.key == KEY

    @property
    def reads_record_key(self) -> bool:
        """Whether the key that records came with matters to anything."""
        return self.needs_record_key or self.source.key in self._read() or has_key_fields(self.source)

    @property
    def columns_read(self) -> list[str]:
        """The declared fields that any expression of the flow or the event time reads, in declared order."""
        read = {self.source.topic.event_time} | self._read()
        assert self.source.topic.value is not None
        return [name for name in self.source.topic.value.fields if name in read]

    def _read(self) -> frozenset[str]:
        return frozenset().union(*map(columns_of, self._expressions()))

    def _expressions(self) -> list[Expression]:
        trees = [aggregate.of for aggregate in self.aggregate.aggregates.values() if aggregate.of is not None]
        for step in self.steps:
            match step:
                case Filter(predicate=predicate):
                    trees.append(predicate)
                case WithFields(added=added):
                    trees.extend(added.values())
                case SelectKey(by=by):
                    trees.append(by)
        return trees


def _not_recomputable(topology: Topology, given: str) -> NotRecomputable:
    return NotRecomputable(
        f"{topology.name} cannot be recomputed",
        given=given,
        expected="source, filter, with_fields, select_key, then count, sum, min or max over time windows, one sink",
        remedy="split the topology, or audit the parts that have this shape",
    )
