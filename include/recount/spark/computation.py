"""How a batch is computed, apart from how it is committed: two ways, chosen by the shape of the topology."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from recount.core.topology import Written
from recount.spark.checkpoint import BatchRange
from recount.spark.intake import HEADERS, INPUT_COLUMNS
from recount.spark.partition_clock import PartitionClock
from recount.spark.stage import OUTPUT_SCHEMA, from_ipc, map_function
from recount.spark.state_use import StateUse
from recount.spark.stream_tables import Order, Schema, StreamTables

_HEADERS = "array<struct<key: string, value: binary>>"


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What a batch comes to, before anything of it is written.

    ``emitted`` holds by table the rows that a sink writes, with the columns of its output table; ``encoded`` the
    ``encoded_values`` of those rows, of sinks whose rows the tasks have encoded. ``lookups`` says how many rows asked
    each lookup, and how many of them found none.
    """

    after: PartitionClock
    state: pl.DataFrame
    late: pl.DataFrame
    rejected: pl.DataFrame
    emitted: Mapping[str, pl.DataFrame]
    encoded: Mapping[str, pl.Series] = field(default_factory=dict)
    lookups: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class Stage(Protocol):
    """What the tasks do with a batch's records: tables leave each task, under the names of ``empty_tables``."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task."""

    def empty_tables(self) -> dict[str, list[pl.DataFrame]]:
        """The tables without rows, to which those of the tasks are added."""


def staged(records: DataFrame, stage: Stage) -> dict[str, pl.DataFrame]:
    """The tables that ``stage`` makes of ``records``, those of all tasks together."""
    # never null: Arrow counts a batch's rows anew for each null list, see ``recompute.log.headers_never_null``
    headers = [F.coalesce(HEADERS, F.array().cast(_HEADERS))] if HEADERS in records.columns else []
    given = records.select(*INPUT_COLUMNS, *(one.alias(HEADERS) for one in headers))
    sent = given.mapInArrow(map_function(stage), OUTPUT_SCHEMA).collect()
    tables = stage.empty_tables()
    for row in sent:
        tables[row.name].append(from_ipc(row.ipc))
    return {name: pl.concat(parts) for name, parts in tables.items()}


class Computation(Protocol):
    """Computes the batches of one stream in order, and holds the state between them."""

    @property
    def sinks(self) -> Sequence[Written]:
        """The operators that write."""

    @property
    def state_schema(self) -> Schema:
        """The columns of the state table."""

    @property
    def held(self) -> Mapping[str, int]:
        """How many rows are kept between batches, by what keeps them."""

    @property
    def used(self) -> Mapping[str, StateUse]:
        """How each of these is used."""

    def output_schema(self, sink: Written) -> Schema:
        """The columns of the output table of ``sink``."""

    def recover(self, tables: StreamTables, before: Order, clock: PartitionClock) -> None:
        """Start from the state before the batch ``before``, when the clock stood at ``clock``."""

    def compute(self, records: DataFrame, span: BatchRange, clock: PartitionClock, before: Order) -> Computed:
        """Compute the batch ``span``. After an error the computation is not to be used again."""
