"""How many records a batch may take, so that it stays within a time: from what the last batches have cost.

A batch costs some milliseconds whatever it holds, and some for each record. A stream that is far behind takes the
largest batches all the same, for they cost least a record. A change restarts Spark's query, so it is made only for a
factor of two, and only where it matters: smaller when a batch was too large, larger when one left records behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import linear_regression

_WINDOW = 16
"""Batches; what older ones cost says little of the next."""
_FAR_BEHIND = 10
"""Batches of the wanted size."""
_WORTH_A_RESTART = 2
_SMALLEST = 1_000
"""Records; so few take no time that anybody would notice."""


@dataclass(frozen=True, kw_only=True)
class BatchCost:
    """Records and milliseconds of the last batches, and the line that fits them best."""

    records: tuple[int, ...] = ()
    ms: tuple[int, ...] = ()

    def and_of(self, records: int, ms: int) -> BatchCost:
        """With another batch."""
        return BatchCost(records=(*self.records, records)[-_WINDOW:], ms=(*self.ms, max(ms, 1))[-_WINDOW:])

    def records_within(self, target_ms: int) -> float:
        """How many records take ``target_ms``; with fixed 300 ms and 0.01 ms a record, 1,000 ms are 70,000 records.

        Of batches too much alike to tell the fixed part, or so uneven that none shows, all the cost counts as the
        records'.
        """
        ms_per_record, fixed_ms = 0.0, 0.0
        if max(self.records) > 1.1 * min(self.records):
            ms_per_record, fixed_ms = linear_regression(self.records, self.ms)
        if ms_per_record <= 0:
            ms_per_record, fixed_ms = sum(self.ms) / sum(self.records), 0.0
        return max(target_ms - max(fixed_ms, 0.0), 0.0) / ms_per_record


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """The cap of a batch, ``records``: at most ``largest``, and as many as ``target_ms`` (0: any time) allows."""

    largest: int
    target_ms: int
    records: int
    cost: BatchCost | None = None

    @classmethod
    def first(cls, largest: int, target_ms: int) -> BatchSize:
        """Before anything was measured: the largest."""
        return cls(largest=largest, target_ms=target_ms, records=largest)

    def after(self, records: int, ms: int, lag: int | None) -> BatchSize:
        """After a batch of ``records`` that took ``ms`` and left ``lag`` more on the broker (None: not known).

        The first batch of a process tells nothing: it pays for what is loaded and compiled once.
        """
        if not self.target_ms or not records:
            return self
        if self.cost is None:
            return replace(self, cost=BatchCost())
        cost = self.cost.and_of(records, ms)
        wanted = self._wanted(cost, lag or 0)
        too_large = _WORTH_A_RESTART * wanted <= records
        too_small = bool(lag) and wanted >= _WORTH_A_RESTART * self.records
        return replace(self, cost=cost, records=wanted if too_large or too_small else self.records)

    def _wanted(self, cost: BatchCost, lag: int) -> int:
        within = max(cost.records_within(self.target_ms), _SMALLEST)
        return self.largest if within >= self.largest or lag > _FAR_BEHIND * within else round(within)
