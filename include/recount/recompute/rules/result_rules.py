"""Rules of results: functions that raise, the bytes of a result in its topic, and the fields and keys it needs.

Sources: "Functions that raise", "Results that are too large" and "Values" of docs/semantics.md. Fields that are not
needed are null in rows, and cost nothing. They are found otherwise than by the stream, and never fewer: a field that
the stream passes over by mistake must not be missing here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from recount.declare.expression_types import columns_of
from recount.declare.expressions import Expression
from recount.declare.operators.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.declare.operators.nodes import (
    KEY,
    Filter,
    Node,
    SelectKey,
    Source,
    WindowedAggregate,
    WithFields,
)
from recount.declare.operators.processing import Process
from recount.declare.operators.stateless import Repartition, Select
from recount.declare.operators.tables import TableAggregate, ToTable
from recount.declare.schema import FieldType
from recount.declare.topology import Topology
from recount.declare.windows import LastN, SessionWindows, SlidingWindows, TimeWindows
from recount.recompute.rules.time_rules import is_held_back
from recount.runtime.errors import Terminal

_MOST_SAID = 200


TOO_LARGE = "too-large"


_ESCAPED_BY_ONE = re.compile(r'["\\\b\f\n\r\t]')


_ESCAPED_BY_CODE = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")


def sets_aside(error: Exception) -> bool:
    """Whether the record is at fault: not where memory is short, nor where the error says that something else is."""
    return not isinstance(error, MemoryError | Terminal)


def reason_for(operator: str, error: Exception) -> str:
    """The reason of a dead letter, for comparison: the operator and the kind of error, not the words of its message."""
    return f"function-raised: {type(error).__name__} in {operator[:_MOST_SAID]}"


def tries_folds(node: WindowedAggregate) -> bool:
    """Whether a reduce or fold of ``node`` is tried with each record, so that one for which it raises is set aside."""
    if not any(aggregate.fold for aggregate in node.aggregates.values()):
        return False
    match node.windows:
        case SlidingWindows() | LastN():
            is_known_at_once = False
        case SessionWindows(max_duration_ms=longest_ms):
            is_known_at_once = longest_ms is None and node.emission.kind != "each record"
        case _:
            is_known_at_once = True
    return is_known_at_once and not is_held_back(node) and not _is_replaced(node.input)


def adds_up(node: Node) -> TypeGuard[WindowedAggregate]:
    """Whether the results of ``node`` for two sets of records come to those for all of them, each added to the other.

    Of counts, sums, minima and maxima over time windows, so that a window that is not carried can still be judged.
    """
    return (
        isinstance(node, WindowedAggregate)
        and isinstance(node.windows, TimeWindows)
        and node.emission.kind != "each record"
        and all(aggregate.kind in ("count", "sum", "min", "max") for aggregate in node.aggregates.values())
        and not _is_replaced(node.input)
    )


def _is_replaced(above: Node) -> bool:
    """Whether rows that come from ``above`` can be results, of which a later one stands for an earlier one."""
    if isinstance(above, Source | StreamStreamJoin):
        return False
    if isinstance(above, WindowedAggregate | TableAggregate | TableTableJoin):
        return True
    ways = [above.left] if isinstance(above, StreamTableJoin) else above.inputs
    return any(map(_is_replaced, ways))


def size_of_object(cells: Sequence[Any], kinds: Mapping[str, FieldType]) -> int:
    r"""The bytes of ``cells`` as a JSON object with the names of ``kinds``.

    >>> from recount.declare.schema import LONG, STRING
    >>> size_of_object(['say "é"\n', -5], {"text": STRING, "n": LONG}), len('{"text":"say \\"é\\"\\n","n":-5}'.encode())
    (30, 30)
    """
    members = [_of_name(name) + 1 + _of(cell, kind) for cell, (name, kind) in zip(cells, kinds.items(), strict=True)]
    return 2 + sum(members) + max(0, len(members) - 1)


def plain_size(cell: Any, kind: FieldType) -> int:
    """The bytes of ``cell`` as a plain value; of a null, which is a null value, none."""
    if cell is None:
        return 0
    return len(cell.encode()) if kind.kind == "string" else _of(cell, kind)


def _of(cell: Any, kind: FieldType) -> int:
    if cell is None:
        return 4
    if kind.element is not None:
        return 2 + sum(_of(one, kind.element) for one in cell) + max(0, len(cell) - 1)
    match kind.kind:
        case "string":
            return 2 + len(cell.encode()) + len(_ESCAPED_BY_ONE.findall(cell)) + 5 * len(_ESCAPED_BY_CODE.findall(cell))
        case "boolean":
            return 4 if cell else 5
        case "decimal":
            return int(cell < 0) + len(str(abs(int(cell)))) + (1 + kind.scale if kind.scale else 0)
        case "double":
            return len(repr(float(cell)))
    return len(str(cell))


def _of_name(name: str) -> int:
    """In quotes, and in ASCII: another character is written as one code of six bytes, or beyond 16 bits as two."""
    return 2 + sum(1 if one.isascii() else 6 if ord(one) < 0x10000 else 12 for one in name)


def fields_needed(topology: Topology, read: Source) -> list[str]:
    """Declared fields of the topic of ``read``, in their order, that anything can depend on.

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
