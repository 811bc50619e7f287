"""Which final results can be replaced after they left, and how long: "Windows" of docs/semantics.md."""

from __future__ import annotations

from recount.core.nodes import Filter, Node, WindowedAggregate, WithFields
from recount.core.stateless import Peek, Repartition, Select, Through
from recount.core.windows import SessionWindows

_PASS = (Filter, WithFields, Select, Peek, Repartition, Through)


def replaced_for_ms(node: Node) -> int | None:
    """How much further behind than it waits a final result of ``node`` can be replaced; None: it never is.

    A session that was due is taken in by a record that is at most the reach before the end of a longer one, and at most
    a gap after it. What is made of sessions in windows changes with them.
    """
    above = node
    while isinstance(above, _PASS):
        above = above.input
    if not isinstance(above, WindowedAggregate) or above.emission.kind != "final":
        return None
    before_ms = replaced_for_ms(above.input)
    if not isinstance(above.windows, SessionWindows):
        return before_ms
    return (before_ms or 0) + above.windows.gap_ms + above.windows.reach_ms
