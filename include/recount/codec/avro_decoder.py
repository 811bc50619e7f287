"""Avro values of a schema registry: behind the id of the schema the binary encoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from recount.codec.avro_binary import Malformed, Read, reader_of, whole_value
from recount.codec.avro_resolution import Resolution
from recount.codec.avro_schemas import NoAvroSchema, parsed_schema
from recount.codec.registry_decoder import HEAD, RegistryDecoder
from recount.codec.unresolvable import Unresolvable
from recount.codec.writer_schemas import UnknownSchema, avro_schema
from recount.core.readings import Reading
from recount.core.schema import BadRecord, FieldType, RecordSchema

_Resolved = tuple[Read, Resolution]


class AvroDecoder(RegistryDecoder):
    """Decodes the values of one topic.

    ``schema_of`` gives the schema with an id, and raises ``UnknownSchema`` where there is none. What it raises besides
    is no fault of a record, and is raised by ``decode``.
    """

    def __init__(
        self,
        declared: RecordSchema,
        columns: Sequence[str] | None = None,
        schema_of: Callable[[int], str] = avro_schema,
    ) -> None:
        super().__init__(declared, columns)
        self._schema_of = schema_of
        self._by_id: dict[int, _Resolved | BadRecord] = {}

    def _fields_of(self, schema_id: int, value: bytes) -> dict[str, Any]:
        reading = self._by_id.get(schema_id)
        if reading is None:
            reading = self._by_id[schema_id] = self._reading(schema_id)
        if isinstance(reading, BadRecord):
            raise reading
        read, resolution = reading
        try:
            record = whole_value(read, value, HEAD)
        except Malformed as error:
            raise BadRecord("undecodable", f"no value of schema {schema_id}: {error}") from error
        return resolution.fields_of(record)

    def _reading(self, schema_id: int) -> _Resolved | BadRecord:
        declared = self._declared
        fields, readings = tuple(declared.fields.items()), tuple(declared.readings.items())
        try:
            return _resolved(self._schema_of(schema_id), fields, readings, declared.required)
        except UnknownSchema as error:
            return self._unreadable(str(error))
        except (NoAvroSchema, Unresolvable) as error:
            return self._unlike(schema_id, error)


@lru_cache(maxsize=256)
def _resolved(
    text: str,
    fields: tuple[tuple[str, FieldType], ...],
    readings: tuple[tuple[str, Reading], ...],
    required: frozenset[str],
) -> _Resolved:
    """For all batches that a process decodes."""
    writer = parsed_schema(text)
    declared = RecordSchema(fields=dict(fields), required=required, readings=dict(readings))
    return reader_of(writer), Resolution(writer, declared)
