"""When a window is closed: "Windows" of docs/semantics.md, as how long ago that was."""

from __future__ import annotations

from typing import Any, assert_never

from recount.core.nodes import Filter, Node, WindowedAggregate, WithFields
from recount.core.stateless import Peek, Repartition, Select, Through
from recount.core.windows import ClosingWindows, SessionWindows, SlidingWindows, TimeWindows

_PASS = (Filter, WithFields, Select, Peek, Repartition, Through)


def overdue_ms(windows: ClosingWindows, end_ms: Any, clock_ms: Any) -> Any:
    """How long a window that ends at ``end_ms`` had been closed at ``clock_ms``; 0: just now, below 0: still open.

    ``clock_ms`` is a stream time (the record is late) or a frontier (the result is due). Integers give an integer,
    Spark columns a column.

    tumbling 10 s, grace 5 s:  10 s ends  |  14,999 -> -1  |  15,000 -> 0  |  15,001 -> 1
    session gap 5 s, no grace:  5 s ends  |  10,000 -> -1  |  10,001 -> 0
    """
    since_grace = clock_ms - windows.grace_ms - end_ms
    match windows:
        case TimeWindows():
            return since_grace
        case SlidingWindows():
            return since_grace - 1  # the end itself is in the window
        case SessionWindows(gap_ms=gap_ms):
            return since_grace - 1 - gap_ms  # and a record a gap later still prolongs it
    assert_never(windows)


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
