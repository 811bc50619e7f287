"""A function of the topology that raises for a record: "Functions that raise" of docs/semantics.md."""

from __future__ import annotations

from recount.core.changelogs import TableAggregate
from recount.core.errors import Terminal
from recount.core.joins import StreamStreamJoin, StreamTableJoin, TableTableJoin
from recount.core.nodes import Node, Source, WindowedAggregate
from recount.core.windows import LastN, SessionWindows, SlidingWindows
from recount.recompute.rules.waiting import is_held_back

_MOST_SAID = 200


def sets_aside(error: Exception) -> bool:
    """Whether the record is at fault: not where memory is short, nor where the error says that something else is."""
    return not isinstance(error, MemoryError | Terminal)


def reason_for(operator: str, error: Exception) -> str:
    """By what its dead letter is compared: the operator and the kind of error, not the words of its message."""
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


def _is_replaced(above: Node) -> bool:
    """Whether rows that come from ``above`` can be results, of which a later one stands for an earlier one."""
    if isinstance(above, Source | StreamStreamJoin):
        return False
    if isinstance(above, WindowedAggregate | TableAggregate | TableTableJoin):
        return True
    ways = [above.left] if isinstance(above, StreamTableJoin) else above.inputs
    return any(map(_is_replaced, ways))
