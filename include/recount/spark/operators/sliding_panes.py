"""Sliding windows of one key, record by record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from recount.core.windows import SlidingWindows
from recount.spark.operators.placed import ByTime, Placed, Placement, Window


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
        at_ms, left = record.timestamp_ms, self._windows.left_of(record.timestamp_ms)
        if record.is_late(self._windows, at_ms + self._windows.difference_ms):
            return Placement(accepted=False, late=[left])
        before = self._defined(self._near(at_ms), self._accepted)
        self._accepted.add(record)
        known = self._defined(self._near(at_ms), self._accepted)
        holding = {window for window in known | {left} if window[0] <= at_ms <= window[1]}
        late = {window for window in holding if record.is_late(self._windows, window[1])}
        changed = (holding & known - late) | (known - before)
        leaving = sorted(changed, key=lambda window: self._windows.leaving_order(at_ms, window, window in before))
        return Placement(changed=leaving, late=sorted(late & self._own(record)) if late else [])

    def members(self, window: Window) -> list[Placed]:
        """The records inside ``window`` that were on time for it; none where none defines it (any more)."""
        start_ms, end_ms = window
        near = [one for one in self._accepted.between(start_ms - 1, end_ms) if not one.is_late(self._windows, end_ms)]
        if not any(window in self._beside(one) for one in near):
            return []
        return [one for one in near if one.timestamp_ms >= start_ms]

    def contents(self) -> Mapping[Window, list[Placed]]:
        """Every window that is there."""
        return {window: self.members(window) for window in self._defined(self._accepted.all, self._accepted)}

    def records(self) -> Sequence[Placed]:
        """All accepted records."""
        return self._accepted.all

    def _near(self, timestamp_ms: int) -> list[Placed]:
        """The records that can be in one window with ``timestamp_ms``, or define one that holds it."""
        reach_ms = self._windows.difference_ms + 1
        return self._accepted.between(timestamp_ms - reach_ms, timestamp_ms + reach_ms)

    def _own(self, record: Placed) -> set[Window]:
        """Its own window, and those that the records of its ``source`` define and are in."""
        ours = [one for one in self._near(record.timestamp_ms) if record.source and one.source == record.source]
        return self._defined(ours, ByTime(ours)) | {self._windows.left_of(record.timestamp_ms)}

    def _defined(self, records: Iterable[Placed], among: ByTime) -> set[Window]:
        """The windows that ``records`` define, and one of those ``among`` is in."""
        defined = {
            window for one in records for window in self._beside(one) if not one.is_late(self._windows, window[1])
        }
        return {window for window in defined if self._is_held(window, among)}

    def _is_held(self, window: Window, records: ByTime) -> bool:
        """Whether one of ``records`` is in ``window``, and on time for it."""
        return any(not one.is_late(self._windows, window[1]) for one in records.within(*window))

    def _beside(self, record: Placed) -> tuple[Window, Window]:
        """The windows that end with the record and begin after it."""
        return self._windows.left_of(record.timestamp_ms), self._windows.right_of(record.timestamp_ms)
