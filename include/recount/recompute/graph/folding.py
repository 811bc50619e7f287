"""Aggregates that only Python can compute: folds, and the estimate of how many values differ."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial, reduce
from hashlib import md5
from typing import Any, NamedTuple

from recount.core.aggregates import Fold

SKETCH_SIZE, HASH_BITS = 1_024, 60


class Session(NamedTuple):
    """A session at some moment, and what its records amount to."""

    start: int
    end: int
    amount: Any


class Amount(NamedTuple):
    """What records amount to that are no longer there."""

    value: Any


def folded(fold: Fold, values: Iterable[Any], before: Amount | None = None) -> Any:
    """``values`` in log order, after those ``before``. A reduce, which has no initial value, passes nulls over."""
    return reduce(partial(_plus, fold), values, _nothing(fold) if before is None else before.value)


def folded_in_session(fold: Fold, records: Iterable[tuple[int, Any]], gap_ms: int) -> Any:
    """Event times and values of one session in log order: a record merges the sessions it joins, then adds itself."""
    sessions: list[Session] = []
    for at_ms, value in records:
        sessions = _with(fold, sessions, at_ms, value, gap_ms)
    if not sessions:
        return _nothing(fold)
    return _together(fold, [session.amount for session in sessions])


@dataclass
class Attempt:
    """What the records of one partition amount to, taken one by one in log order; ``gap_ms`` is that of a session.

    Where it is no session, others may have been ``before`` them.
    """

    fold: Fold
    gap_ms: int | None
    before: Amount | None = None
    records: list[tuple[int, Any]] = field(default_factory=list)
    amount: Any = None

    def __post_init__(self) -> None:
        self.amount = self._of(())

    def add(self, at_ms: int, value: Any) -> None:
        """One more record; where a function raises, the amount is that of the others."""
        try:
            self.amount = self._and(self.amount, (at_ms, value))
        except Exception:
            # a list, which is what a function can have changed in part, is made anew
            amounts = [self.amount] if self.gap_ms is None else [session.amount for session in self.amount]
            if any(isinstance(amount, list) for amount in amounts):
                self.amount = self._of(self.records)
            raise
        self.records.append((at_ms, value))

    def _of(self, records: Iterable[tuple[int, Any]]) -> Any:
        return reduce(self._and, records, self._start())

    def _start(self) -> Any:
        if self.before is not None:
            return deepcopy(self.before.value)
        return _nothing(self.fold) if self.gap_ms is None else []

    def _and(self, amount: Any, record: tuple[int, Any]) -> Any:
        if self.gap_ms is None:
            return _plus(self.fold, amount, record[1])
        return _with(self.fold, amount, *record, self.gap_ms)


def _nothing(fold: Fold) -> Any:
    """``initial`` may return one list each time, which the function changes."""
    return None if fold.initial is None else deepcopy(fold.initial())


def _with(fold: Fold, sessions: Sequence[Session], at_ms: int, value: Any, gap_ms: int) -> list[Session]:
    """``sessions`` after one more record."""
    apart = [one for one in sessions if at_ms < one.start - gap_ms or one.end + gap_ms < at_ms]
    joined = [one for one in sessions if one.start - gap_ms <= at_ms <= one.end + gap_ms]
    start = min([at_ms, *(one.start for one in joined)])
    end = max([at_ms, *(one.end for one in joined)])
    amount = _together(fold, [_nothing(fold), *(session.amount for session in joined)])
    return sorted([*apart, Session(start, end, _plus(fold, amount, value))], key=lambda one: one[:2])


def _together(fold: Fold, amounts: Sequence[Any]) -> Any:
    """``amounts`` merged, the earlier first. A reduce passes over sessions without a value."""
    told = [amount for amount in amounts if amount is not None] if fold.initial is None else amounts
    return reduce(fold.merger, told) if told else None


def _plus(fold: Fold, amount: Any, value: Any) -> Any:
    given = deepcopy(value) if isinstance(value, list) else value
    if fold.initial is None and (amount is None or given is None):
        return given if amount is None else amount
    return fold.adder(amount, given)


def estimated(values: Iterable[Any]) -> int:
    """How many of ``values`` differ: exact below ``SKETCH_SIZE``, else from how close its smallest hashes lie.

    The hash is the first 60 bits of MD5 of the value's text (Bar-Yossef et al., 2002, as in docs/semantics.md).
    """
    hashes = {_hash(value) for value in values}
    if len(hashes) < SKETCH_SIZE:
        return len(hashes)
    largest = heapq.nsmallest(SKETCH_SIZE, hashes)[-1]
    return round((SKETCH_SIZE - 1) * (1 << HASH_BITS) / largest)


def sketched(values: Iterable[Any]) -> list[Any]:
    """Those of the different ``values`` that an estimate asks for, of these and of any others beside them."""
    by_hash = {_hash(value): value for value in values}
    return [by_hash[one] for one in heapq.nsmallest(SKETCH_SIZE, by_hash)]


def _hash(value: Any) -> int:
    digest = md5(str(value).encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big") >> 4
