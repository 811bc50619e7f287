"""The offsets nobody saw, as ranges."""

from __future__ import annotations

import pytest

from recount.kafka.offsets import missing_ranges


@pytest.mark.parametrize(
    ("seen", "ranges"),
    [
        ([], [(0, 5)]),
        ([0, 1, 2, 3, 4], []),
        ([0, 4], [(1, 4)]),
        ([1, 2, 3], [(0, 1), (4, 5)]),
    ],
)
def test_ranges_are_half_open_and_cover_what_is_missing(seen: list[int], ranges: list[tuple[int, int]]) -> None:
    assert missing_ranges(seen, 0, 5) == ranges


def test_an_empty_range_misses_nothing() -> None:
    assert missing_ranges([], 3, 3) == []
