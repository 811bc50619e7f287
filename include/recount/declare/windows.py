"""Windows: which ones a record belongs to, when it is late for one, when a result is due.

All bounds are integer milliseconds since the epoch, UTC. Time windows (tumbling, hopping) hold ``start <= ts < end``;
sliding and session windows hold ``start <= ts <= end``. Rules and their sources: docs/semantics.md.

Every kind answers ``is_closed(end_ms, clock_ms)``. With the stream time of a record's own partition as the clock it
says that the record is late for the window, with the frontier that the window's final result is due: one rule, two
clocks. ``delay_ms`` is how far behind the frontier the event time of a final result can be; the next stage waits so
much longer.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from recount.declare.unknown_names import declares
from recount.runtime.errors import require
from recount.runtime.times import Duration, milliseconds, readable

SHORTEST_REACH_MS = 3_600_000
"""The reach of a session with a shorter gap, where nothing is declared; see ``default_reach_ms``."""
Origin = Duration | datetime
"""A time at which a window starts: how long after the epoch, or itself. It is a moment, so windows keep their length
where clocks are put forward or back."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class TimeWindows:
    """Tumbling (``advance_ms == size_ms``) and hopping windows, end exclusive; one starts at ``origin_ms``.

    Closed when ``end <= clock - grace``. The origin is kept modulo the advance: the others are the same windows.
    """

    size_ms: int
    advance_ms: int
    grace_ms: int
    origin_ms: int = 0

    def __post_init__(self) -> None:
        _require_positive("size", self.size_ms)
        require(
            0 < self.advance_ms <= self.size_ms,
            "advance-beyond-the-size",
            given=readable(self.advance_ms),
            size=readable(self.size_ms),
        )
        object.__setattr__(self, "origin_ms", self.origin_ms % self.advance_ms)

    def starts(self, timestamp_ms: int) -> range:
        """The starts of all windows that hold ``timestamp_ms``, rising; none before ``first_start_ms``.

        Size 10 min, advance 5 min, at minute 12: the windows starting at minutes 5 and 10.
        """
        first, advance = self.first_start_ms, self.advance_ms
        newest = timestamp_ms - (timestamp_ms - first) % advance
        reach = max(first, timestamp_ms - self.size_ms + advance)
        return range(reach - (reach - first) % advance, newest + 1, advance)

    @property
    def first_start_ms(self) -> int:
        """The start of the first window: the last one that is not after the epoch."""
        return -(-self.origin_ms % self.advance_ms)

    def is_closed(self, end_ms: int, clock_ms: int) -> bool:
        """Whether a window ending at ``end_ms`` is closed at ``clock_ms``, a stream time or a frontier.

        Size 5 min, grace 1 min: the window [0, 5 min) is open at 6 min - 1 ms and closed at 6 min.
        """
        return self.closes_ms(end_ms) <= clock_ms

    def closes_ms(self, end_ms: int) -> int:
        """The first time of the clock at which the window is closed."""
        return end_ms + self.grace_ms

    @property
    def delay_ms(self) -> int:
        """A result at the window's start waits for its end and the grace."""
        return self.size_ms + self.grace_ms

    def __str__(self) -> str:
        kind = "tumbling" if self.advance_ms == self.size_ms else f"hopping by {readable(self.advance_ms)}"
        origin = f", origin {readable(self.origin_ms)}" if self.origin_ms else ""
        return f"{kind} {readable(self.size_ms)}{origin}, grace {readable(self.grace_ms)}"


