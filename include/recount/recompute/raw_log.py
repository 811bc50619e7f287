"""The raw log of a topic by offset range, each partition in offset order, and how tasks pass over it.

``once`` computes a frame once, after which Spark forgets how it was made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from recount.kafka.connection import SCAN_OPTIONS
from recount.runtime.errors import Terminal

Ranges = Mapping[int, tuple[int, int]]
"""Per partition the offsets ``start`` <= o < ``end``."""
COLUMNS = ("partition", "offset", "timestamp_ms", "key", "value")
SCHEMA = "partition int, offset long, timestamp_ms long, key binary, value binary"
_HEADERS_TYPE = "array<struct<key: string, value: binary>>"
HEADERS = f", headers {_HEADERS_TYPE}"
Pass = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What one task does to the records it is given, batch by batch in order."""


def once(frame: DataFrame) -> DataFrame:
    """``frame``, computed when it is first read, and kept by Spark until nobody refers to it any more.

    Unlike ``persist`` this cuts the plan: with a persisted frame Spark copies and compares the whole plan that led to
    it in each query that reads it, which takes seconds and gigabytes where a topology was recomputed and lined up.
    """
    checkpoint = in_one_task(frame).localCheckpoint(eager=False)
    # columns of their own: Spark cannot rename those of a checkpoint where it meets the frame that it was made of
    return checkpoint.toDF(*checkpoint.columns)


def in_one_task(frame: DataFrame) -> DataFrame:
    """``frame`` in one partition where the session is one for few rows, which shuffles into one.

    Spark knows of such frames that they need no shuffle to be grouped or joined, and sends fewer tasks: in an audit of
    few records these cost more than what they do.
    """
    few = frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1"
    return frame.coalesce(1) if few else frame


@dataclass(frozen=True, kw_only=True)
class RawLog:
    """Records of a topic that tasks will see: each whole partitions in offset order, with the columns ``COLUMNS``.

    ``reading`` turns what the tasks are given, ``frame``, into the records; without it, ``frame`` is the records.
    """

    frame: DataFrame
    reading: Pass | None = None

    def before(self, first: Pass) -> RawLog:
        """The same records, which ``first`` sees before any other pass."""
        reading = self.reading
        return RawLog(frame=self.frame, reading=first if reading is None else lambda batches: first(reading(batches)))

    def through(self, schema: T.StructType | str, *passes: Pass) -> DataFrame:
        """The output of ``passes``, of which each task runs one after the other; it must have ``schema``."""
        steps = [*([self.reading] if self.reading else []), *passes]
        return self.frame.mapInArrow(lambda batches: reduce(lambda rows, one: one(rows), steps, batches), schema)


@dataclass(frozen=True, kw_only=True)
class RecordsAtHand:
    """The same records, which are few, in this process."""

    batches: Callable[[], Iterator[pa.RecordBatch]]

    def before(self, first: Pass) -> RecordsAtHand:
        """The same records, which ``first`` sees before any other pass."""
        return RecordsAtHand(batches=lambda: first(self.batches()))

    def through(self, *passes: Pass) -> Iterator[pa.RecordBatch]:
        """The output of ``passes``, one after the other."""
        return reduce(lambda rows, one: one(rows), passes, self.batches())


class Log(Protocol):
    """Where the records of a topic are read."""

    def read(
        self, session: SparkSession, topic: str, ranges: Ranges, *, with_key: bool = True, with_headers: bool = False
    ) -> RawLog | RecordsAtHand:
        """The committed records in ``ranges``. Keys that are not needed, and cost time, may be null.

        ``with_headers`` adds the column ``headers``, null where a record has none.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class KafkaLog:
    """The topic itself, read_committed. Spark fails, rather than skips, where a record of the range has expired.

    ``options`` are those by which Spark reaches the cluster, ``Connection.of_spark``.
    """

    options: Mapping[str, str]

    def read(
        self, session: SparkSession, topic: str, ranges: Ranges, *, with_key: bool = True, with_headers: bool = False
    ) -> RawLog:
        """One task per partition, for no ``minPartitions`` is given; or one for few rows (``in_one_task``)."""
        spans = {partition: span for partition, span in ranges.items() if span[0] < span[1]}
        if not spans:
            return RawLog(frame=session.createDataFrame([], SCHEMA + (HEADERS if with_headers else "")))
        offsets = [json.dumps({topic: {str(p): span[end] for p, span in spans.items()}}) for end in (0, 1)]
        records = (
            session.read.format("kafka")
            .options(**self.options)
            .option("assign", json.dumps({topic: sorted(spans)}))
            .option("startingOffsets", offsets[0])
            .option("endingOffsets", offsets[1])
            .option("failOnDataLoss", "true")
            .option("includeHeaders", str(with_headers).lower())
            .options(**SCAN_OPTIONS)
            .load()
        )
        key = F.col("key") if with_key else F.lit(None).cast("binary").alias("key")
        timestamp_ms = F.unix_millis("timestamp").alias("timestamp_ms")
        columns = [F.col("partition"), F.col("offset"), timestamp_ms, key, F.col("value")]
        if not with_headers:
            return RawLog(frame=in_one_task(records.select(*columns)))
        return RawLog(frame=in_one_task(records.select(*columns, headers_never_null())), reading=null_headers)


@dataclass(frozen=True, kw_only=True)
class LogByTopic:
    """Topics of which each has its own log."""

    logs: Mapping[str, Log]

    def read(
        self, session: SparkSession, topic: str, ranges: Ranges, *, with_key: bool = True, with_headers: bool = False
    ) -> RawLog | RecordsAtHand:
        """From the log of ``topic``."""
        return self.logs[topic].read(session, topic, ranges, with_key=with_key, with_headers=with_headers)


def headers_never_null() -> Column:
    """The column ``headers``, empty where there are none; ``null_headers`` makes them null again.

    Spark asks after every row how large the Arrow batch is by now, and Arrow looks then at all rows since the last list
    that is not null: without headers the time would grow with the square of a batch's rows.
    """
    return F.coalesce(F.col("headers"), F.array().cast(_HEADERS_TYPE)).alias("headers")


def null_headers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same records, with null for an empty list of headers."""
    for batch in batches:
        place = batch.schema.get_field_index("headers")
        headers = batch.column(place)
        is_empty = pc.equal(pc.list_value_length(headers), 0)
        yield batch.set_column(place, batch.schema.field(place), pc.if_else(is_empty, None, headers))


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
