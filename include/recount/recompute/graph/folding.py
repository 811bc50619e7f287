"""Aggregates that only Python can compute: folds, and the estimate of how many values differ."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from functools import reduce
from hashlib import md5
from typing import Any, NamedTuple

from recount.core.aggregates import Fold

SKETCH_SIZE, HASH_BITS = 1_024, 60


class Session(NamedTuple):
    """A session at some moment, and what its records amount to."""

    start: int
    end: int
    amount: Any


def folded(fold: Fold, values: Iterable[Any]) -> Any:
    """``values`` in log order. A reduce, which has no initial value, passes nulls over."""
    if fold.initial is None:
        present = [value for value in values if value is not None]
        values, amount = present[1:], present[0] if present else None
    else:
        amount = fold.initial()
    for value in values:
        amount = fold.adder(amount, value)
    return amount


def folded_in_session(fold: Fold, records: Iterable[tuple[int, Any]], gap_ms: int) -> Any:
    """Event times and values of one session in log order: a record merges the sessions it joins, then adds itself."""
    sessions: list[Session] = []
    for at_ms, value in records:
        apart = [one for one in sessions if at_ms < one.start - gap_ms or one.end + gap_ms < at_ms]
        joined = [one for one in sessions if one.start - gap_ms <= at_ms <= one.end + gap_ms]
        start = min(at_ms, *(one.start for one in joined)) if joined else at_ms
        end = max(at_ms, *(one.end for one in joined)) if joined else at_ms
        sessions = sorted([*apart, Session(start, end, _joined(fold, joined, value))], key=lambda one: one[:2])
    if not sessions:
        return folded(fold, ())
    return _together(fold, [session.amount for session in sessions])


def _together(fold: Fold, amounts: Sequence[Any]) -> Any:
    """``amounts`` merged, the earlier first. A reduce passes over sessions without a value."""
    told = [amount for amount in amounts if amount is not None] if fold.initial is None else amounts
    return reduce(fold.merger, told) if told else None


def _joined(fold: Fold, joined: Sequence[Session], value: Any) -> Any:
    if fold.initial is not None:
        amount = fold.initial()
        for session in joined:
            amount = fold.merger(amount, session.amount)
        return fold.adder(amount, value)
    amount = _together(fold, [session.amount for session in joined])
    if amount is None or value is None:
        return value if amount is None else amount
    return fold.adder(amount, value)


def estimated(values: Iterable[Any]) -> int:
    """How many of ``values`` differ: exact below ``SKETCH_SIZE``, else from how close its smallest hashes lie.

    The hash is the first 60 bits of MD5 of the value's text (Bar-Yossef et al., 2002, as in docs/semantics.md).
    """
    digests = {md5(str(value).encode(), usedforsecurity=False).digest() for value in values}
    hashes = {int.from_bytes(digest[:8], "big") >> 4 for digest in digests}
    if len(hashes) < SKETCH_SIZE:
        return len(hashes)
    largest = heapq.nsmallest(SKETCH_SIZE, hashes)[-1]
    return round((SKETCH_SIZE - 1) * (1 << HASH_BITS) / largest)
