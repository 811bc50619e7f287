"""Session windows and sliding windows of one key: which there are, who is in them, who was late for them.

A session accepts by the records of the own partition; then all records say who is in one session with whom.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from recount.declare.windows import ClosingWindows, SessionWindows, SlidingWindows
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column, named, value_of
from recount.recompute.frames.duck_frames import Frame
from recount.recompute.operators.log_rows import CARRIED, OFFSET, ORDER, PARTITION, STREAM_TIME, TIME, TOPIC, in_groups
from recount.recompute.rules.time_rules import overdue_ms

Order = tuple[Any, ...]
Span = tuple[int, int]
Window = tuple[int, int]


class Judged(NamedTuple):
    """A record: its event time, its place in the order of the log, and by what it is judged.

    ``source`` is the topic and partition among whose records it is judged; None if by itself, for it is derived, or was
    held back and comes in another order than the log's. ``stream_time_ms`` is that by which it is judged; None for a
    derived record: it is never late.
    """

    timestamp_ms: int
    order: Order
    source: tuple[str, int] | None = None
    stream_time_ms: int | None = None

    def is_late_for(self, windows: ClosingWindows, end_ms: int) -> bool:
        """Whether a window that ends at ``end_ms`` was closed when the record was read."""
        return self.stream_time_ms is not None and bool(overdue_ms(windows, end_ms, self.stream_time_ms) >= 0)


class Placed(NamedTuple):
    """The record ``number`` is in the window [start, end], or was too late for it."""

    number: int
    start: int
    end: int
    is_late: bool


def by_source(records: list[Judged]) -> list[list[int]]:
    """The records' numbers, one list for each ``source``, in the order of the log; without one, each by itself."""
    sources: dict[object, list[int]] = {}
    for index in sorted(range(len(records)), key=lambda number: records[number].order):
        sources.setdefault(records[index].source or index, []).append(index)
    return list(sources.values())


def judged_records(table: pa.Table) -> list[Judged]:
    """The records of ``table`` as a placing wants them."""
    columns = (TIME, ORDER, TOPIC, PARTITION, OFFSET, CARRIED, STREAM_TIME)
    return [
        Judged(
            at_ms, order_of(order), (topic, partition) if offset is not None and carried is None else None, reached_ms
        )
        for at_ms, order, topic, partition, offset, carried, reached_ms in zip(
            *(table.column(name).to_pylist() for name in columns), strict=True
        )
    ]


def order_of(steps: list[dict[str, object]]) -> tuple[object, ...]:
    """An ``ORDER`` as Python compares it."""
    return tuple(tuple(step.values()) for step in steps)


def turn_of(turn: dict[str, int] | None) -> tuple[int, ...]:
    """A ``TURN`` as Python compares it: before all others where there is none."""
    return () if turn is None else tuple(turn.values())


def in_sessions(windows: SessionWindows, records: list[Judged]) -> list[Placed]:
    """Every record in its session, or late for the one that it would have been in.

    Gap 5: records at 0, 3, 7 are one session [0, 7]; one at 13 begins another.
    """
    late = [placed for numbers in by_source(records) for placed in _late(windows, records, numbers)]
    refused = {placed.number for placed in late}
    accepted = (index for index in range(len(records)) if index not in refused)
    return late + [
        Placed(index, records[members[0]].timestamp_ms, records[members[-1]].timestamp_ms, is_late=False)
        for members in _sessions(windows, records, accepted)
        for index in members
    ]


def _late(windows: SessionWindows, records: list[Judged], numbers: Iterable[int]) -> Iterator[Placed]:
    """The late records of one source partition, ``numbers`` in offset order.

    A record that would be on time all alone is on time in any session: that one ends no earlier. One that is late for a
    session that ends its reach later is late for any, and named with its own moment.
    """
    accepted: list[int] = []
    for index in numbers:
        record = records[index]
        at_ms = record.timestamp_ms
        if record.is_late_for(windows, at_ms + windows.reach_ms):
            yield Placed(index, at_ms, at_ms, is_late=True)
            continue
        if record.is_late_for(windows, at_ms):
            sessions = _sessions(windows, records, [*accepted, index])
            members = next(members for members in sessions if index in members)
            start, end = records[members[0]].timestamp_ms, records[members[-1]].timestamp_ms
            if record.is_late_for(windows, end):
                yield Placed(index, start, end, is_late=True)
                continue
        accepted.append(index)


