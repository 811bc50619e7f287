"""Session windows of one key: who is accepted, by the records of the own partition; then who is with whom, by all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from recount.core.windows import SessionWindows
from recount.recompute.columns import named
from recount.recompute.graph.placing import Judged, Placed, by_source, judged_records
from recount.recompute.graph.rows import TIME, in_groups
from recount.recompute.rules.closing import overdue_ms

Span = tuple[int, int]


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


def with_reachable(
    key: str, windows: SessionWindows, placed: DataFrame, bounds: tuple[str, str], since_ms: int
) -> DataFrame:
    """Those of the ``placed`` records that are in a session which a record to come can change (``reachable``)."""
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
    is_late: Column = overdue_ms(windows, F.col(TIME) + windows.reach_ms, F.lit(clock_ms)) >= 0
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
