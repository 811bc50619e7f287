"""Facts that the log alone determines: the order of a key's records, and which updates of an operator leave.

``holds`` of rows: ``records`` of a stream; all ``changes`` of a table, in an order that the log determines; or only the
``latest`` of each key and window, because the updates before it depend on the batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from recount.declare.expressions import Column
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import Filter, Node, SelectKey, Source, WindowedAggregate, WithFields
from recount.declare.operators.processing import Deduplicate, InOrder, Process
from recount.declare.operators.stateless import FlatMap, Merge, Peek, Repartition, Select, Through
from recount.declare.operators.tables import Suppress, TableAggregate, TableFilter, ToTable
from recount.declare.topology import Topology
from recount.declare.windows import GlobalWindow, LastN, TimeWindows
from recount.recompute.rules.time_rules import goes_by_offset, topics_awaited
from recount.runtime.errors import Terminal

Holds = Literal["records", "changes", "latest"]
Readers = Mapping[Node, Sequence[tuple[Node, int]]]
_ONE_BY_ONE = (Filter, SelectKey, FlatMap, Merge, WindowedAggregate, StreamStreamJoin, Deduplicate, InOrder, Process)
"""Operators to which every update means something, so that they cannot read a table's last ones only."""


class NotRecomputable(Terminal):
    """A topology with an operator that the recompute does not know."""


def is_ordered(node: Node) -> bool:
    """Whether the records of one key leave ``node`` in an order that the log determines.

    That of the offsets, where the key is the one that chose the record's partition; that of the windows; or that of
    event time, below ``in_order``.
    """
    return node.key in _partitioning(node) or _goes_by_time(node)


def require_ordered(node: Node, reading: Node) -> None:
    """Raise ``NotRecomputable`` where ``reading`` needs an order of the records of ``node`` that the log has not."""
    if not is_ordered(node):
        raise NotRecomputable(
            f"{reading} cannot be recomputed",
            given=f"the key {node.key} of {node}, whose records come from several partitions",
            expected="a key whose records lie in one partition: the record key of a source",
            remedy="put in_order(grace=...) before it; of a table, declare it versioned",
        )


def lies_in_the_log(node: Node) -> bool:
    """Whether every change of the table ``node`` is one record of the log, so that it has an offset."""
    while isinstance(
        node, ToTable | TableFilter | Filter | WithFields | Select | SelectKey | Peek | Repartition | Through
    ):
        node = node.input
    return isinstance(node, Source) or (isinstance(node, WindowedAggregate) and isinstance(node.windows, GlobalWindow))


def leaves_at_once(node: Node) -> bool:
    """Whether each record leaves ``node`` in the batch that read it, at its own place in the log."""
    match node:
        case Source():
            return True
        case Deduplicate():
            return goes_by_offset(node) and leaves_at_once(node.input)
        case Process(on_timer=None) | ToTable() | TableFilter() | FlatMap():
            return leaves_at_once(node.input)
        case StreamTableJoin(left=left, grace_ms=None):
            return leaves_at_once(left)
        case Filter() | WithFields() | Select() | SelectKey() | Peek() | Repartition() | Through() | Merge():
            return all(leaves_at_once(above) for above in node.inputs)
    return False


def leaves_when_read(node: Node) -> bool:
    """Whether each row leaves ``node`` in the batch that read the last record it is made of."""
    match node:
        case StreamStreamJoin(kind="inner", left=left, right=right):
            return leaves_at_once(left) and leaves_at_once(right)
        case Filter() | WithFields() | SelectKey() | Select() | FlatMap() | Peek() | Repartition() | Through():
            return leaves_when_read(node.input)
        case StreamTableJoin(left=left, grace_ms=None):
            return leaves_when_read(left)
    return leaves_at_once(node)


