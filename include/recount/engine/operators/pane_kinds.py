"""Session panes and sliding panes: the windows of one key, record by record, and records by time."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from recount.declare.windows import ClosingWindows, SessionWindows, SlidingWindows

Window = tuple[int, int]
"""Start and end in milliseconds."""
Source = tuple[str, int]
"""A topic and a partition of it."""


class Placed(NamedTuple):
    """A record as panes see it; ``number`` counts up as records arrive. Sorted by time, log order, arrival.

    ``topic`` and ``partition`` are those among whose records it is judged. None: by itself, for it is derived, or was
    held back, so that others of its partition may have overtaken it.
    """

    timestamp_ms: int
    order: str
    number: int
    topic: str | None = None
    partition: int | None = None
    judged_ms: int | None = None
    revision: int = 0

    @property
    def source(self) -> Source | None:
        """Where the records lie among which it is judged."""
        return None if self.topic is None or self.partition is None else (self.topic, self.partition)

    def is_late(self, windows: ClosingWindows, end_ms: int) -> bool:
        """Whether a window that ends at ``end_ms`` was closed when the record came."""
        return self.judged_ms is not None and windows.is_closed(end_ms, self.judged_ms)


@dataclass(kw_only=True)
class Placement:
    """The effect of a record; ``accepted`` is false where it is late for all windows that could ever hold it."""

    accepted: bool = True
    changed: list[Window] = field(default_factory=list)
    withdrawn: list[Window] = field(default_factory=list)
    late: list[Window] = field(default_factory=list)


class ByTime:
    """Records by time, and those of them between two times."""

    def __init__(self, records: Iterable[Placed]) -> None:
        self.all = sorted(records)
        self._times = [one.timestamp_ms for one in self.all]

    def add(self, record: Placed) -> int:
        at = bisect_right(self.all, record)
        self.all.insert(at, record)
        insort(self._times, record.timestamp_ms)
        return at

    def between(self, start_ms: int, end_ms: int) -> list[Placed]:
        """Records with ``start_ms <= time <= end_ms``."""
        first = bisect_left(self._times, start_ms)
        return self.all[first : bisect_right(self._times, end_ms, lo=first)]


class Sessions:
    """Records, and the sessions that they make.

    A chain is an interval in which records follow each other at most a gap apart. It is one session, unless it is
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
        self.records.add(record)
        self._chain(record.timestamp_ms)

    @property
    def all(self) -> list[Window]:
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
        """One window of the chains from ``first`` to ``last`` and a record at ``timestamp_ms``."""
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
        return self._accepted.records.between(*window) if window in self._accepted.near(window[0]) else []

    def contents(self) -> Mapping[Window, list[Placed]]:
        return {window: self._accepted.records.between(*window) for window in self._accepted.all}

    def records(self) -> Sequence[Placed]:
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
    """The session that holds ``timestamp_ms``: no two share a moment."""
    return next(one for one in sessions if one[0] <= timestamp_ms <= one[1])


class SlidingPane:
    """Sliding: the records define the windows, ``[ts - difference, ts]`` and ``[ts + 1, ts + 1 + difference]``.

    difference 10:   records   15        22      28
        [5, 15] ends at 15; [16, 26] begins after 15 and holds 22; [12, 22] ends at 22; [23, 33] holds 28; ...

    A window is there when a record defines it and one is in it, both on time for it.
    """

    def __init__(self, windows: SlidingWindows, accepted: Iterable[Placed]) -> None:
        self._windows = windows
        self._accepted = ByTime(accepted)

    def add(self, record: Placed) -> Placement:
        """The ledger names, of the windows missed, the record's own and those that its ``source`` had defined."""
        windows, at_ms = self._windows, record.timestamp_ms
        left = windows.left_of(at_ms)
        if record.is_late(windows, at_ms + windows.difference_ms):
            return Placement(accepted=False, late=[left])
        near = self._near(at_ms)
        existed = {left: False, **self._around(near, at_ms)}
        late = {window for window in existed if record.is_late(windows, window[1])}
        changed = [window for window in existed if window not in late]
        if self._begins_after(near, at_ms):
            changed.append(windows.right_of(at_ms))
        changed.sort(key=lambda window: windows.leaving_order(at_ms, window, existed.get(window, False)))
        self._accepted.add(record)
        if not late:
            return Placement(changed=changed)
        ours = self._around([one for one in near if record.source and one.source == record.source], at_ms)
        return Placement(changed=changed, late=sorted(window for window in late if window == left or ours.get(window)))

    def members(self, window: Window) -> list[Placed]:
        """The records inside ``window`` that were on time for it; none where none defines it (any more)."""
        start_ms, end_ms = window
        inside = self._on_time(window, self._accepted.between(start_ms, end_ms))
        ends_with_one = inside and (inside[-1].timestamp_ms == end_ms or start_ms == 0)
        if ends_with_one or self._on_time(window, self._accepted.between(start_ms - 1, start_ms - 1)):
            return inside
        return []

    def contents(self) -> Mapping[Window, list[Placed]]:
        left, right = self._windows.left_of, self._windows.right_of
        defined = {window(one.timestamp_ms) for one in self._accepted.all for window in (left, right)}
        return {window: members for window in defined if (members := self.members(window))}

    def records(self) -> Sequence[Placed]:
        return self._accepted.all

    def _near(self, timestamp_ms: int) -> list[Placed]:
        """The records that can be in one window with ``timestamp_ms``, or define one that holds it."""
        reach_ms = self._windows.difference_ms + 1
        return self._accepted.between(timestamp_ms - reach_ms, timestamp_ms + reach_ms)

    def _around(self, near: Sequence[Placed], at_ms: int) -> dict[Window, bool]:
        """The windows that records of ``near`` define and ``at_ms`` is in, and whether one of ``near`` is in them."""
        windows, found = self._windows, dict[Window, bool]()
        for place, one in enumerate(near):
            start_ms, end_ms = left = windows.left_of(one.timestamp_ms)
            if start_ms <= at_ms <= end_ms and not one.is_late(windows, end_ms):
                found[left] = True
            if one.timestamp_ms < at_ms:
                right = windows.right_of(one.timestamp_ms)
                if not found.get(right) and not one.is_late(windows, right[1]):
                    found[right] = self._is_held(right, near, place + 1)
        return found

    def _is_held(self, window: Window, near: Sequence[Placed], first: int) -> bool:
        """Whether one of ``near``, from the ``first`` on, is in ``window`` and on time for it."""
        start_ms, end_ms = window
        for place in range(first, len(near)):
            one = near[place]
            if one.timestamp_ms > end_ms:
                return False
            if one.timestamp_ms >= start_ms and not one.is_late(self._windows, end_ms):
                return True
        return False

    def _begins_after(self, near: Sequence[Placed], at_ms: int) -> bool:
        """Whether a record at ``at_ms`` brings the window into being that begins after it."""
        window = start_ms, end_ms = self._windows.right_of(at_ms)
        on_time = self._on_time(window, (one for one in near if one.timestamp_ms >= at_ms))
        # one at the same time has defined it before, and so has one at its end
        existed = any(one.timestamp_ms in (at_ms, end_ms) for one in on_time)
        return not existed and any(one.timestamp_ms >= start_ms for one in on_time)

    def _on_time(self, window: Window, records: Iterable[Placed]) -> list[Placed]:
        """The ``records`` that were on time for ``window``."""
        return [one for one in records if not one.is_late(self._windows, window[1])]
