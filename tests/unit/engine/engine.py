"""The engine without Spark, Kafka and Delta: its map stage, clock and open windows on Arrow batches in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import polars as pl
import pyarrow as pa

from recount.declare.columns import REVISION
from recount.declare.topology import Topology
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.engine.stage.map_stage import HEADERS, IN_SECONDS, INPUT_COLUMNS, MapStage, from_ipc
from recount.engine.stage.partials import Partials, plan_of
from recount.engine.state.open_windows import OpenWindows

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


@dataclass
class Engine:
    """Runs one stream batch by batch and keeps all that it ``made``; ``cuts`` are where Arrow batches are cut."""

    topology: Topology
    partitions: int = 1
    cuts: Sequence[int] = ()
    clock: PartitionClock = field(default_factory=lambda: PartitionClock.after(None))
    made: dict[str, pl.DataFrame] = field(init=False)
    last: dict[str, pl.DataFrame] = field(init=False)
    emitted: pl.DataFrame = field(init=False)
    batches: int = 0

    def __post_init__(self) -> None:
        plan = plan_of(self.topology)
        assert plan is not None, "the topology has another shape"
        self.plan = plan
        self.topic = self.plan.source.topic.name
        self.windows = OpenWindows.none(self.plan.aggregate, self.plan.windows.grace_ms)
        self._partials = Partials.of(self.plan.aggregate)
        self.emitted = pl.DataFrame(schema={**self._partials.result_schema, REVISION: pl.Int32()})
        self.made = self._tables({})
        self._ends = {(self.topic, partition): 0 for partition in range(self.partitions)}

    def batch(self, *records: LogRecord, now_ms: int = NOW_MS) -> pl.DataFrame:
        """Process the next records, each partition's in the order given; returns the rows that are emitted."""
        by_partition = {
            partition: [record for record in records if record.partition == partition]
            for partition in range(self.partitions)
        }
        mapped = self._tables(by_partition, now_ms)
        mapped["partials"] = self._partials.merge(mapped["partials"])
        start = dict(self._ends)
        for partition, found in by_partition.items():
            self._ends[self.topic, partition] += len(found)
        span = BatchRange(batch=self.batches, timestamp_ms=now_ms, start=start, end=dict(self._ends))
        after = self.clock.advanced(span, mapped["totals"], self.topology.idle_after_ms)
        self.windows, emitted = self.windows.advanced(
            mapped["partials"], self.clock.frontier_ms, after.frontier_ms, self._emitted_before
        )
        self.clock = after
        self.last = {**mapped, "emitted": emitted}
        self.made = {name: pl.concat([self.made[name], mapped[name]]) for name in mapped}
        self.emitted = pl.concat([self.emitted, emitted])
        self.batches += 1
        return emitted

    @property
    def counts(self) -> dict[str, int]:
        """The fates of all records so far."""
        totals = self.made["totals"].drop("topic", "partition", "stream_time_ms", IN_SECONDS)
        return {name: int(totals[name].sum()) for name in totals.columns}

    def _tables(self, records: Mapping[int, Sequence[LogRecord]], now_ms: int = NOW_MS) -> dict[str, pl.DataFrame]:
        stage = MapStage(
            plan=self.plan,
            stream_times=self.clock.stream_times,
            latest_ms=now_ms + self.topology.max_future_ms,
        )
        tables = stage.empty_tables()
        for partition, found in records.items():
            batch = arrow_batch(self.topic, partition, self._ends[self.topic, partition], found)
            for sent in stage(cut(batch, self.cuts)):
                for name, payload in zip(*sent.to_pydict().values(), strict=True):
                    tables[name].append(from_ipc(payload))
        return {name: pl.concat(parts) for name, parts in tables.items()}

    def _emitted_before(self, wanted: pl.DataFrame) -> pl.DataFrame:
        group = self._partials.group
        state = self._partials.merge(self.made["partials"].join(wanted, on=group, how="semi"))
        revisions = self.emitted.group_by(group).agg(pl.col(REVISION).max())
        return state.join(revisions, on=group, how="left").with_columns(pl.col(REVISION).fill_null(-1))
