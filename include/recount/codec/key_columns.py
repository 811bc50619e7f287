"""The keys of a topic's records as Arrow columns: as rows have them, and the fields that lie in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from recount.codec.avro_decoder import AvroDecoder
from recount.codec.decoder import Decoded, Fault, ValueDecoder
from recount.codec.protobuf_decoder import ProtobufDecoder
from recount.codec.writer_schemas import avro_schema
from recount.core.readings import WHOLE, Reading
from recount.core.record_keys import key_of, key_text
from recount.core.schema import FieldType, RecordSchema
from recount.core.topics import Topic


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
        return json.dumps({"type": "record", "name": "Key", "fields": [{"name": WHOLE[0], "type": schema}]})
    except (ValueError, RecursionError):
        return text


def _below(declared: RecordSchema) -> RecordSchema:
    """``declared`` within the one field of ``_around``."""
    fields: dict[str, FieldType | Reading] = {
        name: one if one.path == WHOLE else replace(one, path=(*WHOLE, *one.path))
        for name, one in declared.readings.items()
    }
    return RecordSchema(fields=fields, required=declared.required)  # type: ignore[arg-type] # readings, too
