"""Which part of the log is read for an interval, and how it is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.advise.lens.lens_logs import ClickLog, click_logs, kept_key

from recount.declare.windows import session, tumbling
from recount.runtime.errors import Terminal

TEN = kept_key(tumbling("10 ms", grace="0 ms"))
LOG = ClickLog([[(0, time_ms, "ann"), (1, time_ms, "bob")] for time_ms in (5, 15, 25, 35, 45)])


def test_without_an_interval_all_batches_are_asked_about() -> None:
    span = LOG.span(TEN)
    assert (span.ranges, span.judged_from) == ({0: (0, 5), 1: (0, 5)}, {0: 0, 1: 0})


def test_batches_before_the_interval_are_read_as_far_as_they_share_windows() -> None:
    """Before batch 4 stream time is 35: no record on time is in a window that starts before 25."""
    span = LOG.span(TEN, start_ms=5_000)
    assert (span.ranges, span.judged_from) == ({0: (2, 5), 1: (2, 5)}, {0: 4, 1: 4})
    assert (span.reached_ms, span.whole_since_ms) == ({0: 15, 1: 15}, 25)


def test_of_sessions_and_where_a_partition_lags_more_is_read_and_the_end_cuts_by_the_recorded_time() -> None:
    everything = {0: (0, 5), 1: (0, 5)}
    behind = ClickLog([[(0, time_ms, "ann"), (1, 6, "bob")] for time_ms in (5, 15, 25, 35, 45)])
    assert behind.span(TEN, start_ms=5_000).ranges == everything
    assert LOG.span(kept_key(session("5 ms", grace="0 ms")), start_ms=5_000).ranges == everything
    assert LOG.span(TEN, end_ms=3_000).ranges == {0: (0, 2), 1: (0, 2)}


def test_an_interval_without_records_is_refused() -> None:
    with pytest.raises(Terminal, match="clicks has read no record then"):
        LOG.span(TEN, start_ms=6_000)


@given(log=click_logs(partitions=3), size=st.integers(1, 8))
def test_batches_of_so_many_hold_every_offset_once_and_no_more_than_asked_for(log: ClickLog, size: int) -> None:
    """Each partition with records gets one at least, as in Spark: so a batch can have one more for each of them."""
    span = log.span(TEN)
    cut = span.in_batches_of(size)
    assert {p: (bounds[0], bounds[-1]) for p, bounds in cut.bounds.items()} == span.ranges
    for number in range(cut.batches):
        shares = [bounds[number + 1] - bounds[number] for bounds in cut.bounds.values()]
        assert min(shares) >= 0 and 1 <= sum(shares) <= size + len(shares)
    assert all(a <= b for bounds in cut.bounds.values() for a, b in pairwise(bounds.tolist()))


def test_a_batch_is_shared_by_what_is_left_in_each_partition() -> None:
    log = ClickLog([[*[(0, 1, "ann")] * 6, *[(1, 1, "bob")] * 3]])
    cut = log.span(TEN).in_batches_of(3)
    assert {p: bounds.tolist() for p, bounds in cut.bounds.items()} == {0: [0, 2, 4, 6], 1: [0, 1, 2, 3]}
