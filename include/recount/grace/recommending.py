"""Which additions to a grace are worth looking at, by how late the late records were; and which to take, in words."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from recount.core.durations import readable
from recount.grace.shortfalls import saved

_SHARES = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0)
_S, _MIN, _H, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_ROUND = [
    *(number * unit for unit in (1, 10, 100) for number in (1, 2, 5)),
    *(number * _S for number in (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    *(number * _MIN for number in (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45)),
    *(number * _H for number in (1, 2, 3, 4, 6, 8, 12, 18)),
    _DAY,
]


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """``added_ms`` more grace, 0: the grace stays; ``reason`` says why."""

    added_ms: int
    reason: str


def recommended(
    short_by: pl.Series, steps: Sequence[int], *, what: str, waits_ms: int, grace_ms: int
) -> Recommendation:
    """The longest of ``steps`` worth its delay: it does not more than double ``waits_ms``, and saves half at least.

    ``short_by`` is of each of ``what`` (``results``, ``records``) what the grace ``grace_ms`` was short by, rising.
    ``waits_ms`` is how long results wait for late records now. What a step does not save is left to backfills.

    Windows of 5 min with a grace of 5 s, 90 of 100 results short by at most 2 min, the others by 3 h: + 2 min.
    """
    count = len(short_by)
    if not count:
        return Recommendation(added_ms=0, reason="no record was late: nothing asks for a longer grace")
    worth = [step for step in steps if step <= waits_ms]
    # of steps that save the same the shortest
    best = max(worth, key=lambda step: (saved(short_by, step), -step), default=0)
    kept = saved(short_by, best)
    far = f"up to {readable(rounded_up(short_by[-1]))} more"
    if 2 * kept < count:
        waits = readable(waits_ms)
        return Recommendation(
            added_ms=0,
            reason=f"{count - kept:,} of {count:,} {what} need more than {waits} more, {far}: that would more than"
            f" double the {waits} for which results wait now; leave them to backfills",
        )
    rest = f"the other {count - kept:,} need {far}: leave them to backfills" if kept < count else "none is left"
    saves = f"saves {kept:,} of {count:,} {what} ({share(kept, count)})"
    return Recommendation(added_ms=best, reason=f"a grace of {readable(grace_ms + best)} {saves}; {rest}")


def share(part: int, whole: int) -> str:
    """In per cent, rounded down: 999 of 1,000 are 99 %, not all."""
    return f"{100 * part // whole} %"


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
