"""What an exact answer to the job that counts sessions is, found record by record where a record may be late."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bench.flow import PARTITIONS, Flow


def in_ended_sessions(flow: Flow, *, gap_ms: int, grace_ms: int) -> int:
    """How many records of ``flow`` are on time and in a session that has ended.

    A record is late where the session that it forms with those accepted before it was closed by the stream time of
    its own partition, which is its user's. The beats in the end are a session each that is still open.
    """
    assert flow.beats * 1_000 > gap_ms + grace_ms, "with fewer beats other sessions are open in the end"
    after_end_ms = gap_ms + grace_ms + 1
    by_user = np.argsort(flow.user, kind="stable")
    first_of_user = np.searchsorted(flow.user[by_user], np.arange(flow.users + PARTITIONS + 1))
    late: set[int] = set()
    # A record cannot be late unless it is late as a session of its own: few are.
    for index in np.flatnonzero(flow.timestamp_ms + after_end_ms <= flow.stream_time_ms).tolist():
        user = flow.user[index]
        of_user = by_user[first_of_user[user] : first_of_user[user + 1]]
        before = [other for other in of_user.tolist() if other < index and other not in late]
        end_ms = _end_ms(flow.timestamp_ms[before].tolist(), int(flow.timestamp_ms[index]), gap_ms)
        if end_ms + after_end_ms <= flow.stream_time_ms[index]:
            late.add(index)
    return flow.records - len(late) - flow.beats * PARTITIONS


def _end_ms(times_ms: Iterable[int], timestamp_ms: int, gap_ms: int) -> int:
    """Where the session around ``timestamp_ms`` ends."""
    end_ms = timestamp_ms
    for time_ms in sorted(times_ms):
        if 0 < time_ms - end_ms <= gap_ms:
            end_ms = time_ms
    return end_ms