def _sessions(windows: SessionWindows, records: list[Judged], numbers: Iterable[int]) -> Iterator[list[int]]:
    """Taking the records by time, each continues the session at hand or begins a new one."""
    members: list[int] = []
    for index in sorted(numbers, key=lambda number: (records[number].timestamp_ms, records[number].order)):
        at_ms = records[index].timestamp_ms
        if members and _is_apart(windows, at_ms, records[members[0]].timestamp_ms, records[members[-1]].timestamp_ms):
            yield members
            members = []
        members.append(index)
    if members:
        yield members


def _is_apart(windows: SessionWindows, at_ms: int, first_ms: int, last_ms: int) -> bool:
    """Whether a record at ``at_ms`` is more than a gap after the last, or further than may be from the first."""
    longest_ms = windows.max_duration_ms
    return at_ms - last_ms > windows.gap_ms or (longest_ms is not None and at_ms - first_ms > longest_ms)


def with_reachable(key: str, windows: SessionWindows, placed: Frame, bounds: tuple[str, str], since_ms: int) -> Frame:
    """The ``placed`` records that are in a session which a record to come can change (``reachable``)."""
    may_be = placed.where(F.col(bounds[1]) >= _first_reachable_ms(windows, since_ms))
    if windows.max_duration_ms is None:
        # sessions of one partition lie within those of all
        return may_be

    def of_one_key(table: pa.Table) -> pa.Table:
        starts, ends = (table.column(name).to_pylist() for name in bounds)
        spans = list(zip(starts, ends, strict=True))
        kept = reachable(windows, sorted(set(spans)), since_ms, judged_records(table))
        return table.filter(pa.array([span in kept for span in spans], pa.bool_()))

    keys = may_be.select(named(key).alias("__of")).distinct()
    of_keys = placed.join(keys, named(key) == F.col("__of"), "left_semi")
    return in_groups(of_keys, [key], of_one_key, placed.schema)


def reachable(
    windows: SessionWindows, sessions: Sequence[Span], since_ms: int, records: list[Judged] | None = None
) -> set[Span]:
    """The ``sessions`` of one key, by time, that a record can change or miss which was not late at ``since_ms``.

    Such a record is at most the reach before the end of a session that is open then, and at most a gap after another.

    Gap 5, no grace, reach 20, at 100: a session is open if it ends at 95 or later, so a record of 75 is on time in one,
    and can join what ended at 70.

    Where sessions are cut depends on what was before, in all ``records`` and in those of each partition; so what is
    kept begins where no partition has a session that began before.
    """
    first_ms = _first_reachable_ms(windows, since_ms)
    begins = next((start for start, end in sessions if end >= first_ms), None)
    if begins is None:
        return set()
    begin_ms = _where_none_goes_on(windows, sessions, begins, records or [])
    return {one for one in sessions if one[0] >= begin_ms}


def _first_reachable_ms(windows: SessionWindows, since_ms: int) -> int:
    return since_ms - windows.grace_ms - 2 * windows.gap_ms - windows.reach_ms


def is_out_of_reach(windows: SessionWindows, clock_ms: int | Column) -> Column:
    """Whether a record is late at ``clock_ms`` for every session that it could be in."""
    is_late: Column = overdue_ms(windows, F.col(TIME) + windows.reach_ms, value_of(clock_ms)) >= 0
    return is_late


def _where_none_goes_on(windows: SessionWindows, sessions: Sequence[Span], begin_ms: int, records: list[Judged]) -> int:
    """The last start of a session, at most ``begin_ms``, at which no partition's own session has begun already."""
    own = [
        (records[members[0]].timestamp_ms, records[members[-1]].timestamp_ms)
        for numbers in by_source(records)
        for members in _sessions(windows, records, numbers)
    ]
    while earlier := [start for start, end in own if start < begin_ms <= end]:
        begin_ms = max(start for start, _ in sessions if start <= min(earlier))
    return begin_ms


def slid(windows: SlidingWindows, records: list[Judged]) -> list[Placed]:
    """Every record in each of its windows, and the late ones.

    A window is there if a record that is on time for it defines it and one that is on time for it is in it.
    Difference 10, records at 15 and 22: [5, 15] holds one, [16, 26] and [12, 22] hold both or the second.
    """
    accepted = [
        index
        for index, record in enumerate(records)
        if not record.is_late_for(windows, record.timestamp_ms + windows.difference_ms)
    ]
    return [*_inside(windows, records, accepted), *_late_for_sliding(windows, records, frozenset(accepted))]


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


def _late_for_sliding(windows: SlidingWindows, records: list[Judged], accepted: frozenset[int]) -> Iterator[Placed]:
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
