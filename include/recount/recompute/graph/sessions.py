"""Session windows of one key: who is accepted, by the records of the own partition; then who is with whom, by all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recount.core.windows import SessionWindows
from recount.recompute.graph.placing import Judged, Placed, by_source


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

    A record that would be on time all alone is on time in any session: that one ends no earlier.
    """
    accepted: list[int] = []
    for index in numbers:
        record = records[index]
        if record.is_late_for(windows, record.timestamp_ms):
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
