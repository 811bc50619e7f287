"""On which topics a record without a key is bad: "Values" of docs/semantics.md, followed down from each source."""

from __future__ import annotations

from recount.core.changelogs import ToTable
from recount.core.joins import StreamStreamJoin, StreamTableJoin
from recount.core.nodes import KEY, Node, Source, WindowedAggregate
from recount.core.processing import Process
from recount.core.topology import Topology


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
