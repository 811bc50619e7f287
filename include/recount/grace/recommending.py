"""Which longer grace to take, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from recount.core.durations import readable
from recount.grace.shortfalls import saved
from recount.grace.steps_of_grace import rounded_up


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
