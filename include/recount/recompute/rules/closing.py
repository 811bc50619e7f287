"""When a window is closed: "Windows" of docs/semantics.md, as how long ago that was."""

from __future__ import annotations

from typing import Any, assert_never

from recount.core.windows import ClosingWindows, SessionWindows, SlidingWindows, TimeWindows


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
