"""Final results that can be taken back after they left, and what may stand below them: checked at declaration."""

from __future__ import annotations

from collections.abc import Iterable

from recount.core.errors import require
from recount.core.expressions import Column
from recount.core.nodes import WINDOW_END, WINDOW_START, Filter, Node, Sink, WindowedAggregate, WithFields
from recount.core.stateless import Foreach, Peek, Repartition, Select, Through
from recount.core.windows import SessionWindows

_ROW_BY_ROW = (Filter, WithFields, Select, Peek, Repartition, Through)
_FOLLOW = (*_ROW_BY_ROW, WindowedAggregate, Sink, Foreach)


def can_be_withdrawn(node: Node) -> bool:
    """Whether a final result that leaves ``node`` can be replaced by another one, or by a deletion.

    A session can be taken in by a longer one after it has left, and windows over sessions change with them.
    """
    windowed = _windowed(node)
    return windowed is not None and windowed.emission.kind == "final" and _follows_sessions(windowed)


def _windowed(node: Node) -> WindowedAggregate | None:
    """The aggregation whose results leave ``node``, as they are or changed one by one."""
    while isinstance(node, _ROW_BY_ROW):
        node = node.input
    return node if isinstance(node, WindowedAggregate) else None


def _follows_sessions(node: WindowedAggregate) -> bool:
    above = _windowed(node.input)
    return isinstance(node.windows, SessionWindows) or (above is not None and _follows_sessions(above))


def require_followed(nodes: Iterable[Node]) -> None:
    """Refuse what cannot take back what it has made of a result that is withdrawn, and sinks that cannot tell which."""
    for node in nodes:
        if isinstance(node, Sink | Through) and can_be_withdrawn(node.input):
            lost = {WINDOW_START, WINDOW_END} - node.fields.keys()
            require(
                not lost,
                f"{node}",
                given=f"results that can be withdrawn after they have left, without {' and '.join(sorted(lost))}",
                expected="results with their window: a withdrawn one is told by it",
                remedy="keep both: .select('window_start', 'window_end', ...)",
            )
        if isinstance(node, WithFields | Select) and can_be_withdrawn(node.input):
            anew = sorted(_computed(node) & {node.key, WINDOW_START, WINDOW_END})
            require(
                not anew,
                f"{node}",
                given=f"{', '.join(anew)} computed anew, of results that can be withdrawn after they have left",
                expected="their key and window as they are: a withdrawn result has no other field to compute them of",
                remedy="give the field another name; for another key write the results to a topic, and read them in"
                " another topology, withdrawn ones as null values",
            )
        for above in node.inputs:
            require(
                isinstance(node, _FOLLOW) or not can_be_withdrawn(above),
                f"{node}",
                given=f"{above}, of which a result can be withdrawn after it has left",
                expected="windows, filters, fields, selections and sinks below it: these follow",
                remedy="write the results to a topic, and read them in another topology, withdrawn ones as null values",
            )


def _computed(node: WithFields | Select) -> set[str]:
    """The fields that do not pass as they are."""
    made = node.added if isinstance(node, WithFields) else node.chosen
    return {name for name, tree in made.items() if not (isinstance(tree, Column) and tree.name == name)}
