"""Stream time at every offset: the running maximum of event time within a partition."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recount.recompute.log import runs

ADVANCES, STREAM_TIME = "advances", "stream_time_ms"
_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, kw_only=True)
class StreamTimePass:
    """One task's pass over its records: adds ``stream_time_ms``, at a record's own offset and including it.

    Only records with ``advances`` move it; with ``keyless_when`` those that are not bad (``reason``) and have no null
    in these columns. ``seeds`` are the partitions' stream times before the first record; where there is none and
    nothing advanced yet, the stream time is null.
    """

    seeds: Mapping[int, int | None]
    keyless_when: Collection[str] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Arrow batches of whole partitions in offset order, in and out."""
        reached = {p: _NEVER if seed is None else seed for p, seed in self.seeds.items()}
        last: dict[int, int] = {}
        for batch in batches:
            for partition, records in runs(batch, last):
                times = np.where(
                    self._advances(records), records.column("timestamp_ms").fill_null(0).to_numpy(), _NEVER
                )
                times[0] = max(times[0], reached.get(partition, _NEVER))
                stream_times = np.maximum.accumulate(times)
                reached[partition] = int(stream_times[-1])
                column = pa.array(stream_times, mask=stream_times == _NEVER)
                yield records.append_column(STREAM_TIME, column)

    def _advances(self, records: pa.RecordBatch) -> np.ndarray:
        if self.keyless_when is None:
            return np.asarray(records.column(ADVANCES).to_numpy(zero_copy_only=False))
        advances = records.column("reason").is_null()
        for name in self.keyless_when:
            advances = pc.and_(advances, records.column(name).is_valid())
        return np.asarray(advances.to_numpy(zero_copy_only=False))
