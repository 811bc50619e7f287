"""Which windows a record falls into: one class per kind of window, each holding one key's accepted records.

``add`` places a record and says what changed. A record is judged late with ``stream_time_ms``, that of its own
partition at its own offset; None (a derived record) is never late.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from recount.declare.windows import (
    ClosingWindows,
    GlobalWindow,
    LastN,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    Windows,
)
from recount.reference.records import Partition, Record

Window = tuple[int, int]
"""Start and end in milliseconds."""
UNBOUNDED: Window = (0, 0)
"""The one window of kinds that have no bounds."""
Judged = tuple[Record, int | None]
"""A record and the stream time by which it was judged."""


@dataclass(kw_only=True)
class Placement:
    """The effect of a record: the windows it changed, withdrew (sessions that were merged away) and was late for.

    ``accepted`` is false where it is late for all windows that could ever hold it.
    """

    accepted: bool = True
    changed: list[Window] = field(default_factory=list)
    withdrawn: list[Window] = field(default_factory=list)
    late: list[Window] = field(default_factory=list)


class Panes(Protocol):
    def add(self, record: Record, stream_time_ms: int | None) -> Placement: ...

    def records(self, window: Window) -> list[Record]: ...


def panes_of(windows: Windows) -> Panes:
    match windows:
        case TimeWindows():
            return TimePanes(windows)
        case SlidingWindows():
            return SlidingPanes(windows)
        case SessionWindows():
            return SessionPanes(windows)
        case GlobalWindow():
            return LastPane(None)
        case LastN(n=n):
            return LastPane(n)


def _is_late(windows: ClosingWindows, end_ms: int, stream_time_ms: int | None) -> bool:
    return stream_time_ms is not None and windows.is_closed(end_ms, stream_time_ms)


class TimePanes:
    """Tumbling and hopping: the windows of a record follow from its time alone."""

    def __init__(self, windows: TimeWindows) -> None:
        self._windows = windows
        self._records: dict[Window, list[Record]] = {}

    def add(self, record: Record, stream_time_ms: int | None) -> Placement:
        """A hopping record may be late for some of its windows and on time for the others."""
        placement = Placement()
        for start in self._windows.starts(record.timestamp_ms):
            window = (start, start + self._windows.size_ms)
            if _is_late(self._windows, window[1], stream_time_ms):
                placement.late.append(window)
            else:
                self._records.setdefault(window, []).append(record)
                placement.changed.append(window)
        placement.accepted = bool(placement.changed)
        return placement

    def records(self, window: Window) -> list[Record]:
        return self._records.get(window, [])


class SlidingPanes:
    """Sliding: the records themselves define the windows.

    difference 10:   records   15        22      28
        [5, 15] ends at 15; [16, 26] begins after 15 and holds 22; [12, 22] ends at 22; [23, 33] holds 28; ...

    A record that is late for a window neither falls into it nor defines it; one that is late even for the newest window
    that could hold it, [ts, ts + difference], is late altogether. The ledger names its own left window, and those which
    records of its own partition had defined; of a record that was held back the left window alone.
    """

    def __init__(self, windows: SlidingWindows) -> None:
        self._windows = windows
        self._accepted: list[Judged] = []
        self._known: set[Window] = set()
        self._known_of: dict[Partition, set[Window]] = {}

    def add(self, record: Record, stream_time_ms: int | None) -> Placement:
        """Every window that the record changed or brought into being, in the order in which updates leave."""
        ts, left = record.timestamp_ms, self._windows.left_of(record.timestamp_ms)
        if _is_late(self._windows, ts + self._windows.difference_ms, stream_time_ms):
            return Placement(accepted=False, late=[left])
        self._accepted.append((record, stream_time_ms))
        before, near = self._known, self._defined_near(ts, self._accepted)
        self._known = before | near
        own = self._defined_by_its_partition(record)
        holding = {window for window in self._known | own if window[0] <= ts <= window[1]}
        late = {window for window in holding | {left} if self._is_late(window, stream_time_ms)}
        changed = (holding & self._known - late) | (near - before)
        leaving = sorted(changed, key=lambda window: self._windows.leaving_order(ts, window, window in before))
        return Placement(changed=leaving, late=sorted(late & (own | {left})))

    def _defined_by_its_partition(self, record: Record) -> set[Window]:
        """The windows that records of the partition have defined so far, this one included."""
        if record.source is None:
            return set()
        own = self._known_of.setdefault(record.source, set())
        own |= self._defined_near(
            record.timestamp_ms, [one for one in self._accepted if one[0].source == record.source]
        )
        return own

    def _defined_near(self, timestamp_ms: int, accepted: Sequence[Judged]) -> set[Window]:
        """The windows that ``accepted`` records around ``timestamp_ms`` define, are on time for, and are in."""
        windows = self._windows
        defined = {
            window
            for record, stream_time_ms in accepted
            if abs(record.timestamp_ms - timestamp_ms) <= windows.difference_ms + 1
            for window in (windows.left_of(record.timestamp_ms), windows.right_of(record.timestamp_ms))
            if not self._is_late(window, stream_time_ms)
        }
        return {window for window in defined if self._inside(window, accepted)}

    def _is_late(self, window: Window, stream_time_ms: int | None) -> bool:
        return _is_late(self._windows, window[1], stream_time_ms)

    def _inside(self, window: Window, accepted: Sequence[Judged]) -> list[Record]:
        return [
            record
            for record, stream_time_ms in accepted
            if window[0] <= record.timestamp_ms <= window[1] and not self._is_late(window, stream_time_ms)
        ]

    def records(self, window: Window) -> list[Record]:
        """The accepted records inside ``window`` that were on time for it; none where none defines it (any more)."""
        return self._inside(window, self._accepted) if window in self._known else []


class SessionPanes:
    """Session: records that follow each other closely enough, across all partitions, are one session.

    gap 5:   0──3──7        14──16        one session [0, 7], another [14, 16]; a record at 10 makes them [0, 16]

    Lateness goes by the session that the record would be in among the accepted records of its own partition; a record
    that was held back, and comes in another order than that of the log, is judged by itself. One that is late even for
    a session that ends ``reach_ms`` after it is late altogether, and the ledger names its own moment.
    """

    def __init__(self, windows: SessionWindows) -> None:
        self._windows = windows
        self._accepted: list[Record] = []
        self._of_partition: dict[Partition, list[Record]] = {}

    def add(self, record: Record, stream_time_ms: int | None) -> Placement:
        """A session that takes others in withdraws them; Kafka Streams' rule: unless it is just the record's moment."""
        own = [] if record.source is None else self._of_partition.setdefault(record.source, [])
        if _is_late(self._windows, record.timestamp_ms + self._windows.reach_ms, stream_time_ms):
            return Placement(accepted=False, late=[(record.timestamp_ms, record.timestamp_ms)])
        own_window = self._window_with(record, [*own, record])
        if _is_late(self._windows, own_window[1], stream_time_ms):
            return Placement(accepted=False, late=[own_window])
        own.append(record)
        before = set(self._sessions(self._accepted))
        self._accepted.append(record)
        after = set(self._sessions(self._accepted))
        window = self._window_with(record, self._accepted)
        taken_in = {old for old in before if old not in after or old == window}
        if window == (record.timestamp_ms, record.timestamp_ms):
            taken_in -= {window}
        changed = (after - before) | {window}
        return Placement(changed=sorted(changed), withdrawn=sorted(taken_in, key=lambda old: (old[1], old[0])))

    def records(self, window: Window) -> list[Record]:
        return self._sessions(self._accepted).get(window, [])

    def _window_with(self, record: Record, records: Iterable[Record]) -> Window:
        sessions = self._sessions(records)
        return next(window for window, members in sessions.items() if any(one is record for one in members))

    def _sessions(self, records: Iterable[Record]) -> dict[Window, list[Record]]:
        """Taking the records by time: each continues the session at hand or begins a new one."""
        sessions: list[list[Record]] = []
        for record in sorted(records, key=lambda one: (one.timestamp_ms, one.order)):
            if sessions and self._continues(sessions[-1], record):
                sessions[-1].append(record)
            else:
                sessions.append([record])
        return {(members[0].timestamp_ms, members[-1].timestamp_ms): members for members in sessions}

    def _continues(self, members: list[Record], record: Record) -> bool:
        return self._windows.continues(members[0].timestamp_ms, members[-1].timestamp_ms, record.timestamp_ms)


class LastPane:
    """Global, and last n: one window, with all records or the most recent by (event time, log order)."""

    def __init__(self, n: int | None) -> None:
        self._n = n
        self._records: list[Record] = []

    def add(self, record: Record, stream_time_ms: int | None) -> Placement:  # noqa: ARG002 - nothing is late here
        """No record is late; one that is older than the n most recent changes nothing."""
        self._records.append(record)
        if self._n is not None:
            self._records = sorted(self._records, key=lambda one: (one.timestamp_ms, one.order))[-self._n :]
        return Placement(changed=[UNBOUNDED] if any(one is record for one in self._records) else [])

    def records(self, window: Window) -> list[Record]:  # noqa: ARG002 - there is but one
        return self._records
