"""What of its updates an operator hands on that the log determines, and which operators need all: known without a log.

``holds`` of rows: ``records`` of a stream; all ``changes`` of a table, in an order that the log determines; or only the
``latest`` of each key and window, because the updates before it depend on the batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from recount.core.changelogs import Suppress, TableAggregate, TableFilter, ToTable
from recount.core.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.core.nodes import Filter, Node, SelectKey, Source, WindowedAggregate, WithFields
from recount.core.processing import Deduplicate, InOrder, Process
from recount.core.stateless import FlatMap, Merge, Select
from recount.core.topology import Topology
from recount.core.windows import GlobalWindow, TimeWindows
from recount.recompute.flow import NotRecomputable
from recount.recompute.graph.ordering import is_ordered, leaves_when_read, lies_in_the_log, require_ordered, waits

Holds = Literal["records", "changes", "latest"]
Readers = Mapping[Node, Sequence[tuple[Node, int]]]
_ONE_BY_ONE = (Filter, SelectKey, FlatMap, Merge, WindowedAggregate, StreamStreamJoin, Deduplicate, InOrder, Process)
"""Operators to which every update means something, so that they cannot read a table's last ones only."""


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
    """Refuse a table of which it cannot be told which change of a key is the latest."""
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
