"""The records of a dead-letter topic, by the source offsets in their headers."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession
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


def within(rows: pl.DataFrame, group: str, topic: str, ranges: Ranges, log: Mapping[str, Ranges]) -> pl.DataFrame:
    """The letters of the stream with this consumer ``group`` about offsets in ``ranges`` of ``topic``.

    ``log`` has the offsets that ``topic`` has had, asked after those of the letters: a letter of the stream about any
    other place counts as well, also about another topic that the stream reads, whose letters lie in a topic of their
    own. So does one that names no stream, about these offsets or about none: no stream of this version wrote it.
    Letters of another stream are that stream's, whatever place they name.
    """
    mine, nobodys = (pl.col("stream") == group).fill_null(value=False), pl.col("stream").is_null()
    nowhere = ~_is_at(topic, log.get(topic, {}))
    judged = _is_at(topic, ranges) & (mine | nobodys)
    return rows.filter(judged | nowhere & (mine | nobodys & pl.col("offset").is_null()))


def _is_at(topic: str, ranges: Ranges) -> pl.Expr:
    inside = pl.lit(value=False)
    for partition, (start, end) in ranges.items():
        inside = inside | ((pl.col("partition") == partition) & pl.col("offset").is_between(start, end, closed="left"))
    return ((pl.col("topic") == topic) & inside).fill_null(value=False)


def dead_letters_by_spark(session: SparkSession, connection: Connection, topic: str, letters: Ranges) -> DataFrame:
    """The same as Spark's rows."""
    records = committed_records(session, connection, topic, letters)
    if records is None:
        return session.createDataFrame([], "topic string, partition int, offset long, reason string, stream string")
    return records.select(
        header(SOURCE_TOPIC).alias("topic"),
        header(SOURCE_PARTITION).try_cast("int").alias("partition"),
        header(SOURCE_OFFSET).try_cast("long").alias("offset"),
        header(REASON).alias("reason"),
        header(STREAM).alias("stream"),
    )


def within_by_spark(rows: DataFrame, group: str, topic: str, ranges: Ranges, log: Mapping[str, Ranges]) -> DataFrame:
    """``within`` of Spark's rows."""
    mine, nobodys = F.col("stream").eqNullSafe(group), F.col("stream").isNull()
    nowhere = ~_is_at_by_spark(topic, log.get(topic, {}))
    judged = _is_at_by_spark(topic, ranges) & (mine | nobodys)
    return rows.where(judged | nowhere & (mine | nobodys & F.col("offset").isNull()))


def _is_at_by_spark(topic: str, ranges: Ranges) -> Column:
    inside = F.lit(False)
    for partition, (start, end) in ranges.items():
        inside = inside | ((F.col("partition") == partition) & (F.col("offset") >= start) & (F.col("offset") < end))
    return F.coalesce((F.col("topic") == topic) & inside, F.lit(False))


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