def waits(node: Node) -> list[tuple[Node, int]] | None:
    """All that a record waits for until it leaves ``node``: whose frontier, and how far ahead of its own time.

    None where place and time of a record do not say when it leaves.
    """
    if leaves_at_once(node):
        return []
    match node:
        case StreamTableJoin(left=left, right=right, grace_ms=grace_ms):
            above = waits(left)
            return above if above is None or grace_ms is None else [*above, (right, grace_ms)]
        case Deduplicate(input=left, horizon_ms=horizon_ms):
            above = waits(left)
            return None if above is None else [*above, (node, horizon_ms + 1)]
        case InOrder(grace_ms=grace_ms):
            return [(node, grace_ms + 1)]
        case Filter() | WithFields() | SelectKey() | Select() | FlatMap() | Peek() | Repartition() | Through():
            return waits(node.input)
        case Process(on_timer=None) if _goes_by_time(node):
            return waits(node.input)
    return None


def closing(node: Node) -> tuple[WindowedAggregate, int] | None:
    """The windows whose final results leave ``node``, and how far ahead of an end their frontier is, or None."""
    while isinstance(node, Filter | WithFields | SelectKey | Select | FlatMap | Peek | Repartition | Through):
        node = node.input
    if not isinstance(node, WindowedAggregate) or node.emission.kind != "final":
        return None
    assert not isinstance(node.windows, GlobalWindow | LastN), "refused at declaration"
    return node, node.windows.grace_ms + (not isinstance(node.windows, TimeWindows))


def _goes_by_time(node: Node) -> bool:
    """Whether records leave ``node`` one after the other as ``in_order`` let them go."""
    match node:
        case InOrder():
            return True
        case Filter() | WithFields() | SelectKey() | Select() | FlatMap() | Peek() | Repartition() | Through():
            return _goes_by_time(node.input)
        case Process(on_timer=None) | ToTable() | TableFilter() | WindowedAggregate(windows=GlobalWindow()):
            return _goes_by_time(node.input)
        case StreamTableJoin(left=left, grace_ms=None):
            return _goes_by_time(left)
    return False


def _partitioning(node: Node) -> frozenset[str]:
    """The fields that hold the very key by which what leaves ``node`` is ordered."""
    match node:
        case Source(topic=topic):
            return frozenset({node.key}) | topic.fields_like_the_key
        case WithFields(input=above, added=added):
            return _partitioning(above) - added.keys()
        case SelectKey(input=above, key=key, by=by):
            known = _partitioning(above)
            return known | {key} if isinstance(by, Column) and by.name in known else known - {key}
        case Select(input=above, chosen=chosen):
            known = _partitioning(above)
            kept = {name for name, tree in chosen.items() if isinstance(tree, Column) and tree.name in known}
            return frozenset(kept | ({node.key} & known - chosen.keys()))
        case Filter() | Peek() | Repartition() | Through() | ToTable() | TableFilter() | Suppress():
            return _partitioning(node.input)
        case FlatMap() | Process(on_timer=None):
            return _partitioning(node.input) & {node.key}
        case Deduplicate() if goes_by_offset(node):
            return _partitioning(node.input)
        case StreamTableJoin(left=left, grace_ms=None):
            return _partitioning(left)
        case Merge(inputs=inputs) if len(topics_awaited(node)) == 1:
            return frozenset.intersection(*map(_partitioning, inputs))
        case WindowedAggregate(windows=GlobalWindow()):
            return _partitioning(node.input) & {node.key}
        case WindowedAggregate() if node.emission.kind == "final":
            return frozenset({node.key})
    return frozenset()


def require_recomputable(topology: Topology) -> None:
    """Raise ``NotRecomputable`` where an operator needs updates that the log does not determine.

    It is what the recompute of an audit raises as it comes to the operator.
    """
    readers, holds = topology.readers(), dict[Node, Holds]()
    for node in topology.nodes():
        above = [(one, holds[one]) for one in node.inputs]
        require_updates(node, above)
        match node:
            case ToTable(input=records):
                require_changes(node, holds[records], only_by_time=is_asked_by_time(node, readers))
            case StreamTableJoin(right=table):
                require_every_change(node, holds[table])
                if node.grace_ms is None:
                    require_offsets(node, holds[table])
            case Process():
                require_ordered(node.input, node)
        holds[node] = _left_by(node, [one for _, one in above])


