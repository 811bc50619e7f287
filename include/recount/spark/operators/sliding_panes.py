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
        """Every window that is there."""
        left, right = self._windows.left_of, self._windows.right_of
        defined = {window(one.timestamp_ms) for one in self._accepted.all for window in (left, right)}
        return {window: members for window in defined if (members := self.members(window))}

    def records(self) -> Sequence[Placed]:
        """All accepted records."""
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
        """Those of ``records`` that were on time for ``window``."""
        return [one for one in records if not one.is_late(self._windows, window[1])]
