"""How large a record may be: the limit of its topic, and the error that names a record which is larger."""

from __future__ import annotations

from collections.abc import Iterable

from recount.core.errors import OfARecord, RecountError
from recount.core.output import SOURCE_HEADER
from recount.core.topics import LARGEST_RECORD
from recount.kafka.connection import Connection
from recount.kafka.dead_letters import SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC
from recount.kafka.kafka_record import KafkaRecord
from recount.kafka.offsets import setting_of

_SHOWN = 40


class RecordTooLarge(OfARecord):
    """A record that its topic does not take; no try of the same batch can succeed."""


def limit_of(connection: Connection, topic: str) -> int | None:
    """The largest batch that the brokers take for ``topic``; None where this user may not ask, or no broker answers."""
    try:
        return int(setting_of(connection, topic, LARGEST_RECORD))
    except RecountError:
        return None


def largest(records: Iterable[KafkaRecord], topic: str) -> KafkaRecord | None:
    """The largest of ``records`` to ``topic``."""
    return max((one for one in records if one.topic == topic), key=lambda one: one.size, default=None)


def too_large(record: KafkaRecord, limit: int | None) -> RecordTooLarge:
    """The error of ``record``, the largest of those to its topic, which takes ``limit`` bytes (None: nobody says)."""
    key = "no key" if record.key is None else f"key {_beginning(record.key)} of {len(record.key):,} bytes"
    value = "no value" if record.value is None else f"a value of {len(record.value):,} bytes"
    source = _source_of(record)
    takes = "not known" if limit is None else f"{limit:,} bytes"
    error = RecordTooLarge(
        f"Kafka refused a record that is larger than topic {record.topic} takes",
        given=f"{key}, {value}, {record.size:,} bytes in all" + (f", made of {source}" if source else ""),
        expected=f"{LARGEST_RECORD} of {record.topic}: {takes}, when compressed",
        remedy=f"make the record smaller, or raise {LARGEST_RECORD} in the declared configs of the topic, `recount"
        " topics --apply`; a topic without it goes by message.max.bytes of the brokers, and our producer sets no limit",
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
