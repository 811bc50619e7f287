"""Single records of a batch as they lie on Kafka, read once more: for dead letters of records that had been decoded.

A function of the topology raises when the raw bytes are gone already: to keep them for the few records that need them
would cost every batch. The batch's offsets are the same whenever it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame

from recount.core.errors import Terminal
from recount.spark.computation import staged
from recount.spark.intake import PLACE
from recount.spark.stage import ARROW_OUTPUT, Partition, partition_of, to_ipc

RAW = "raw"
RAW_SCHEMA: dict[str, pl.DataType] = {**PLACE, "record_key": pl.Binary(), "record_value": pl.Binary()}

ReadAgain = Callable[[pl.DataFrame], pl.DataFrame]
"""The raw records (``RAW_SCHEMA``) at some places of the batch (``PLACE``)."""


@dataclass(frozen=True, kw_only=True)
class RawStage:
    """What every task does: it lets the records at ``offsets`` pass as they are."""

    offsets: Mapping[Partition, Sequence[int]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one partition in, the table ``raw`` out."""
        for batch in batches:
            wanted = self.offsets.get(partition_of(batch)) if batch.num_rows else None
            if wanted:
                rows = pl.DataFrame(pl.from_arrow(batch)).filter(pl.col("offset").is_in(list(wanted)))
                table = rows.rename({"key": "record_key", "value": "record_value"}).select(list(RAW_SCHEMA))
                yield pa.record_batch([[RAW], [to_ipc(table)]], schema=ARROW_OUTPUT)

    def empty_tables(self) -> dict[str, list[pl.DataFrame]]:
        """The table without rows."""
        return {RAW: [pl.DataFrame(schema=RAW_SCHEMA)]}

    @classmethod
    def of(cls, places: pl.DataFrame) -> RawStage:
        """The stage for ``places`` (``PLACE``)."""
        grouped = places.group_by("topic", "partition").agg("offset").iter_rows()
        return cls(offsets={(topic, partition): offsets for topic, partition, offsets in grouped})


def read_again(records: DataFrame) -> ReadAgain:
    """Reads records of the batch ``records``."""
    return lambda places: staged(records, RawStage.of(places))[RAW]


def with_raw(rows: pl.DataFrame, read: ReadAgain) -> pl.DataFrame:
    """``rows``, each about one record of the batch, with raw key and value; raises ``Terminal`` where one is gone."""
    raw = read(rows.select(list(PLACE)))
    found = rows.join(raw, on=list(PLACE), how="inner", maintain_order="left")
    if found.height != rows.height:
        raise Terminal(
            "a record that a batch has read is not there when it is read again",
            given=f"{found.height} of {rows.height} records",
            expected="the offsets of a batch hold the same records as long as it runs",
            remedy="look for retention that is shorter than a batch takes, then start the stream again",
        )
    return found
