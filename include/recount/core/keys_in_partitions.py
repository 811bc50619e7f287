"""What it means to a topology that the records of one key lie in several partitions of a topic.

It happens where partitions are added to a topic, or where a second producer assigns keys to partitions in another way.
The rule is in docs/semantics.md, "A key in several partitions".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recount.core.changelogs import Suppress, TableAggregate, TableFilter, ToTable
from recount.core.errors import Terminal
from recount.core.expressions import Column
from recount.core.joins import StreamStreamJoin, StreamTableJoin
from recount.core.nodes import Node, SelectKey, Source, WindowedAggregate, WithFields
from recount.core.processing import Deduplicate, InOrder, Process
from recount.core.revisions import can_be_revised
from recount.core.stateless import Select
from recount.core.topology import Topology
from recount.core.windows import GlobalWindow


def in_several_partitions(topology: Topology, topic: str) -> list[str]:
    """Of each operator that reads ``topic`` by its record key, and to which order means something, what follows."""
    readers = topology.readers()
    return [f"{node}: {said}" for node in readers for said in _said(node, readers) if topic in keyed_by(node.inputs[0])]


def folds_by_key(node: WindowedAggregate) -> bool:
    """Whether a reduce or fold takes all values that a record key of one topic ever had, in the order of the log.

    It cannot take in one that would come before those that it has taken: ``out_of_order``.
    """
    folds = any(one.fold is not None for one in node.aggregates.values())
    of_one_topic = isinstance(node.windows, GlobalWindow) and len(keyed_by(node.input)) == 1
    return folds and of_one_topic and not can_be_revised(node.input)


def out_of_order(node: WindowedAggregate, key: Any, before: str, now: str) -> Terminal:
    """The error of a ``node`` that ``folds_by_key``: the record ``now`` would come before one that was taken."""
    return Terminal(
        f"{node}: records of one key come from two partitions, and a later one is in the lower partition",
        given=f"key {key!r} at {before}, then at {now}",
        expected="every key in one partition: reduce and fold take values by partition and offset",
        remedy="put in_order(grace=...) before it, so that event time is their order, and reset the stream",
    )


def keyed_by(node: Node) -> frozenset[str]:
    """The topics whose record key is the key of what leaves ``node``, and whose records leave it as they are read."""
    match node:
        case Source(topic=topic):
            return frozenset({topic.name})
        case InOrder() | Suppress() | TableAggregate() | StreamStreamJoin() | Deduplicate(partitioned=False):
            return frozenset()
        case WindowedAggregate(windows=windows) if not isinstance(windows, GlobalWindow):
            return frozenset()
        case SelectKey(by=by, input=above) if not (isinstance(by, Column) and by.name in _names_of_key(above)):
            return frozenset()
        case WithFields(added=added) if node.key in added:
            return frozenset()
        case Process() if node.on_timer is not None:  # rows that a timer makes come when time has passed
            return frozenset()
        case StreamTableJoin(left=left, grace_ms=grace_ms):
            return keyed_by(left) if grace_ms is None else frozenset()
    return frozenset().union(*map(keyed_by, node.inputs))


def _names_of_key(node: Node) -> frozenset[str]:
    like_it = node.topic.fields_like_the_key if isinstance(node, Source) else frozenset()
    return frozenset({node.key}) | like_it


def _is_looked_up_by_time(table: Node, readers: Mapping[Node, Sequence[tuple[Node, int]]]) -> bool:
    """Whether nobody reads ``table``, or its rows filtered and mapped, but lookups as of the event's time."""
    return all(
        _is_looked_up_by_time(reader, readers)
        if isinstance(reader, TableFilter | WithFields | Select)
        else isinstance(reader, StreamTableJoin) and port == 1 and reader.as_of == "event"
        for reader, port in readers[table]
    )


def _said(node: Node, readers: Mapping[Node, Sequence[tuple[Node, int]]]) -> Iterator[str]:
    match node:
        case ToTable(versioned=False) if not _is_looked_up_by_time(node, readers):
            yield "its row is the one that was read last; of one batch, the one of the later event time"
        case Deduplicate(partitioned=True):
            yield "the record that was read first wins; of one batch, the one of the earlier event time"
        case Process() if keyed_by(node.input):
            yield "the stream ends at the first record in another partition, unless nothing is remembered of the key"
        case WindowedAggregate(aggregates=aggregates):
            ordered = sorted({one.kind for one in aggregates.values()} & {"first", "last", "reduce", "fold"})
            if folds_by_key(node):
                yield "the stream ends at a record in a lower partition than one that was read before"
            elif ordered:
                yield f"{', '.join(ordered)} take the values of the lower partition first, whatever their times"
            if node.emission.kind == "each record":
                yield "its updates leave in the order in which the records are read"
