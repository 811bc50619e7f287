"""Which windows a key's records are in, by the recompute: by hand, and beside the interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recount.declare.windows import ClosingWindows, SessionWindows, SlidingWindows
from recount.recompute.operators.log_sessions import Judged, Placed, in_sessions, slid
from recount.reference.record_panes import panes_of
from recount.reference.records import Entry, Record

Log = list[tuple[int, int, int]]
"""Partition, event time, and the stream time's lead over it."""
logs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 25)), max_size=20)
WINDOWS: list[ClosingWindows] = [
    SlidingWindows(difference_ms=6, grace_ms=4),
    SlidingWindows(difference_ms=10, grace_ms=0),
    SessionWindows(gap_ms=4, grace_ms=3),
    SessionWindows(gap_ms=4, grace_ms=3, reach_ms=6),
    SessionWindows(gap_ms=4, grace_ms=0, max_duration_ms=9),
]


def judged(log: Log) -> list[Judged]:
    return [
        Judged(at, (("log", partition, offset),), ("log", partition), at + lead)
        for offset, (partition, at, lead) in enumerate(log)
    ]


def place(windows: ClosingWindows, records: list[Judged]) -> list[Placed]:
    return slid(windows, records) if isinstance(windows, SlidingWindows) else in_sessions(windows, records)  # type: ignore[arg-type]


def by_the_interpreter(windows: ClosingWindows, log: Log) -> Counter[Placed]:
    """Every record in the windows that hold it in the end, and late for those that it was late for as it came."""
    panes, placed, windows_seen, order = panes_of(windows), Counter[Placed](), set(), []
    for offset, (partition, at, lead) in enumerate(log):
        entry = Entry(topic="log", partition=partition, offset=offset, timestamp_ms=at)
        record = Record(row={}, timestamp_ms=at, order=("log", partition, offset), entry=entry)
        order.append(record)
        placement = panes.add(record, at + lead)
        windows_seen |= set(placement.changed)
        placed.update(Placed(offset, start, end, True) for start, end in placement.late)
    for start, end in windows_seen:
        placed.update(Placed(record.order[2], start, end, False) for record in panes.records((start, end)))
    return placed


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@settings(max_examples=200, deadline=None)
@given(log=logs)
def test_every_record_is_placed_as_the_interpreter_places_it(windows: ClosingWindows, log: Log) -> None:
    assert Counter(place(windows, judged(log))) == by_the_interpreter(windows, log)


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@settings(max_examples=50, deadline=None)
@given(log=logs, data=st.data())
def test_placing_does_not_depend_on_the_order_in_which_the_records_are_given(
    windows: ClosingWindows, log: Log, data: st.DataObject
) -> None:
    records = judged(log)
    mixed = data.draw(st.permutations(range(len(records))))

    def told(given: Sequence[Judged]) -> Counter[Any]:
        return Counter((given[one.number], *one[1:]) for one in place(windows, list(given)))

    assert told(records) == told([records[number] for number in mixed])


def test_a_derived_record_is_never_late() -> None:
    for windows in WINDOWS:
        assert not any(placed.is_late for placed in place(windows, [Judged(0, (0,)), Judged(99, (1,))]))
