"""Stream times, idleness and the frontier: how far event time has come after a batch."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

import polars as pl

from recount.declare.columns import STREAM_TIME
from recount.declare.operators.event_time import Layers
from recount.engine.source.checkpoint import BatchRange, Partition
from recount.tables.ledger import BatchProof, PartitionProof

_NO_COUNT = ("topic", "partition", STREAM_TIME)


@dataclass(frozen=True, kw_only=True)
class PartitionClock:
    """The partitions as they stood after the last committed batch."""

    partitions: Mapping[Partition, PartitionProof]
    frontier_ms: int | None

    @classmethod
    def after(cls, proof: BatchProof | None) -> PartitionClock:
        """The clock that the batch after ``proof`` starts from; None is the stream's beginning."""
        if proof is None:
            return cls(partitions={}, frontier_ms=None)
        known = {(partition.topic, partition.partition): partition for partition in proof.partitions}
        return cls(partitions=known, frontier_ms=proof.frontier_ms)

    @property
    def stream_times(self) -> dict[Partition, int | None]:
        return {partition: proof.stream_time_ms for partition, proof in self.partitions.items()}

    def advanced(
        self, span: BatchRange, totals: pl.DataFrame, idle_after_ms: int, layers: Layers = ()
    ) -> PartitionClock:
        """The clock after the batch ``span`` whose tasks reported ``totals``.

        A partition is idle when no batch has read a record of it for ``idle_after_ms`` of recorded time: Spark plans
        at least one record of every partition that has any, so one without has been read to its end; but not where a
        batch has records of the first of the ``layers`` only: then no other may have been asked for. The frontier never
        falls back: a partition that speaks again revises what was emitted.
        """
        reported = {(row["topic"], row["partition"]): row for row in totals.iter_rows(named=True)}
        unasked = _unasked(layers, {topic for topic, _ in reported})
        partitions = {}
        for partition in sorted(span.end):
            before = self.partitions.get(partition)
            row = reported.get(partition)
            last_read_ms = span.timestamp_ms if row or before is None else before.last_read_ms
            assert last_read_ms is not None
            stood_ms = before.stream_time_ms if before else None
            reached_ms = row[STREAM_TIME] if row else None  # null: none of its records was good
            partitions[partition] = PartitionProof(
                topic=partition[0],
                partition=partition[1],
                start=span.start[partition],
                end=span.end[partition],
                stream_time_ms=stood_ms if reached_ms is None else reached_ms,
                last_read_ms=last_read_ms,
                idle=before is not None and before.idle
                if partition[0] in unasked
                else not row and span.timestamp_ms - last_read_ms >= idle_after_ms,
                **({name: count for name, count in row.items() if name not in _NO_COUNT} if row else {}),
            )
        return PartitionClock(partitions=partitions, frontier_ms=self._frontier(partitions))

    def with_counts(self, counts: pl.DataFrame) -> PartitionClock:
        """The same clock, its partitions' proofs with ``counts`` of fates, by topic and partition."""
        found = {(row.pop("topic"), row.pop("partition")): row for row in counts.to_dicts()}
        return replace(
            self, partitions={place: replace(proof, **found.get(place, {})) for place, proof in self.partitions.items()}
        )

    def _frontier(self, partitions: Mapping[Partition, PartitionProof]) -> int | None:
        awake = [proof.stream_time_ms for proof in partitions.values() if not proof.idle]
        if not awake or None in awake:
            return self.frontier_ms
        reached = min(time for time in awake if time is not None)
        return reached if self.frontier_ms is None else max(self.frontier_ms, reached)


def _unasked(layers: Layers, read: Set[str]) -> set[str]:
    """The topics of the layers behind the last one of which a batch has ``read`` anything."""
    asked = max((number for number, topics in enumerate(layers) if read & set(topics)), default=len(layers))
    return {topic for topics in layers[asked + 1 :] for topic in topics}
