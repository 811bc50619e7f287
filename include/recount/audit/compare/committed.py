"""Committed records of a topic that Recount writes, with their headers, for comparison.

Few are read by a consumer here, in milliseconds; many by Spark, which takes a second to begin but has more hands.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from recount.declare.output import TIME_HEADER
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failure
from recount.kafka.dead_letters import record_headers
from recount.kafka.offsets import TO_THE_END
from recount.recompute.frames.duck_columns import kind_of
from recount.recompute.frames.duck_frames import Frame, frame_of
from recount.recompute.frames.duck_handover import Handover
from recount.recompute.raw_log import Log, Ranges, RawLog, RecordsAtHand
from recount.runtime.errors import Transient

RECORDS_AT_HAND = 100_000
"""So many records are read here sooner than Spark has begun."""
_AT_A_TIME = 10_000
_RECORD = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommittedRecord:
    """One record as it is on Kafka."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, str | bytes | None]] | None
    """None: the client cannot read them."""

    @property
    def event_time_ms(self) -> int:
        """Time with which the record was written; at the epoch a header says it, see ``TIME_HEADER``."""
        return 0 if self.timestamp_ms == 1 and self.header(TIME_HEADER) == "0" else self.timestamp_ms

    def header(self, name: str) -> str | None:
        """The value of the last header called ``name``, as text; None where there is none, or it is no text."""
        for mine, value in reversed(self.headers or ()):
            if mine == name:
                return text_of_bytes(value)
        return None


def offsets_in(ranges: Ranges) -> int:
    """How many offsets ``ranges`` hold; at most so many records."""
    return sum(max(0, end - start) for start, end in ranges.values())


def read_committed(
    connection: Connection, topic: str, ranges: Ranges, *, is_whole: bool = False
) -> Iterator[CommittedRecord]:
    """Yield what a read_committed consumer finds in ``ranges`` of ``topic``, one by one.

    Raises ``Transient`` when the brokers do not answer, and where the first offset is gone that ``is_whole`` asks for.
    """
    ends = {partition: end for partition, (start, end) in ranges.items() if start < end}
    if not ends:
        return
    reset = {"auto.offset.reset": "error"} if is_whole else {}
    consumer = connection.consumer(connection.own("recount.audit"), TO_THE_END | reset)
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


def rows_of(
    handover: Handover,
    connection: Connection,
    log: Log,
    topic: str,
    ranges: Ranges,
    schema: pa.Schema,
    row: Callable[[CommittedRecord], tuple[Any, ...]],
) -> Frame:
    """``row`` of each record that a read_committed consumer finds in ``ranges``, with ``schema``.

    Many are read from ``log`` by Spark's tasks.
    """
    if offsets_in(ranges) <= RECORDS_AT_HAND:
        found = read_committed(connection, topic, ranges)
        return frame_of(handover.database, _tables(found, schema, row), schema)

    def made(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for table in _tables((CommittedRecord(**_with_headers(one)) for one in batch.to_pylist()), schema, row):
                yield from table.to_batches()

    kinds = T.StructType([T.StructField(one.name, kind_of(one.type)) for one in schema])
    return handover.passed(log.read(handover.session, topic, ranges, with_headers=True), kinds, made)


@dataclass(frozen=True, kw_only=True)
class FewAtHand:
    """The log ``of`` topics, of which few records are read in this process; not where it cannot read their headers."""

    connection: Connection
    of: Log

    def read(
        self, session: SparkSession, topic: str, ranges: Ranges, *, with_key: bool = True, with_headers: bool = False
    ) -> RawLog | RecordsAtHand:
        """The committed records in ``ranges``, read now where they are few."""
        if offsets_in(ranges) <= RECORDS_AT_HAND:
            found = sorted(
                read_committed(self.connection, topic, ranges, is_whole=True), key=attrgetter("partition", "offset")
            )
            if all(one.headers is not None for one in found):
                return RecordsAtHand(batches=lambda: batches_of(found, with_headers=with_headers))
        return self.of.read(session, topic, ranges, with_key=with_key, with_headers=with_headers)


def batches_of(records: Sequence[CommittedRecord], *, with_headers: bool = True) -> Iterator[pa.RecordBatch]:
    """``records`` with the columns of ``RawLog``."""
    schema = _RECORD if with_headers else pa.schema(list(_RECORD)[:-1])
    for table in _tables(records, schema, lambda one: _values(one)[: len(schema)]):
        yield from table.to_batches()


def _values(record: CommittedRecord) -> tuple[Any, ...]:
    headers = [{"key": name, "value": _as_bytes(value)} for name, value in record.headers or ()]
    return record.partition, record.offset, record.timestamp_ms, record.key, record.value, headers or None


def _as_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _with_headers(record: Mapping[str, Any]) -> dict[str, Any]:
    return {**record, "headers": [(one["key"], one["value"]) for one in record["headers"] or ()]}


def _tables(
    records: Iterable[CommittedRecord], schema: pa.Schema, row: Callable[[CommittedRecord], tuple[Any, ...]]
) -> Iterator[pa.Table]:
    rows = (row(one) for one in records)
    while some := list(islice(rows, _AT_A_TIME)):
        columns = zip(*some, strict=True)
        yield pa.table([pa.array(one, kind) for one, kind in zip(columns, schema.types, strict=True)], schema)


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
        headers=headers,
    )


def text_of_bytes(value: str | bytes | None) -> str | None:
    """``value`` as text; None where it is none, or is no UTF-8."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return None
