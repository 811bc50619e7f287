"""Records as they lie on Kafka, and as Spark hands them to tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from recount.engine.stage.intake import HEADERS, INPUT_COLUMNS

NOW_MS = 1_000_000
_HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """A record as it lies on Kafka."""

    partition: int = 0
    timestamp_ms: int = 0
    key: bytes | None = b"key"
    value: bytes | None = b"{}"
    headers: Sequence[tuple[str, bytes | None]] = ()


def arrow_batch(topic: str, partition: int, first_offset: int, records: Sequence[LogRecord]) -> pa.RecordBatch:
    """Consecutive records of one partition, as Spark hands them to a task."""
    columns = [
        pa.array([topic] * len(records), pa.string()),
        pa.array([partition] * len(records), pa.int32()),
        pa.array(range(first_offset, first_offset + len(records)), pa.int64()),
        pa.array([record.timestamp_ms for record in records], pa.int64()),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        pa.array([[{"key": k, "value": v} for k, v in record.headers] for record in records], _HEADERS),
    ]
    return pa.record_batch(columns, names=[*INPUT_COLUMNS, HEADERS])


def cut(batch: pa.RecordBatch, at: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """``batch`` in pieces, some of which may be empty."""
    bounds = [0, *sorted(min(place, batch.num_rows) for place in at), batch.num_rows]
    return (batch.slice(start, end - start) for start, end in pairwise(bounds))
