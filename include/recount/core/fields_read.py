"""Which fields of an operator's rows anybody below looks at: a declaration's question, asked by each implementation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from recount.core.expression_types import columns_of
from recount.core.expressions import Expression
from recount.core.nodes import Filter, Node, SelectKey, Source, WindowedAggregate, WithFields
from recount.core.processing import InOrder
from recount.core.stateless import Repartition, Select
from recount.core.topics import Topic
from recount.core.topology import Topology

Fields = frozenset[str]


def fields_read(topology: Topology) -> Mapping[Node, Fields]:
    """For every operator those of its ``fields`` that a result, a function or a fate can depend on."""
    found: dict[Node, Fields] = dict.fromkeys(topology.nodes(), frozenset())
    for node in reversed(list(topology.nodes())):
        for above in node.inputs:
            found[above] |= _read(node, found[node]) & above.fields.keys()
    return found


def columns_read(topology: Topology, topic: Topic) -> list[str]:
    """The declared fields of the values of ``topic`` that are looked at, event time among them, in declared order."""
    assert topic.value is not None, "checked by Source"
    found = fields_read(topology)
    sources = [node for node in found if isinstance(node, Source) and node.topic.name == topic.name]
    read = frozenset({topic.event_time}).union(*(found[source] for source in sources))
    return [name for name in topic.value.fields if name in read]


def _read(node: Node, below: Fields) -> Fields:
    """The fields that ``node`` reads of its inputs, for the sake of its own rows' fields ``below`` among others."""
    match node:
        case Repartition():
            return below
        case InOrder():
            return below | {node.key}  # for the late ledger
        case Filter(predicate=predicate):
            return below | columns_of(predicate)
        case WithFields(added=added):
            return below - added.keys() | _columns(added.values())
        case SelectKey(key=key, by=by):
            return below - {key} | columns_of(by)
        case Select(chosen=chosen):
            return frozenset({node.key}) | _columns(chosen.values())
        case WindowedAggregate(aggregates=aggregates):
            trees = [tree for each in aggregates.values() for tree in (each.of, each.where) if tree is not None]
            return frozenset({node.key}) | _columns(trees)
    return frozenset(name for above in node.inputs for name in above.fields)


def _columns(trees: Iterable[Expression]) -> Fields:
    return frozenset().union(*map(columns_of, trees))