def require_updates(node: Node, above: Sequence[tuple[Node, Holds]]) -> None:
    """Refuse ``node`` where it takes each update by itself and one of its inputs has the last ones only."""
    read = above if isinstance(node, _ONE_BY_ONE) else above[:1] if isinstance(node, StreamTableJoin) else ()
    for made_by, holds in read:
        if holds == "latest":
            raise NotRecomputable(
                f"{node} cannot be recomputed",
                given=f"the updates of {made_by}, of which only the last depends on nothing but the log",
                expected="a stream of records or of final results",
                remedy="emit final results, or read the updates from a topic they were written to",
            )


def require_changes(node: ToTable, above: Holds, *, only_by_time: bool) -> None:
    """Refuse a table of which it is not known which change of a key is the latest."""
    if above == "latest":
        if node.versioned:
            raise NotRecomputable(
                f"{node} cannot be recomputed",
                given=f"the updates of {node.input}, of which only the last depends on nothing but the log",
                expected="a stream of records or of final results",
                remedy="emit final results, or declare the table unversioned",
            )
    elif not node.versioned and not only_by_time:
        require_ordered(node.input, node)


def require_every_change(node: StreamTableJoin, table: Holds) -> None:
    """Refuse a lookup as of the event's time in a table of which only the last rows are known."""
    if node.as_of == "event" and table != "changes":
        raise NotRecomputable(
            f"{node} cannot be recomputed",
            given=f"{node.right}, of which only the last row of each key depends on nothing but the log",
            expected="a table of which every change does: its key's records lie in one partition",
            remedy="write the table to a topic and read it from there",
        )


def require_offsets(node: StreamTableJoin, table: Holds) -> None:
    """Refuse a lookup of which the ledger of batches does not say how much of the table it had before it."""
    if table != "changes" or not lies_in_the_log(node.right):
        raise NotRecomputable(
            f"{node} cannot be recomputed up to an offset of its table",
            given=f"{node.right}, whose changes are not records of one topic",
            expected="a table read from a topic, or aggregated over all time by its record key",
            remedy="write the table to a topic and read it from there",
        )
    if waits(node.left) is None and not leaves_when_read(node.left):
        raise NotRecomputable(
            f"{node} cannot be recomputed up to an offset of its table",
            given=f"{node.left}, which holds records back or derives them: their place does not say when they leave",
            expected="records of topics, as they come, in order or in pairs; filters and maps may stand between",
            remedy="look the row up before the window, or join with a versioned table and a grace",
        )


def is_running(node: WindowedAggregate) -> bool:
    """Whether each record that is aggregated makes a result, as it is then."""
    merges_nothing = isinstance(node.windows, GlobalWindow | TimeWindows)
    return merges_nothing and node.emission.kind == "each record" and is_ordered(node.input)


def is_asked_by_time(table: Node, readers: Readers) -> bool:
    """Whether nobody reads ``table``, or what is filtered and mapped of it, but lookups as of the event's time."""
    return all(
        is_asked_by_time(reader, readers)
        if isinstance(reader, TableFilter | WithFields | Select)
        else isinstance(reader, StreamTableJoin) and port == 1 and reader.as_of == "event"
        for reader, port in readers[table]
    )


def _left_by(node: Node, above: Sequence[Holds]) -> Holds:
    match node:
        case Source() | StreamStreamJoin() | StreamTableJoin() | Deduplicate() | Process():
            return "records"
        case Filter() | SelectKey() | FlatMap() | Merge():
            return "records"
        case WindowedAggregate():
            return "changes" if is_running(node) else "records" if node.emission.kind == "final" else "latest"
        case ToTable():
            return "latest" if above[0] == "latest" else "changes"
        case TableTableJoin() | TableAggregate() | Suppress():
            return "latest"
    return above[0]
