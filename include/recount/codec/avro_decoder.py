"""Avro values of a schema registry to Arrow columns: a zero byte, the id of the schema, the binary encoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from recount.codec.avro_binary import Malformed, Read, reader_of, whole_value
from recount.codec.avro_resolution import Resolution, Unresolvable
from recount.codec.avro_schemas import NoAvroSchema, parsed_schema
from recount.codec.decoder import Decoded, Fault, arrow_type
from recount.codec.writer_schemas import UnknownSchema, writer_schema
from recount.core.readings import Reading
from recount.core.schema import BadRecord, FieldType, RecordSchema

_MAGIC, _HEAD = 0, 5
_Resolved = tuple[Read, Resolution]


class AvroDecoder:
    """Decodes the values of one topic; ``columns`` limits what is returned, never what is checked.

    ``schema_of`` gives the schema with an id, and raises ``UnknownSchema`` where there is none. What it raises besides
    is no fault of a record, and is raised by ``decode``.
    """

    def __init__(
        self,
        declared: RecordSchema,
        columns: Sequence[str] | None = None,
        schema_of: Callable[[int], str] = writer_schema,
    ) -> None:
        self._declared = declared
        self._columns = list(declared.fields if columns is None else columns)
        self._schema_of = schema_of
        self._by_id: dict[int, _Resolved | BadRecord] = {}

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """All ``values`` as columns. A null value is a tombstone: nulls and no fault."""
        nothing = dict.fromkeys(self._declared.fields)
        rows, faults = [], []
        for index, value in enumerate(values):
            row: dict[str, Any] = nothing
            try:
                row = nothing if value is None else self._fields_of(value)
            except BadRecord as bad:
                faults.append(Fault(index, bad.reason, bad.detail))
            rows.append(row)
        kinds = {name: arrow_type(self._declared.fields[name]) for name in self._columns}
        columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
        return Decoded(columns=columns, faults=faults)

    def _fields_of(self, value: bytes) -> dict[str, Any]:
        if len(value) < _HEAD or value[0] != _MAGIC:
            raise BadRecord("undecodable", f"no id of a schema, which begins with a zero byte: {value[:_HEAD]!r}")
        schema_id = int.from_bytes(value[1:_HEAD], "big")
        reading = self._by_id.get(schema_id)
        if reading is None:
            reading = self._by_id[schema_id] = self._reading(schema_id)
        if isinstance(reading, BadRecord):
            raise reading
        read, resolution = reading
        try:
            record = whole_value(read, value, _HEAD)
        except Malformed as error:
            raise BadRecord("undecodable", f"no value of schema {schema_id}: {error}") from error
        return resolution.fields_of(record)

    def _reading(self, schema_id: int) -> _Resolved | BadRecord:
        declared = self._declared
        fields, readings = tuple(declared.fields.items()), tuple(declared.readings.items())
        try:
            return _resolved(self._schema_of(schema_id), fields, readings, declared.required)
        except UnknownSchema as error:
            why = str(error)
        except (NoAvroSchema, Unresolvable) as error:
            why = f"schema {schema_id} cannot be read as what is declared: {error}"
        told = ", ".join(f"{name}: {declared.told(name)}" for name in declared.fields)
        return BadRecord("schema", f"{why}; declared is {told}")


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
