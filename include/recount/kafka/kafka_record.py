"""One record to write to Kafka, and how many bytes of a batch it takes."""

from __future__ import annotations

from typing import NamedTuple

_OF_A_BATCH = 61
"""Bytes of a batch of records before its first one."""
_OF_A_RECORD = 36
"""At most so many bytes has a record beside its key, value and headers, and each header so many beside its own."""
_OF_A_HEADER = 10

Headers = tuple[tuple[str, bytes], ...]


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
