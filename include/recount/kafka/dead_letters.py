"""Records to write to Kafka: their size in bytes and its limit, headers, and dead letters.

A dead letter holds the bad record as it was, and why it is bad.
"""

from collections.abc import Iterable
from operator import methodcaller
from typing import Any, NamedTuple

from confluent_kafka import Message

from recount.declare.output import SOURCE_HEADER
from recount.declare.topics import LARGEST_RECORD
from recount.kafka.connection import Connection
from recount.kafka.offsets import setting_of
from recount.runtime.errors import OfARecord, RecountError

_OF_A_BATCH = 61
"""Bytes of a batch of records before its first one."""
_OF_A_RECORD = 36
"""At most so many bytes has a record beside its key, value and headers, and each header so many beside its own."""
_OF_A_HEADER = 10
Headers = tuple[tuple[str, bytes], ...]
_ask = methodcaller("headers")
"""Where the name of a header is no UTF-8, the client answers and leaves its error behind as well. Python finds such an
error in a plain ``message.headers()`` the first times only; once that code is fast, the error comes up wherever the
next function is called. In a call through this one it is always found."""
REASON = "recount-reason"
ERROR = "recount-error"
STREAM = "recount-stream"
SOURCE_TOPIC = "recount-source-topic"
SOURCE_PARTITION = "recount-source-partition"
SOURCE_OFFSET = "recount-source-offset"
SOURCE_TIMESTAMP = "recount-source-timestamp"
LEFT_OUT = "recount-left-out"
"""Of a letter whose topic would not take the record with our headers: how many bytes its value had."""
KEY_LEFT_OUT = "recount-left-out-key"
"""Of one that it would not take without the value either: how many bytes its key had."""
_MAX_ERROR_BYTES = 2_000
_MAX_BYTES = 1_000_000
"""Of a letter. Topics take 1,048,588 by default, with what Kafka adds."""
_OF_KAFKA = 300
"""More than Kafka adds, and the headers that say what was left out."""
_SHOWN = 40


class KafkaRecord(NamedTuple):
    """One record to write. ``timestamp_ms`` None is the time of writing; ``partition`` None follows from the key.

    A tuple, for a batch makes a million of them.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None

    @property
    def size(self) -> int:
        """The bytes that it takes in a batch of its own, uncompressed; a few more than it will be."""
        headers = sum(len(name.encode()) + len(value) + _OF_A_HEADER for name, value in self.headers)
        return _OF_A_BATCH + _OF_A_RECORD + len(self.key or b"") + len(self.value or b"") + headers


def record_headers(message: Message) -> list[tuple[str, str | bytes | None]] | None:
    """Headers of ``message``, in their order; None where a name is no UTF-8, for then the client can read none."""
    try:
        found: Any = _ask(message)
    except (SystemError, UnicodeDecodeError):
        return None
    return list(found.items() if isinstance(found, dict) else found or ())


def dead_letter(
    *,
    destination: str,
    stream: str,
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    reason: str,
    error: str,
    headers: Iterable[tuple[str, bytes]] = (),
    limit: int | None = None,
) -> KafkaRecord:
    """The record for ``destination``: original key, value and headers, byte for byte, then ours.

    A value with which the letter would be too large is left out, and so is such a key: they are in ``topic`` still, and
    a record without a dead letter must not stop the stream. ``limit`` is the limit of ``destination``, if known.

    ``stream`` is the consumer group of the stream that could not take the record: streams that read one topic share its
    dead-letter topic, and each judges its own letters.

    It keeps no timestamp of its own origin: an absurd one (the very reason it may be here) would make the broker's
    retention delete it. The original timestamp (where a function raised, the event time) is in a header, in
    milliseconds, decimal text as all our numbers.
    """
    ours = {
        REASON: reason,
        ERROR: error,
        STREAM: stream,
        SOURCE_TOPIC: topic,
        SOURCE_PARTITION: str(partition),
        SOURCE_OFFSET: str(offset),
        SOURCE_TIMESTAMP: str(timestamp_ms),
    }
    added = [(name, text.encode()[:_MAX_ERROR_BYTES]) for name, text in ours.items()]
    told = [*headers, *added]
    most = _MAX_BYTES if limit is None else min(_MAX_BYTES, limit - _OF_KAFKA)
    room = most - sum(len(name) + len(said) for name, said in told)
    if value is not None and len(key or b"") + len(value) > room:
        told.append((LEFT_OUT, b"%d" % len(value)))
        value = None
    if key is not None and len(key) + len(value or b"") > room:
        told.append((KEY_LEFT_OUT, b"%d" % len(key)))
        key = None
    return KafkaRecord(topic=destination, key=key, value=value, headers=tuple(told))


class RecordTooLarge(OfARecord):
    """A record that its topic does not take; no try of the same batch can succeed."""


def limit_of(connection: Connection, topic: str) -> int | None:
    """The largest batch that the brokers take for ``topic``; None where this user may not ask, or no broker answers."""
    try:
        return int(setting_of(connection, topic, LARGEST_RECORD))
    except RecountError:
        return None


def largest(records: Iterable[KafkaRecord], topic: str) -> KafkaRecord | None:
    return max((one for one in records if one.topic == topic), key=lambda one: one.size, default=None)


def too_large(record: KafkaRecord, limit: int | None) -> RecordTooLarge:
    """The error of ``record``, the largest of those to its topic, which takes ``limit`` bytes (None: nobody says)."""
    key = "no key" if record.key is None else f"key {_beginning(record.key)} of {len(record.key):,} bytes"
    value = "no value" if record.value is None else f"a value of {len(record.value):,} bytes"
    source = _source_of(record)
    takes = "not known" if limit is None else f"{limit:,} bytes"
    error = RecordTooLarge.of(
        "record-too-large",
        given=f"{key}, {value}, {record.size:,} bytes in all" + (f", made of {source}" if source else ""),
        topic=record.topic,
        setting=LARGEST_RECORD,
        takes=takes,
    )
    error.record = source
    return error


def _source_of(record: KafkaRecord) -> str | None:
    said = {name: value.decode(errors="replace") for name, value in record.headers}
    if SOURCE_OFFSET in said:
        return f"{said[SOURCE_TOPIC]}-{said[SOURCE_PARTITION]}@{said[SOURCE_OFFSET]}"
    return said.get(SOURCE_HEADER)


def _beginning(key: bytes) -> str:
    shown = key[:_SHOWN].decode(errors="replace")
    return f"{shown!r}{'…' if len(key) > _SHOWN else ''}"
