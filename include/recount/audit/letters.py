"""The records of a dead-letter topic, by the source offsets in their headers."""

from __future__ import annotations

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.audit.committed import CommittedRecord, committed_records, header, read_committed
from recount.kafka.connection import Connection
from recount.kafka.dead_letters import REASON, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC, STREAM
from recount.recompute.log import Ranges

_SCHEMA = {
    "topic": pl.String(),
    "partition": pl.Int32(),
    "offset": pl.Int64(),
    "reason": pl.String(),
    "stream": pl.String(),
}


def dead_letters(connection: Connection, topic: str, letters: Ranges) -> pl.DataFrame:
    """What ``letters``, offsets of the dead-letter ``topic``, say."""
    rows = [_letter(record) for record in read_committed(connection, topic, letters)]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def within(rows: pl.DataFrame, group: str, topic: str, ranges: Ranges) -> pl.DataFrame:
    """The letters of the stream with this consumer ``group`` about offsets in ``ranges`` of ``topic``.

    A letter that names no place counts as well, and so does one that names no stream: no stream of this version wrote
    it. Letters of another stream are that stream's, even where they name no place.
    """
    inside = pl.lit(value=False)
    for partition, (start, end) in ranges.items():
        inside = inside | ((pl.col("partition") == partition) & pl.col("offset").is_between(start, end, closed="left"))
    judged = (pl.col("topic") == topic) & inside | pl.col("offset").is_null()
    return rows.filter(judged & (pl.col("stream").is_null() | (pl.col("stream") == group)))


def dead_letters_by_spark(session: SparkSession, bootstrap_servers: str, topic: str, letters: Ranges) -> DataFrame:
    """The same as Spark's rows."""
    records = committed_records(session, bootstrap_servers, topic, letters)
    if records is None:
        return session.createDataFrame([], "topic string, partition int, offset long, reason string, stream string")
    return records.select(
        header(SOURCE_TOPIC).alias("topic"),
        header(SOURCE_PARTITION).try_cast("int").alias("partition"),
        header(SOURCE_OFFSET).try_cast("long").alias("offset"),
        header(REASON).alias("reason"),
        header(STREAM).alias("stream"),
    )


def within_by_spark(rows: DataFrame, group: str, topic: str, ranges: Ranges) -> DataFrame:
    """``within`` of Spark's rows."""
    inside = F.lit(False)
    for partition, (start, end) in ranges.items():
        inside = inside | ((F.col("partition") == partition) & (F.col("offset") >= start) & (F.col("offset") < end))
    judged = (F.col("topic") == topic) & inside | F.col("offset").isNull()
    return rows.where(judged & (F.col("stream").isNull() | (F.col("stream") == group)))


def _letter(record: CommittedRecord) -> tuple[str | None, int | None, int | None, str | None, str | None]:
    return (
        record.header(SOURCE_TOPIC),
        _number(record.header(SOURCE_PARTITION), bits=32),
        _number(record.header(SOURCE_OFFSET), bits=64),
        record.header(REASON),
        record.header(STREAM),
    )


def _number(said: str | None, *, bits: int) -> int | None:
    try:
        number = int(said or "")
    except ValueError:
        return None
    return number if number.bit_length() < bits else None
