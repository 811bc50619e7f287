"""Windows: which ones a record belongs to, when it is late for one, when a result is due.

All bounds are integer milliseconds since the epoch, UTC. Time windows (tumbling, hopping) hold ``start <= ts < end``;
sliding and session windows hold ``start <= ts <= end``. Rules and their sources: docs/semantics.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from recount.core.durations import Duration, milliseconds, readable
from recount.core.errors import require


@dataclass(frozen=True, kw_only=True)
class TimeWindows:
    """Tumbling (``advance_ms == size_ms``) and hopping windows, aligned to the epoch, end exclusive.

    A record is late for a window when ``end <= stream time - grace``; its final result is due when
    ``end <= frontier - grace``: one rule, two clocks.
    """

    size_ms: int
    advance_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        _require_positive("size", self.size_ms)
        require(
            0 < self.advance_ms <= self.size_ms,
            "advance",
            given=readable(self.advance_ms),
            expected=f"more than 0 and at most the size, {readable(self.size_ms)}",
            remedy="an advance beyond the size would leave records in no window: lower it",
        )

    def starts(self, timestamp_ms: int) -> range:
        """The starts of all windows that hold ``timestamp_ms``, rising; none below 0.

        Size 10 min, advance 5 min, at minute 12: the windows starting at minutes 5 and 10.
        """
        newest = timestamp_ms - timestamp_ms % self.advance_ms
        oldest = max(0, timestamp_ms - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return range(oldest, newest + 1, self.advance_ms)

    def is_closed(self, end_ms: int, clock_ms: int) -> bool:
        """Whether a window ending at ``end_ms`` is closed at ``clock_ms``, a stream time or a frontier.

        Size 5 min, grace 1 min: the window [0, 5 min) is open at 6 min - 1 ms and closed at 6 min.
        """
        return end_ms <= clock_ms - self.grace_ms

    def __str__(self) -> str:
        kind = "tumbling" if self.advance_ms == self.size_ms else f"hopping by {readable(self.advance_ms)}"
        return f"{kind} {readable(self.size_ms)}, grace {readable(self.grace_ms)}"


def tumbling(size: Duration, *, grace: Duration) -> TimeWindows:
    """Windows of ``size`` that follow each other without a gap or an overlap."""
    size_ms = milliseconds(size, "size")
    return TimeWindows(size_ms=size_ms, advance_ms=size_ms, grace_ms=milliseconds(grace, "grace"))


def hopping(size: Duration, *, advance: Duration, grace: Duration) -> TimeWindows:
    """Windows of ``size``, one starting every ``advance``, so that they overlap."""
    return TimeWindows(
        size_ms=milliseconds(size, "size"),
        advance_ms=milliseconds(advance, "advance"),
        grace_ms=milliseconds(grace, "grace"),
    )


def _require_positive(field: str, given_ms: int) -> None:
    require(
        given_ms > 0, field, given=readable(given_ms), expected="more than 0 ms", remedy=f"choose a positive {field}"
    )


Windows = TimeWindows
