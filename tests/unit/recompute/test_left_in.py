"""In which batch a row had left what it waits for: by its place and its time, or by its time alone."""

from __future__ import annotations

import pytest

from recount.recompute.operators.frontiers import BatchEnds, Wait, left_in

AWAKE = frozenset({("clicks", 0)})
BATCHES = [BatchEnds(ends={("clicks", 0): end}, awake=AWAKE) for end in (2, 4, 6)]
FRONTIER = Wait([10, 20, 30], 5)


@pytest.mark.parametrize(("offset", "time_ms", "batch"), [(0, 5, 0), (0, 6, 1), (4, 5, 2), (0, 26, 3)])
def test_a_record_leaves_when_it_was_read_and_the_frontier_is_far_enough(offset: int, time_ms: int, batch: int) -> None:
    assert left_in(BATCHES, [FRONTIER])("clicks", 0, offset, time_ms) == batch


@pytest.mark.parametrize(("time_ms", "batch"), [(5, 0), (6, 1), (26, 3)])
def test_a_derived_row_leaves_when_the_frontier_is_far_enough(time_ms: int, batch: int) -> None:
    assert left_in(BATCHES, [FRONTIER])(None, None, None, time_ms) == batch
