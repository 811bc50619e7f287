"""Sessions of one key, record by record."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from recount.core.windows import SessionWindows
from recount.spark.operators.placed import ByTime, Placed, Placement, Window


class Sessions:
    """Records, and the sessions that they make.

    A chain is a stretch of time in which records follow each other at most a gap apart. It is one session, unless it is
    longer than the longest duration: only then are its records looked at one by one.
    """

    def __init__(self, windows: SessionWindows, records: Iterable[Placed] = ()) -> None:
        self._windows = windows
        self.records = ByTime(records)
        self._starts: list[int] = []
        self._ends: list[int] = []
        for record in self.records.all:
            self._chain(record.timestamp_ms)

    def add(self, record: Placed) -> None:
        """Put it where its time says."""
        self.records.add(record)
        self._chain(record.timestamp_ms)

    @property
    def all(self) -> list[Window]:
        """All sessions by time."""
        return self._of_chains(0, len(self._starts))

    def near(self, timestamp_ms: int) -> list[Window]:
        """The sessions of the chains that a record at ``timestamp_ms`` would be in."""
        return self._of_chains(*self._reached(timestamp_ms))

    def with_one_at(self, timestamp_ms: int) -> list[Window]:
        """The same with a record at ``timestamp_ms``."""
        start_ms, end_ms = self._joined(timestamp_ms, *self._reached(timestamp_ms))
        if not self._is_cut(start_ms, end_ms):
            return [(start_ms, end_ms)]
        times = [one.timestamp_ms for one in self.records.between(start_ms, end_ms)]
        return self._cut(sorted([*times, timestamp_ms]))

    def _reached(self, timestamp_ms: int) -> tuple[int, int]:
        """The chains at most a gap away from ``timestamp_ms``: the first, and the one after the last."""
        first = bisect_left(self._ends, timestamp_ms - self._windows.gap_ms)
        return first, bisect_right(self._starts, timestamp_ms + self._windows.gap_ms, lo=first)

    def _joined(self, timestamp_ms: int, first: int, last: int) -> Window:
        """Those chains and a record at ``timestamp_ms`` as one."""
        return min([timestamp_ms, *self._starts[first:last]]), max([timestamp_ms, *self._ends[first:last]])

    def _chain(self, timestamp_ms: int) -> None:
        first, last = self._reached(timestamp_ms)
        start_ms, end_ms = self._joined(timestamp_ms, first, last)
        self._starts[first:last], self._ends[first:last] = [start_ms], [end_ms]

    def _of_chains(self, first: int, last: int) -> list[Window]:
        found: list[Window] = []
        for start_ms, end_ms in zip(self._starts[first:last], self._ends[first:last], strict=True):
            if self._is_cut(start_ms, end_ms):
                found += self._cut([one.timestamp_ms for one in self.records.between(start_ms, end_ms)])
            else:
                found.append((start_ms, end_ms))
        return found

    def _is_cut(self, start_ms: int, end_ms: int) -> bool:
        longest_ms = self._windows.max_duration_ms
        return longest_ms is not None and end_ms - start_ms > longest_ms

    def _cut(self, times: Sequence[int]) -> list[Window]:
        """Taking ``times`` in order: each continues the session at hand or begins a new one."""
        sessions: list[Window] = []
        for time_ms in times:
            if sessions and self._windows.continues(*sessions[-1], time_ms):
                sessions[-1] = sessions[-1][0], time_ms
            else:
                sessions.append((time_ms, time_ms))
        return sessions


class SessionPane:
    """Session: records that follow each other closely enough are one session, cut at the longest duration.

    gap 5:   0──3──7        14──16        one session [0, 7], another [14, 16]; a record at 10 makes them [0, 16]

    A record is judged by the session that it would be in among the accepted records of its ``source``, and is late
    altogether where even one that ends ``reach_ms`` after it would be closed.
    """

    def __init__(self, windows: SessionWindows, accepted: Iterable[Placed]) -> None:
        self._windows = windows
        records = list(accepted)
        self._accepted = Sessions(windows, records)
        self._own = {
            source: Sessions(windows, (one for one in records if one.source == source))
            for source in {one.source for one in records}
        }

    def add(self, record: Placed) -> Placement:
        """A session that takes others in withdraws them; not where it is just the record's own moment."""
        at_ms = record.timestamp_ms
        moment = (at_ms, at_ms)
        if record.is_late(self._windows, record.timestamp_ms + self._windows.reach_ms):
            return Placement(accepted=False, late=[moment])
        alone = Sessions(self._windows)
        own = self._own.setdefault(record.source, alone) if record.source else alone
        would_be = _holding(at_ms, own.with_one_at(at_ms))
        if record.is_late(self._windows, would_be[1]):
            return Placement(accepted=False, late=[would_be])
        own.add(record)
        before, after = set(self._accepted.near(at_ms)), set(self._accepted.with_one_at(at_ms))
        window = _holding(at_ms, after)
        self._accepted.add(record)
        taken_in = {old for old in before if old not in after or old == window}
        withdrawn = taken_in - {moment} if window == moment else taken_in
        return Placement(
            changed=sorted((after - before) | {window}), withdrawn=sorted(withdrawn, key=lambda old: (old[1], old[0]))
        )

    def members(self, window: Window) -> list[Placed]:
        """The records of the session."""
        return self._accepted.records.between(*window) if window in self._accepted.near(window[0]) else []

    def contents(self) -> Mapping[Window, list[Placed]]:
        """All sessions."""
        return {window: self._accepted.records.between(*window) for window in self._accepted.all}

    def records(self) -> Sequence[Placed]:
        """All accepted records."""
        return self._accepted.records.all

    def settled(self, settled_ms: int) -> list[Placed]:
        """The records that no other can join any more, and that move no cut.

        They end where a session begins, and no session of a partition alone goes on.
        """
        sessions, records = self._accepted.all, self._accepted.records.all
        begin_ms = next((start for start, end in sessions if self._windows.settles_ms(end) > settled_ms), None)
        if begin_ms is None:
            return records
        own = [window for source, ones in self._own.items() if source for window in ones.all]
        while earlier := [start for start, end in own if start < begin_ms <= end]:
            begin_ms = max(start for start, _ in sessions if start <= min(earlier))
        return [one for one in records if one.timestamp_ms < begin_ms]


def _holding(timestamp_ms: int, sessions: Iterable[Window]) -> Window:
    """The one in which ``timestamp_ms`` lies: no two share a moment."""
    return next(one for one in sessions if one[0] <= timestamp_ms <= one[1])
