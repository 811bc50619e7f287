"""How long batches take, from the last one of a running driver; and what batch follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from recount.kafka.status import StreamStatus

_RECORDS_THAT_TELL = 1_000
"""Fewer records take as long as a batch without any."""


@dataclass(frozen=True, kw_only=True)
class BatchTime:
    """A batch of ``records`` took ``batch_ms``, of which its commit to Kafka and Delta took ``commit_ms``.

    The commit counts as what a batch takes whatever is in it, the rest as the records': 40,000 records in 630 ms with a
    commit of 210 ms are 0.0105 ms a record. A batch has other fixed costs, so smaller ones take longer than this says.
    """

    records: int
    batch_ms: int
    commit_ms: int

    @classmethod
    def of(cls, status: StreamStatus | None) -> BatchTime | None:
        """That of the last batch; None where the driver has not said it, or the batch was too small to tell."""
        if status is None or status.batch_duration_ms is None or status.commit_duration_ms is None:
            return None
        if status.batch_records < _RECORDS_THAT_TELL or status.batch_duration_ms <= status.commit_duration_ms:
            return None
        return cls(records=status.batch_records, batch_ms=status.batch_duration_ms, commit_ms=status.commit_duration_ms)

    @property
    def ms_per_record(self) -> float:
        return (self.batch_ms - self.commit_ms) / self.records

    @property
    def most_per_s(self) -> float:
        """Records a second beyond which no batch is large enough to keep up: 0.0105 ms a record: 95,238/s."""
        return 1_000 / self.ms_per_record

    def shortest_ms(self, per_s: float) -> int | None:
        """The shortest batches that keep up with ``per_s`` records a second; None where none do.

        One that spans T ms has per_s x T / 1,000 records and takes commit + records x ms a record, at most T: so T is
        at least commit / (1 - per_s / most_per_s). 210 ms, half of the most: 420 ms.
        """
        if per_s >= self.most_per_s:
            return None
        return math.ceil(self.commit_ms / (1 - per_s / self.most_per_s))

    def records_within(self, target_ms: int) -> int:
        """How many records a batch of ``target_ms`` has: (target - commit) / ms a record."""
        return max(int((target_ms - self.commit_ms) / self.ms_per_record), 0)

    def caught_up_s(self, per_s: float, down_s: float) -> float | None:
        """How long it takes to read what came in ``down_s``, and what comes meanwhile; None: it never catches up.

        per_s x down / (most_per_s - per_s): at half of the most as long as it stood still.
        """
        return None if per_s >= self.most_per_s else per_s * down_s / (self.most_per_s - per_s)