@dataclass(frozen=True, kw_only=True)
class SlidingWindows:
    """Windows of ``difference_ms``, both ends inclusive, aligned to the records and not to the epoch.

    Each record at ts defines ``[ts - difference, ts]`` and, if a later record falls in it, ``[ts + 1, ts + 1 +
    difference]``; records below ``difference_ms`` share ``[0, difference]``. Closed when ``end < clock - grace``.
    """

    difference_ms: int
    grace_ms: int

    def left_of(self, timestamp_ms: int) -> tuple[int, int]:
        """The window that ends at the record; difference 10: of 15 it is [5, 15], of 3 it is [0, 10]."""
        start = max(0, timestamp_ms - self.difference_ms)
        return start, start + self.difference_ms

    def right_of(self, timestamp_ms: int) -> tuple[int, int]:
        """The window that begins just after the record; difference 10: of 15 it is [16, 26]."""
        return timestamp_ms + 1, timestamp_ms + 1 + self.difference_ms

    def leaving_order(self, timestamp_ms: int, window: tuple[int, int], existed: bool) -> tuple[int, int]:
        """Sorts the windows that a record changed as their updates leave, which is as in Kafka Streams.

        First the windows that existed, latest start first; then those that the record brought into being: the one that
        begins after the record before, the one that ends with the record, the one that begins after it. For a record
        below ``difference_ms``: windows that existed, earliest start first; the one that begins after the record; the
        one that begins after the record before; last the shared one, ``[0, difference]``.
        """
        start, end = window
        if timestamp_ms < self.difference_ms:
            if start == 0:
                return 3, start
            return 0 if existed else 1 if start > timestamp_ms else 2, start
        if existed:
            return 0, -start
        return 1 if start <= timestamp_ms < end else 2 if end == timestamp_ms else 3, start

    def is_closed(self, end_ms: int, clock_ms: int) -> bool:
        """Difference 10 s, grace 5 s: the window [0, 10 s] is open at 15 s and closed at 15 s + 1 ms."""
        return self.closes_ms(end_ms) <= clock_ms

    def closes_ms(self, end_ms: int) -> int:
        """The first time of the clock at which the window is closed."""
        return end_ms + self.grace_ms + 1

    @property
    def delay_ms(self) -> int:
        """A result at the window's start waits for its end and the grace."""
        return self.difference_ms + self.grace_ms

    def __str__(self) -> str:
        return f"sliding {readable(self.difference_ms)}, grace {readable(self.grace_ms)}"


@dataclass(frozen=True, kw_only=True)
class SessionWindows:
    """Records of a key that follow each other at most ``gap_ms`` apart (inclusive); ends are the records themselves.

    Closed when ``end < clock - grace - gap``. ``max_duration_ms`` cuts: taking the records by time, one further than
    that from the session's start begins a new session. A record is late altogether if even a session that ends
    ``reach_ms`` after it would be closed; no session ends later than the longest duration after a record.
    """

    gap_ms: int
    grace_ms: int
    max_duration_ms: int | None = None
    reach_ms: int = SHORTEST_REACH_MS

    def __post_init__(self) -> None:
        _require_positive("gap", self.gap_ms)
        if self.max_duration_ms is not None:
            _require_positive("max_duration", self.max_duration_ms)
            object.__setattr__(self, "reach_ms", min(self.reach_ms, self.max_duration_ms))

    def continues(self, start_ms: int, end_ms: int, timestamp_ms: int) -> bool:
        """Whether a record at ``timestamp_ms >= end_ms`` still belongs to the session [start, end].

        Gap 30 s: 70 s and 100 s are one session, 70 s and 100 s + 1 ms are two.
        """
        lasts = self.max_duration_ms is None or timestamp_ms - start_ms <= self.max_duration_ms
        return lasts and timestamp_ms - end_ms <= self.gap_ms

    def is_closed(self, end_ms: int, clock_ms: int) -> bool:
        """Gap 5 s, no grace: a session ending at 5 s is open at 10 s and closed at 10 s + 1 ms."""
        return self.closes_ms(end_ms) <= clock_ms

    def closes_ms(self, end_ms: int) -> int:
        """The first time of the clock at which the session is closed."""
        return end_ms + self.gap_ms + self.grace_ms + 1

    def settles_ms(self, end_ms: int) -> int:
        """The first stream time at which no record of a partition can change the session any more.

        Gap 5, no grace, reach 20: at 100 a record of 74 is late altogether, and one of 75 can join a session that ended
        at 70.
        """
        return self.closes_ms(end_ms + self.gap_ms + self.reach_ms)

    @property
    def delay_ms(self) -> int:
        """A result at the session's end waits for the gap and the grace."""
        return self.gap_ms + self.grace_ms

    def __str__(self) -> str:
        cut = "" if self.max_duration_ms is None else f", at most {readable(self.max_duration_ms)}"
        reach = "" if self.reach_ms == self.max_duration_ms else f", reach {readable(self.reach_ms)}"
        return f"session gap {readable(self.gap_ms)}{cut}{reach}, grace {readable(self.grace_ms)}"


