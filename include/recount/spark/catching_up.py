"""How much of each layer of topics a batch reads, so that tables are read to their end before the events beside them.

    layers          batches of at most 1,000 records, while tables have 2,500
    0  tables       1,000 ── 1,000 ──   500 and all that has come since, and so in every batch from now on
    1  events           0 ──     0 ── 1,000 ── 1,000 ── ...

Spark reads the limits when a query starts, so the query is started again for the next layer. In every batch that reads
events, then, the tables are at their end: a batch is planned from the last layer to the first, so that whatever was
written to a table before an event lies in the event's batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recount.core.reading import Layers
from recount.kafka.connection import Connection
from recount.kafka.offsets import log_ranges, partitions_of
from recount.spark.checkpoint import Partition


@dataclass(frozen=True, kw_only=True)
class BatchLimit:
    """At most ``records`` of the topics of ``layer``, those before it to their end, and nothing of those after it."""

    records: int
    layer: int = 0

    def of(self, layer: int) -> int | None:
        """How many records of that layer at most; None: all that there are."""
        if layer == self.layer:
            return self.records
        return None if layer < self.layer else 0


def layer_to_read(lags: Sequence[int], records: int) -> int:
    """The first layer of which more is left than the ``records`` of a batch; the last one if there is none.

    >>> layer_to_read([2_500, 90_000], 1_000), layer_to_read([1_000, 90_000], 1_000)
    (0, 1)
    """
    return next((layer for layer, lag in enumerate(lags[:-1]) if lag > records), len(lags) - 1)


def backlog(connection: Connection, layers: Layers, read: Mapping[Partition, int]) -> list[int]:
    """Per layer how many offsets the log holds beyond those ``read``; of a partition without one, all."""
    lags = []
    for topics in layers:
        partitions = [partition for topic in topics for partition in partitions_of(connection, topic)]
        kept = log_ranges(connection, partitions)
        lags.append(sum(max(0, span.end - read.get(place, span.start)) for place, span in kept.items()))
    return lags
