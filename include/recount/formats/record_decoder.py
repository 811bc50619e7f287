"""Decoders of a topic's records to Arrow columns: keys, values, and the headers that are declared as fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from recount.declare.operators.keys_and_fields import key_of, key_text
from recount.declare.plain_values import PlainValue
from recount.declare.schema import BadRecord, FieldType, RecordSchema
from recount.declare.topics import Topic
from recount.declare.values import WHOLE, Reading
from recount.formats.json_values import Decoded, Fault, ValueDecoder, arrow_type
from recount.formats.protobuf_resolution import ProtobufDecoder
from recount.formats.registry_decoders import AvroDecoder
from recount.formats.schema_registry import avro_schema

GivenHeaders = Sequence[Mapping[str, Any]] | None
"""Of a record as Spark hands them over: each with ``key`` and ``value``."""


def key_texts(topic: Topic, keys: pa.Array) -> pa.Array:
    """Keys without fields as rows have them; null where one is no such."""
    try:
        if topic.key_form == "text":
            return keys.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    return pa.array([None if key is None else key_text(topic, key) for key in keys.to_pylist()], pa.string())


class KeyColumns:
    """Reads the keys of a ``topic`` that has fields of them."""

    def __init__(self, topic: Topic) -> None:
        assert isinstance(topic.value, RecordSchema), "checked by Topic"
        self._declared = topic.value.of_key
        self._decoder = _decoder(topic, self._declared)

    def decode(self, keys: Sequence[bytes | None]) -> tuple[Decoded, pa.Array]:
        """All fields of all ``keys``, and the keys as rows have them; of a null key all are null."""
        decoded = self._decoder.decode(keys)
        names = list(self._declared.fields)
        rows = zip(*(decoded.columns[name].to_pylist() for name in names), strict=True)
        texts = pa.array([key_of(dict(zip(names, row, strict=True))) for row in rows], pa.string())
        missing = sorted(self._declared.required)[:1]
        absent = [
            Fault(index, "schema", f"required field {name}: no key")
            for name in missing
            for index, key in enumerate(keys)
            if key is None
        ]
        return Decoded(columns=decoded.columns, faults=[*decoded.faults, *absent]), texts


def _decoder(topic: Topic, declared: RecordSchema) -> ValueDecoder | AvroDecoder | ProtobufDecoder:
    match topic.key_form:
        case "avro":
            return AvroDecoder(_below(declared), None, lambda schema_id: _around(avro_schema(schema_id)))
        case "protobuf":
            return ProtobufDecoder(declared)
    return ValueDecoder(declared)


def _around(text: str) -> str:
    """A record with one field, which is of the schema ``text``: its values are encoded as that field alone is."""
    try:
        schema = json.loads(text)
        return json.dumps({"type": "record", "name": "recount_key", "fields": [{"name": WHOLE[0], "type": schema}]})
    except (ValueError, RecursionError):
        return text


def _below(declared: RecordSchema) -> RecordSchema:
    """``declared`` within the one field of ``_around``."""
    fields: dict[str, FieldType | Reading] = {
        name: one if one.path == WHOLE else replace(one, path=(*WHOLE, *one.path))
        for name, one in declared.readings.items()
    }
    return RecordSchema(fields=fields, required=declared.required)  # type: ignore[arg-type] # readings, too


class HeaderColumns:
    """Reads the headers of one topic; ``columns`` limits what is returned, never what is checked."""

    def __init__(self, declared: RecordSchema, columns: Sequence[str]) -> None:
        self._declared = declared
        self._columns = [name for name in columns if name in declared.header_fields]

    def decode(self, headers: Sequence[GivenHeaders], values: Sequence[bytes | None]) -> Decoded:
        """Decode all records; one with a null value is a tombstone, whose fields are all null."""
        nothing = dict.fromkeys(self._declared.header_fields)
        rows, faults = [], []
        for index, (given, value) in enumerate(zip(headers, values, strict=True)):
            row: dict[str, Any] = nothing
            try:
                if value is not None:
                    row = self._declared.of_headers((one["key"], one["value"]) for one in given or ())
            except BadRecord as bad:
                faults.append(Fault(index, bad.reason, bad.detail))
            rows.append(row)
        kinds = {name: arrow_type(self._declared.fields[name]) for name in self._columns}
        columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
        return Decoded(columns=columns, faults=faults)


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
        """The fault of ``value`` by the reference; None where it has none."""
        try:
            if value is not None:
                self._declared.decode(value)
        except BadRecord as bad:
            return Fault(index, bad.reason, bad.detail)
        return None