@dataclass(frozen=True, kw_only=True)
class GlobalWindow:
    """One window that holds every record of the key, of all time; it never closes and no record is late for it."""

    def __str__(self) -> str:
        return "of all time"


@dataclass(frozen=True, kw_only=True)
class LastN:
    """The ``n`` most recent records of the key, by (event time, partition, offset); never closes, none is late."""

    n: int

    def __post_init__(self) -> None:
        require(type(self.n) is int and self.n > 0, "last-n-of-none", given=self.n)

    def __str__(self) -> str:
        return f"last {self.n}"


@declares
def tumbling(size: Duration, *, grace: Duration, origin: Origin = _EPOCH) -> TimeWindows:
    """Windows of ``size`` that follow each other without a gap or an overlap; one starts at ``origin``."""
    return hopping(size, advance=size, grace=grace, origin=origin)


@declares
def hopping(size: Duration, *, advance: Duration, grace: Duration, origin: Origin = _EPOCH) -> TimeWindows:
    """Windows of ``size``, one starting every ``advance``, so that they overlap; one starts at ``origin``."""
    return TimeWindows(
        size_ms=milliseconds(size, "size"),
        advance_ms=milliseconds(advance, "advance"),
        grace_ms=milliseconds(grace, "grace"),
        origin_ms=_since_epoch_ms(origin),
    )


@declares
def sliding(difference: Duration, *, grace: Duration) -> SlidingWindows:
    """Windows of records that are at most ``difference`` apart: one ends at every record, one begins after it."""
    return SlidingWindows(difference_ms=milliseconds(difference, "difference"), grace_ms=milliseconds(grace, "grace"))


@declares
def session(
    gap: Duration, *, grace: Duration, max_duration: Duration | None = None, reach: Duration | None = None
) -> SessionWindows:
    """Periods of activity, ended by more than ``gap`` of silence or cut at ``max_duration``.

    A record that is late by itself still counts where the session that it joins has not ended; but not if it is more
    than ``reach`` before that end. Without one: the longest duration, or the gap, and at least an hour.
    """
    gap_ms = milliseconds(gap, "gap")
    longest_ms = None if max_duration is None else milliseconds(max_duration, "max_duration")
    return SessionWindows(
        gap_ms=gap_ms,
        grace_ms=milliseconds(grace, "grace"),
        max_duration_ms=longest_ms,
        reach_ms=default_reach_ms(gap_ms, longest_ms) if reach is None else milliseconds(reach, "reach"),
    )


def default_reach_ms(gap_ms: int, max_duration_ms: int | None = None) -> int:
    """The reach where none is declared: the longest duration; without one the gap, and at least an hour.

    So a record always counts that is within the gap of the last record of an open session, and no session that is as
    long as the reach, or shorter, is another one than with an unlimited reach. Gap 3 h: 3 h. Gap 30 min: 1 h.
    """
    return max(gap_ms, SHORTEST_REACH_MS) if max_duration_ms is None else max_duration_ms


@declares
def all_time() -> GlobalWindow:
    return GlobalWindow()


@declares
def last_n(n: int) -> LastN:
    """The ``n`` most recent records of each key."""
    return LastN(n=n)


def _since_epoch_ms(origin: Origin) -> int:
    if not isinstance(origin, date):
        return milliseconds(origin, "origin")
    require(
        isinstance(origin, datetime) and origin.tzinfo is not None and not origin.microsecond % 1_000,
        "origin-no-time",
        given=repr(origin),
    )
    return (origin - _EPOCH) // timedelta(milliseconds=1)


def _require_positive(field: str, given_ms: int) -> None:
    require(given_ms > 0, "not-a-length", given=readable(given_ms), field=field)


ClosingWindows = TimeWindows | SlidingWindows | SessionWindows
"""Windows that have an end, so that a record can be late for them and a final result can be due."""
Windows = ClosingWindows | GlobalWindow | LastN
