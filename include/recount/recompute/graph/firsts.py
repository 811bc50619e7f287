"""Deduplication of one id: which records win."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any

from recount.recompute.graph.placing import Order


def winning(
    records: Sequence[tuple[int, Order]],
    *,
    horizon_ms: int,
    by_offset: bool,
    batches: Sequence[Any] | None = None,
) -> list[bool]:
    """Of each record, event time and order, whether no winner before it lies within ``horizon_ms``, inclusive.

    Before it: by offset, or by (event time, order). Horizon 10, by event time: of 0, 10, 11 the first and last win.
    With the ``batches`` in which the records are decided, the earlier batch comes first, whatever the order. They are
    anything that can be compared.
    """
    in_batch = batches or [0] * len(records)
    turns = sorted(
        range(len(records)),
        key=lambda index: (in_batch[index], *records[index][by_offset:]),
    )
    wins, winners_ms = [False] * len(records), list[int]()
    for index in turns:
        at_ms = records[index][0]
        following = bisect_left(winners_ms, at_ms - horizon_ms)
        if following == len(winners_ms) or winners_ms[following] > at_ms + horizon_ms:
            wins[index] = True
            insort(winners_ms, at_ms)
    return wins
