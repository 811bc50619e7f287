"""What is written to a source's dead-letter topic: the bad record as it was, and why it is there."""

from __future__ import annotations

from collections.abc import Iterable

from recount.kafka.kafka_record import KafkaRecord

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

    A value with which the letter would be too large is left out, and so is such a key: they lie in ``topic`` still, and
    a record that nobody can be told of must not stop the stream. ``limit`` is what ``destination`` takes, where known.

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
