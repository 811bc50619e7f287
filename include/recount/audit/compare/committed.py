"""Committed records of a topic that Recount writes, with their headers, for comparison.

Few are read by a consumer here, in milliseconds; many by Spark, which takes a second to begin but has more hands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from recount.declare.output import TIME_HEADER
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failure
from recount.kafka.dead_letters import record_headers
from recount.kafka.offsets import TO_THE_END
from recount.recompute.raw_log import Ranges
from recount.runtime.errors import Transient

_AT_A_TIME = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class CommittedRecord:
    """One record as it is on Kafka."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, str | bytes | None]]

    @property
    def event_time_ms(self) -> int:
        """Time with which the record was written; at the epoch a header says it, see ``TIME_HEADER``."""
        return 0 if self.timestamp_ms == 1 and self.header(TIME_HEADER) == "0" else self.timestamp_ms

    def header(self, name: str) -> str | None:
        """The value of the last header called ``name``, as text; None where there is none, or it is no text."""
        for mine, value in reversed(self.headers):
            if mine == name:
                return text_of_bytes(value)
        return None


def offsets_in(ranges: Ranges) -> int:
    """How many offsets ``ranges`` hold; at most so many records."""
    return sum(max(0, end - start) for start, end in ranges.values())


def read_committed(connection: Connection, topic: str, ranges: Ranges) -> Iterator[CommittedRecord]:
    """Yield what a read_committed consumer finds in ``ranges`` of ``topic``, one by one.

    Raises ``Transient`` when the brokers do not answer.
    """
    ends = {partition: end for partition, (start, end) in ranges.items() if start < end}
    if not ends:
        return
    consumer = connection.consumer(connection.own("recount.audit"), TO_THE_END)
    try:
        consumer.assign([TopicPartition(topic, partition, ranges[partition][0]) for partition in ends])
        while ends:
            for message in _received(consumer, topic):
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise failure(f"reading {topic}", error)
                if error is None and offset < ends.get(partition, 0):
                    yield _record(message, partition, offset)
                if error is not None or offset >= ends.get(partition, 0) - 1:
                    ends.pop(partition, None)
    finally:
        consumer.close()


def committed_records(session: SparkSession, connection: Connection, topic: str, ranges: Ranges) -> DataFrame | None:
    """Return what a read_committed consumer finds in ``ranges`` as Spark's Kafka source has it; None for empty ones."""
    spans = {partition: span for partition, span in ranges.items() if span[0] < span[1]}
    if not spans:
        return None
    starts, ends = (json.dumps({topic: {str(p): span[end] for p, span in spans.items()}}) for end in (0, 1))
    return (
        session.read.format("kafka")
        .options(**connection.of_spark)
        .option("assign", json.dumps({topic: sorted(spans)}))
        .option("startingOffsets", starts)
        .option("endingOffsets", ends)
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.fetch.max.wait.ms", "20")  # a range ends in a transaction marker, of which a fetch tells nothing
        .option("includeHeaders", "true")
        .load()
    )


def event_time_ms() -> Column:
    """Return the time with which a record was written, as ``CommittedRecord.event_time_ms`` has it."""
    at_ms = F.unix_millis("timestamp")
    return F.when((at_ms == 1) & (header(TIME_HEADER) == "0"), F.lit(0)).otherwise(at_ms)


def header(name: str) -> Column:
    """The value of the last header called ``name``, as text; null where there is none, or it is no text."""
    mine = F.filter("headers", lambda header: header["key"] == name)
    return as_text(F.try_element_at(mine, F.lit(-1))["value"])


def as_text(value: Column) -> Column:
    """The bytes ``value`` as text; null where they are no UTF-8.

    A cast alone keeps them, and a reader of the file in which an audit has written them fails, night after night.
    """
    return F.try_validate_utf8(value.cast("string"))


def _received(consumer: Consumer, topic: str) -> list[Message]:
    first = consumer.poll(REQUEST_TIMEOUT_S)
    if first is None:
        raise Transient(f"no answer from the brokers while reading {topic}", remedy="see that the brokers are up")
    return [first, *consumer.consume(_AT_A_TIME, 0)]


def _record(message: Message, partition: int, offset: int) -> CommittedRecord:
    kind, timestamp_ms = message.timestamp()
    # of one whose headers cannot be read there are none, for it is no record of ours
    key, value, headers = message.key(), message.value(), record_headers(message)
    return CommittedRecord(
        partition=partition,
        offset=offset,
        timestamp_ms=-1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        key=key,
        value=value,
        headers=tuple(headers),
    )


def text_of_bytes(value: str | bytes | None) -> str | None:
    """``value`` as text; None where it is none, or is no UTF-8."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None
