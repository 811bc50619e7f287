"""Sliding windows of one key: which there are, who is in them, who was late for them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from recount.core.windows import SlidingWindows
from recount.recompute.graph.placing import Judged, Placed, by_source

Window = tuple[int, int]


def slid(windows: SlidingWindows, records: list[Judged]) -> list[Placed]:
    """Every record in each of its windows, and the late ones.

    A window is there if a record that is on time for it defines it and one that is on time for it lies in it.
    Difference 10, records at 15 and 22: [5, 15] holds one, [16, 26] and [12, 22] hold both or the second.
    """
    accepted = [
        index
        for index, record in enumerate(records)
        if not record.is_late_for(windows, record.timestamp_ms + windows.difference_ms)
    ]
    return [*_inside(windows, records, accepted), *_late(windows, records, frozenset(accepted))]


def _defined_by(windows: SlidingWindows, record: Judged) -> list[Window]:
    next_ms = record.timestamp_ms + 1
    both = _left_window(windows, record), (next_ms, next_ms + windows.difference_ms)
    return [window for window in both if not record.is_late_for(windows, window[1])]


def _left_window(windows: SlidingWindows, record: Judged) -> Window:
    """The window that ends with ``record``; records earlier than the difference share the one that begins at 0."""
    end_ms = max(record.timestamp_ms, windows.difference_ms)
    return end_ms - windows.difference_ms, end_ms


def _inside(windows: SlidingWindows, records: list[Judged], accepted: list[int]) -> Iterator[Placed]:
    by_time = sorted(accepted, key=lambda index: records[index].timestamp_ms)
    times = [records[index].timestamp_ms for index in by_time]
    for start, end in sorted({window for index in accepted for window in _defined_by(windows, records[index])}):
        for index in by_time[bisect_left(times, start) : bisect_right(times, end)]:
            if not records[index].is_late_for(windows, end):
                yield Placed(index, start, end, is_late=False)


def _late(windows: SlidingWindows, records: list[Judged], accepted: frozenset[int]) -> Iterator[Placed]:
    """A record late altogether: for its left window. Another: for that, and those its own partition had defined."""
    for numbers in by_source(records):
        known: list[int] = []
        for index in numbers:
            record = records[index]
            left = _left_window(windows, record)
            if index not in accepted:
                yield Placed(index, *left, is_late=True)
                continue
            known.append(index)
            if record.is_late_for(windows, record.timestamp_ms):
                for start, end in sorted({left} | _holding(windows, records, known, record.timestamp_ms)):
                    if record.is_late_for(windows, end):
                        yield Placed(index, start, end, is_late=True)


def _holding(windows: SlidingWindows, records: list[Judged], known: list[int], at_ms: int) -> set[Window]:
    """The windows around ``at_ms`` that the ``known`` records define and are in."""
    near = [
        records[index] for index in known if abs(records[index].timestamp_ms - at_ms) <= 2 * windows.difference_ms + 1
    ]
    defined = {window for one in near for window in _defined_by(windows, one) if window[0] <= at_ms <= window[1]}
    return {
        (start, end)
        for start, end in defined
        if any(start <= one.timestamp_ms <= end and not one.is_late_for(windows, end) for one in near)
    }
