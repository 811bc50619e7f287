"""The fields of a topic that the recompute must have: others are null in its rows, and cost nothing.

Found otherwise than by the stream, and never fewer: a field that the stream passes over by mistake must not be missing
here too. And the topics on which a record without a key is bad: "Values" of docs/semantics.md, followed down from each
source.
"""

from __future__ import annotations

from collections.abc import Iterator

from recount.core.changelogs import ToTable
from recount.core.expression_types import columns_of
from recount.core.expressions import Expression
from recount.core.joins import StreamStreamJoin, StreamTableJoin
from recount.core.nodes import KEY, Filter, Node, SelectKey, Source, WindowedAggregate, WithFields
from recount.core.processing import Process
from recount.core.stateless import Repartition, Select
from recount.core.topology import Topology


def fields_needed(topology: Topology, read: Source) -> list[str]:
    """Of the declared fields of the topic of ``read``, in their order, those that anything can depend on.

    All of them where whole rows reach an operator that may look at each field. Elsewhere those of which any expression
    of the topology has the name, wherever it stands, and the event time.
    """
    topic = read.topic
    assert topic.value is not None
    nodes = list(topology.nodes())
    sources = [node for node in nodes if isinstance(node, Source) and node.topic.name == topic.name]
    if any(_reaches_whole(topology, source) for source in sources):
        return list(topic.value.fields)
    named = {topic.event_time, *(node.key for node in nodes)}
    named |= {name for node in nodes for tree in _expressions(node) for name in columns_of(tree)}
    return [name for name in topic.value.fields if name in named]


def _reaches_whole(topology: Topology, node: Node) -> bool:
    """Whether an operator is given the rows of ``node`` that may look at all their fields."""
    for reader, _ in topology.readers()[node]:
        match reader:
            case Select() | WindowedAggregate():
                continue
            case Filter() | SelectKey() | WithFields() | Repartition():
                if _reaches_whole(topology, reader):
                    return True
            case _:
                return True
    return False


def _expressions(node: Node) -> Iterator[Expression]:
    match node:
        case Filter(predicate=predicate):
            yield predicate
        case SelectKey(by=by):
            yield by
        case WithFields(added=trees) | Select(chosen=trees):
            yield from trees.values()
        case WindowedAggregate(aggregates=aggregates):
            for one in aggregates.values():
                yield from (tree for tree in (one.of, one.where) if tree is not None)


def topics_that_need_keys(topology: Topology) -> frozenset[str]:
    """The topics whose own key comes unchanged to an operator that can do nothing without it."""
    readers = topology.readers()
    needing: set[str] = set()
    for source in readers:
        if not isinstance(source, Source) or source.key != KEY:
            continue
        going = list(readers[source])
        while going:
            node, port = going.pop()
            if _needs_a_key(node, port):
                needing.add(source.topic.name)
            elif len(node.inputs) == 1 and node.key == KEY:
                going += readers[node]
    return frozenset(needing)


def _needs_a_key(node: Node, port: int) -> bool:
    """Whether ``node`` drops a record without a key that comes in by its input number ``port``.

    An outer side of a join lets it go on alone, a lookup by an expression or of a left join without a row.
    """
    match node:
        case WindowedAggregate() | ToTable() | Process():
            return True
        case StreamStreamJoin(kind=kind):
            return kind == "inner" or (kind == "left" and port == 1)
        case StreamTableJoin(kind=kind, by=by):
            return port == 0 and kind == "inner" and by is None
    return False
