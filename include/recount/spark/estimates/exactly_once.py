"""What exactly once costs on Kafka, beside at least once."""

from __future__ import annotations

from dataclasses import dataclass

from recount.core.topology import Topology
from recount.spark.estimates.batches import BatchEstimate

_OF_OFFSETS, _OF_POSITION = 1, 1
"""A transaction also commits the offsets of its group, and writes the stream's position."""


@dataclass(frozen=True, kw_only=True)
class ExactlyOnce:
    """Of each batch: one transaction, ``markers`` at most, and a record with the position; none of these at least once.

    ``partitions`` are those of all topics that are written. ``per_s`` batches come a second.
    """

    per_s: float
    emitted: float
    partitions: int

    @classmethod
    def of(cls, topology: Topology, batch: BatchEstimate) -> ExactlyOnce:
        return cls(
            per_s=batch.per_s,
            emitted=batch.emitted,
            partitions=sum(written.topic.partitions for written in topology.written),
        )

    @property
    def markers(self) -> float:
        """A marker in each partition that the transaction wrote to, one for offsets, one for the position.

        Source: Kafka's KIP-98. 84 rows over 4 partitions: 6 at most; 0.02 rows a batch: 2.02.
        """
        return min(self.emitted, self.partitions) + _OF_OFFSETS + _OF_POSITION
