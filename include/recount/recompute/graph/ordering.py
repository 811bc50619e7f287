"""What the log alone determines: in which order a key's records come."""

from __future__ import annotations

from recount.core.changelogs import Suppress, TableFilter, ToTable
from recount.core.expressions import Column
from recount.core.joins import StreamStreamJoin, StreamTableJoin
from recount.core.nodes import Filter, Node, SelectKey, Source, WindowedAggregate, WithFields
from recount.core.processing import Deduplicate, InOrder, Process
from recount.core.stateless import FlatMap, Merge, Peek, Repartition, Select, Through
from recount.core.windows import GlobalWindow, LastN, TimeWindows
from recount.recompute.flow import NotRecomputable
from recount.recompute.rules.deduplicating import goes_by_offset
from recount.recompute.rules.waiting import topics_awaited


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
