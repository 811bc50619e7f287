"""When each record of a log was read: in which batch, and how far that batch had come in the record's partition.

The records of one key in several partitions are taken batch by batch, and those of one batch by the largest event time
that it has read of their partition up to them: in the order of event time, as far as the offsets of each allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recount.recompute.log import runs

IN_BATCH, REACHED_IN_BATCH = "in_batch", "reached_in_batch_ms"
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, kw_only=True)
class TurnPass:
    """One task's pass over its decoded records: adds ``IN_BATCH``, counted from 0, and ``REACHED_IN_BATCH``.

    ``boundaries`` are by partition the ends of all batches; where there are none, one batch read all.
    """

    boundaries: Mapping[int, np.ndarray]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Arrow batches of whole partitions in offset order, in and out."""
        reached: dict[int, tuple[int, int]] = {}
        last: dict[int, int] = {}
        for batch in batches:
            for partition, records in runs(batch, last):
                ends = self.boundaries.get(partition, np.zeros(0, np.int64))
                numbers = np.searchsorted(ends, records.column("offset").to_numpy(), side="right")
                is_good = records.column("reason").is_null().to_numpy(zero_copy_only=False)
                times = np.where(is_good, records.column("timestamp_ms").fill_null(0).to_numpy(), _NEVER)
                number, reached_ms = reached.get(partition, (-1, _NEVER))
                if numbers[0] == number:
                    times[0] = max(times[0], reached_ms)
                starts = np.flatnonzero(np.diff(numbers)) + 1
                parts = [np.maximum.accumulate(part) for part in np.split(times, starts)]
                reached[partition] = int(numbers[-1]), int(parts[-1][-1])
                added = {IN_BATCH: numbers.astype(np.int64), REACHED_IN_BATCH: np.concatenate(parts)}
                for name, values in added.items():
                    records = records.append_column(name, pa.array(values))
                yield records
