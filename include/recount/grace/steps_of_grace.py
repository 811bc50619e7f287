"""Which additions to a grace are worth looking at: chosen by how late the late records were."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

_SHARES = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0)
_S, _MIN, _H, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_ROUND = [
    *(number * unit for unit in (1, 10, 100) for number in (1, 2, 5)),
    *(number * _S for number in (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    *(number * _MIN for number in (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45)),
    *(number * _H for number in (1, 2, 3, 4, 6, 8, 12, 18)),
    _DAY,
]


def steps_of_grace(short_by_ms: Sequence[int], limit_ms: int) -> list[int]:
    """Additions, rising, that save 10, 25, 50, 75, 90, 95, 99 and 100 % at least; ``short_by_ms`` rises.

    Each is rounded up to what a person would write: 1,001 ms and 117,000 ms to 2 s and 2 min. ``limit_ms`` is one of
    them where it saves some that the steps below it do not.
    """
    count = len(short_by_ms)
    if not count:
        return []
    steps = {rounded_up(short_by_ms[math.ceil(share * count) - 1]) for share in _SHARES}
    below = max((step for step in steps if step <= limit_ms), default=0)
    if bisect_right(short_by_ms, below) < bisect_right(short_by_ms, limit_ms):
        steps.add(limit_ms)
    return sorted(steps)


def rounded_up(ms: int) -> int:
    """The next round duration: of days whole ones."""
    place = bisect_left(_ROUND, ms)
    return _ROUND[place] if place < len(_ROUND) else -(-ms // _DAY) * _DAY
