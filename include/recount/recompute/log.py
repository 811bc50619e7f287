"""The raw log of a topic by offset range, from Kafka or from the Delta archive, each partition in offset order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.core.errors import Terminal
from recount.core.tables import Tables

Ranges = Mapping[int, tuple[int, int]]
"""Per partition the offsets ``start`` <= o < ``end``."""

COLUMNS = ("partition", "offset", "timestamp_ms", "key", "value")


class Log(Protocol):
    """Where the records of a topic are read."""

    def read(self, session: SparkSession, topic: str, ranges: Ranges) -> DataFrame:
        """The committed records in ``ranges`` with ``COLUMNS``; a task holds whole partitions, in offset order."""
        ...


@dataclass(frozen=True, kw_only=True)
class KafkaLog:
    """The topic itself, read_committed. Spark fails, rather than skips, where a record of the range has expired."""

    bootstrap_servers: str

    def read(self, session: SparkSession, topic: str, ranges: Ranges) -> DataFrame:
        """One task per partition, for no ``minPartitions`` is given."""
        spans = {partition: span for partition, span in ranges.items() if span[0] < span[1]}
        if not spans:
            return _nothing(session)
        offsets = [json.dumps({topic: {str(p): span[end] for p, span in spans.items()}}) for end in (0, 1)]
        return (
            session.read.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("assign", json.dumps({topic: sorted(spans)}))
            .option("startingOffsets", offsets[0])
            .option("endingOffsets", offsets[1])
            .option("kafka.isolation.level", "read_committed")
            .option("kafka.max.partition.fetch.bytes", str(8 << 20))
            .option("kafka.max.poll.records", "10000")
            .option("failOnDataLoss", "true")
            .load()
            .select("partition", "offset", F.unix_millis("timestamp").alias("timestamp_ms"), "key", "value")
        )


@dataclass(frozen=True, kw_only=True)
class ArchiveLog:
    """The Delta archive of the topic, for what Kafka's retention has deleted."""

    tables: Tables

    def read(self, session: SparkSession, topic: str, ranges: Ranges) -> DataFrame:
        """Shuffled and sorted, for the archive's files hold the records in any order."""
        spans = [
            (F.col("partition") == partition) & (F.col("offset") >= start) & (F.col("offset") < end)
            for partition, (start, end) in ranges.items()
            if start < end
        ]
        if not spans:
            return _nothing(session)
        archived = session.read.format("delta").load(self.tables.archive(topic))
        return (
            archived.where(reduce(lambda one, other: one | other, spans))
            .select(*COLUMNS)
            .repartition(len(spans), "partition")
            .sortWithinPartitions("partition", "offset")
        )


def _nothing(session: SparkSession) -> DataFrame:
    return session.createDataFrame([], "partition int, offset long, timestamp_ms long, key binary, value binary")


def runs(batch: pa.RecordBatch, last: dict[int, int]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """``batch`` cut where its partition changes, each piece with its partition.

    ``last`` holds the last offset seen of each partition and is brought up to date; an offset that does not rise
    means that the log was not read in order, or holds a record twice, and raises ``Terminal``.
    """
    partitions = batch.column("partition").to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(cuts):
        if start == end:
            continue
        piece = batch.slice(start, end - start)
        partition = int(partitions[start])
        offsets = piece.column("offset").to_numpy()
        if offsets[0] <= last.get(partition, -1) or (np.diff(offsets) <= 0).any():
            raise Terminal(
                "the log is not in offset order",
                given=f"partition {partition} near offset {offsets[0]}",
                expected="every offset once, rising",
                remedy="an archive that holds a record twice was written by two archive streams: rebuild it",
            )
        last[partition] = int(offsets[-1])
        yield partition, piece
