"""Decodes the records of one topic: their keys, their values, and the headers that are declared as fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from recount.codec.avro_decoder import AvroDecoder
from recount.codec.decoder import Decoded, Fault, ValueDecoder
from recount.codec.header_columns import GivenHeaders, HeaderColumns
from recount.codec.key_columns import KeyColumns, key_texts
from recount.codec.protobuf_decoder import ProtobufDecoder
from recount.core.plain_values import PlainValue
from recount.core.schema import BadRecord, RecordSchema
from recount.core.topics import Topic


@dataclass(frozen=True)
class DecodedRecords(Decoded):
    """With the ``keys`` as rows have them, null where there is none or it is no text."""

    keys: pa.Array


class RecordDecoder:
    """``columns`` are the fields that are returned, never what is checked."""

    def __init__(self, topic: Topic, columns: Sequence[str]) -> None:
        self._topic, self._wanted = topic, columns
        self._values = decoder_of(topic, columns)
        declared = topic.value if reads_headers(topic) else None
        self._headers = HeaderColumns(declared, columns) if isinstance(declared, RecordSchema) else None
        self._keys = KeyColumns(topic) if topic.key_fields else None

    @property
    def reads_headers(self) -> bool:
        """Whether ``decode`` needs the headers."""
        return self._headers is not None

    def decode(
        self, values: Sequence[bytes | None], keys: pa.Array, headers: Sequence[GivenHeaders] = ()
    ) -> DecodedRecords:
        """The records; what is wrong with a value counts before its headers, and these before its key."""
        parts = [self._values.decode(values)]
        if self._headers is not None:
            parts.append(self._headers.decode(headers, values))
        if self._keys is None:
            texts = key_texts(self._topic, keys)
        else:
            of_keys, texts = self._keys.decode(keys.to_pylist())
            wanted = {name: column for name, column in of_keys.columns.items() if name in self._wanted}
            parts.append(Decoded(columns=wanted, faults=of_keys.faults))
        return DecodedRecords(
            columns={name: column for part in parts for name, column in part.columns.items()},
            faults=[fault for part in reversed(parts) for fault in part.faults],
            keys=texts,
        )


def reads_headers(topic: Topic) -> bool:
    """Whether fields of the topic are headers."""
    return isinstance(topic.value, RecordSchema) and bool(topic.value.header_fields)


def decoder_of(topic: Topic, columns: Sequence[str]) -> ValueDecoder | PlainDecoder | AvroDecoder | ProtobufDecoder:
    """The decoder of the values of ``topic``, which must be declared; ``columns`` are the fields that are returned.

    Fields that are headers are not among them.
    """
    assert topic.value is not None, "checked by Source"
    if isinstance(topic.value, PlainValue):
        return PlainDecoder(topic.value, columns)
    declared = topic.value.of_value
    columns = [name for name in columns if name in declared.fields]
    match topic.encoding:
        case "avro":
            return AvroDecoder(declared, columns)
        case "protobuf":
            return ProtobufDecoder(declared, columns)
        case "json":
            return ValueDecoder(declared, columns)


class PlainDecoder:
    """Decodes the values of one topic; ``columns`` limits what is returned, never what is checked."""

    def __init__(self, declared: PlainValue, columns: Sequence[str] | None = None) -> None:
        self._declared = declared
        self._is_wanted = columns is None or declared.name in columns
        self._json = ValueDecoder(RecordSchema(fields=declared.fields), columns)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """All ``values`` as columns. A null value is a tombstone: null and no fault."""
        return self._texts(values) if self._declared.kind.kind == "string" else self._others(values)

    def _texts(self, values: Sequence[bytes | None]) -> Decoded:
        try:
            found, faults = pa.array(values, pa.binary()).cast(pa.string()), []
        except pa.ArrowInvalid:
            faults = [fault for fault in map(self._fault, range(len(values)), values) if fault]
            bad = {fault.index for fault in faults}
            good = [None if index in bad else value for index, value in enumerate(values)]
            found = pa.array(good, pa.binary()).cast(pa.string())
        return Decoded(columns={self._declared.name: found} if self._is_wanted else {}, faults=faults)

    def _others(self, values: Sequence[bytes | None]) -> Decoded:
        documents = [None if value is None else self._declared.as_json(value) for value in values]
        decoded = self._json.decode(documents)
        no_json = [index for index, value in enumerate(values) if value is not None and documents[index] is None]
        faults = [*decoded.faults, *filter(None, (self._fault(index, values[index]) for index in no_json))]
        return Decoded(columns=decoded.columns, faults=sorted(faults, key=lambda fault: fault.index))

    def _fault(self, index: int, value: bytes | None) -> Fault | None:
        """What the reference says against ``value``."""
        try:
            if value is not None:
                self._declared.decode(value)
        except BadRecord as bad:
            return Fault(index, bad.reason, bad.detail)
        return None
