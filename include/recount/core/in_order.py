"""What can stand above and below ``in_order``: checked where the topology is declared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recount.core.errors import require
from recount.core.joins import StreamTableJoin
from recount.core.nodes import Filter, Node, SelectKey, Source, WithFields
from recount.core.processing import Deduplicate, InOrder, Process
from recount.core.stateless import FlatMap, Merge, Peek, Repartition, Select, Through

_ROW_BY_ROW = (Filter, WithFields, SelectKey, Select, FlatMap, Peek, Repartition, Through, Merge)


def require_order(nodes: Iterable[Node]) -> None:
    """Refuse ``in_order`` over rows without a place in the log, and timers below it."""
    for node in nodes:
        if isinstance(node, InOrder):
            elsewhere = next(_made_elsewhere(node.input), None)
            require(
                elsewhere is None,
                "in_order",
                given=f"the rows of {elsewhere}, which derives rows or holds records back",
                expected="records straight from topics; filters, maps, merges, lookups without grace may stand between",
                remedy="put in_order before that, or write the rows to a topic and read them from there",
            )
        if isinstance(node, Process) and node.on_timer is not None:
            require(
                not _is_below(node.input),
                f"{node}: on_timer",
                given="timers, below in_order",
                expected="a processor without timers: they go by the stream time of the key's own partition",
                remedy="leave the timer out, or process a topic whose keys each live in one partition",
            )


def leaves_at_once(node: Node) -> bool:
    """Whether each row leaves ``node`` in the batch that reads its record, at its own place in the log."""
    return next(_made_elsewhere(node), None) is None


def _made_elsewhere(node: Node) -> Iterator[Node]:
    """The nearest operators from ``node`` up of which a row does not leave at once at its own place in the log."""
    match node:
        case Source():
            return
        case Deduplicate(partitioned=True) | Process(on_timer=None) | StreamTableJoin(grace_ms=None):
            yield from _made_elsewhere(node.inputs[0])
        case _ if isinstance(node, _ROW_BY_ROW):
            for above in node.inputs:
                yield from _made_elsewhere(above)
        case _:
            yield node


def _is_below(node: Node) -> bool:
    return isinstance(node, InOrder) or any(map(_is_below, node.inputs))
