"""What passes through the driver passes in pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest

from recount.audit.carry.snapshots import pieces


@pytest.mark.parametrize("offsets", [1, 3, 4, 100])
def test_pieces_of_a_range_follow_each_other_and_are_the_whole(offsets: int) -> None:
    whole = {0: (5, 15), 1: (0, 0), 2: (7, 8)}
    parts = list(pieces(whole, offsets))
    for partition, (start, end) in whole.items():
        spans = [part[partition] for part in parts]
        assert (spans[0][0], spans[-1][1]) == (start, end)
        assert all(one[1] == other[0] for one, other in pairwise(spans))


def test_of_nothing_there_is_one_piece() -> None:
    assert list(pieces({}, 10)) == [{}]
    assert list(pieces({0: (4, 4)}, 10)) == [{0: (4, 4)}]
