"""What is written to a source's dead-letter topic: the bad record as it was, and why it is there."""

from __future__ import annotations

from collections.abc import Iterable

from recount.kafka.transaction import KafkaRecord

REASON = "recount-reason"
ERROR = "recount-error"
STREAM = "recount-stream"
SOURCE_TOPIC = "recount-source-topic"
SOURCE_PARTITION = "recount-source-partition"
SOURCE_OFFSET = "recount-source-offset"
SOURCE_TIMESTAMP = "recount-source-timestamp"

_MAX_ERROR_BYTES = 2_000


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
) -> KafkaRecord:
    """The record for ``destination``: original key, value and headers, byte for byte, then ours.

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
    added = tuple((name, text.encode()[:_MAX_ERROR_BYTES]) for name, text in ours.items())
    return KafkaRecord(topic=destination, key=key, value=value, headers=(*headers, *added))
