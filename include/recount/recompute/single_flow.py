"""The topology of a single aggregation: a straight path from a source through stateless steps.

A record without a key to be grouped by does not advance stream time, so a pass that follows stream time must know it.
Where nulls of certain source fields say it, one pass over the records is enough; otherwise Spark evaluates the steps
first and a second pass follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recount.declare.expression_types import columns_of, type_of
from recount.declare.expressions import Call, Column, Expression, Literal
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


Nulls = frozenset[str]
"""Columns of the source: a value is null exactly when one of them is. None in its place: that is not known."""


def keyless_when(flow: Flow) -> Nulls | None:
    """The source's columns of which a null leaves a good record without a key; None where only the steps can tell."""
    # imports Spark, which a question about the rows of a table does not need
    from recount.recompute.rules.range_rules import can_be

    known: dict[str, Nulls | None] = {name: frozenset({name}) for name in flow.source.fields}
    if flow.needs_record_key:
        known[flow.key] = frozenset()  # without one the record is bad
    is_filtered = False
    for step in flow.steps:
        match step:
            case Filter():
                is_filtered = True
            case WithFields(added=added):
                known |= {name: null_when(tree, known) for name, tree in added.items()}
            case SelectKey(key=key, by=by):
                known[key] = null_when(by, known)
    nulls = known[flow.key]
    # a record that is filtered out, or set aside, advances stream time, key or no key
    is_set_aside = any(can_be(node) for node in (*flow.steps, flow.aggregate))
    return None if nulls and (is_filtered or is_set_aside) else nulls


def null_when(tree: Expression, known: Mapping[str, Nulls | None]) -> Nulls | None:
    """The source's columns of which a null makes ``tree`` null, given those of the columns that it reads."""
    match tree:
        case Column(name):
            return known[name]
        case Literal(value):
            return None if value is None else frozenset()
        case Call("upper" | "lower", (argument,)):
            return null_when(argument, known)
        case Call("coalesce", arguments):
            never: Nulls = frozenset()
            return never if never in [null_when(argument, known) for argument in arguments] else None
    return None


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
