"""How a batch is computed, apart from how it is committed: two ways, chosen by the shape of the topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl
from pyspark.sql import DataFrame

from recount.core.nodes import Sink
from recount.core.stateless import Through
from recount.spark.checkpoint import BatchRange
from recount.spark.partition_clock import PartitionClock
from recount.spark.stream_tables import Order, Schema, StreamTables

Written = Sink | Through


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What a batch comes to, before anything of it is written.

    ``emitted`` holds by table the rows that a sink writes, with the columns of its output table.
    """

    after: PartitionClock
    state: pl.DataFrame
    late: pl.DataFrame
    rejected: pl.DataFrame
    emitted: Mapping[str, pl.DataFrame]


class Computation(Protocol):
    """Computes the batches of one stream in order, and holds the state between them."""

    @property
    def sinks(self) -> Sequence[Written]:
        """The operators that write."""

    @property
    def state_schema(self) -> Schema:
        """The columns of the state table."""

    def output_schema(self, sink: Written) -> Schema:
        """The columns of the output table of ``sink``."""

    def recover(self, tables: StreamTables, before: Order, clock: PartitionClock) -> int:
        """Start from the state before the batch ``before``, when the clock stood at ``clock``; returns its rows."""

    def compute(self, records: DataFrame, span: BatchRange, clock: PartitionClock, before: Order) -> Computed:
        """Compute the batch ``span``. After an error the computation is not to be used again."""
