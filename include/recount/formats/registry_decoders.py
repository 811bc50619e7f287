"""Values of a schema registry to Arrow columns: a zero byte, the id of the writer's schema, the encoded value."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from recount.declare.schema import BadRecord, FieldType, RecordSchema
from recount.declare.values import Reading
from recount.formats.avro_values import AvroWriter, Malformed, NoAvroSchema, Resolution
from recount.formats.json_values import Decoded, Fault, arrow_type
from recount.formats.schema_registry import UnknownSchema, avro_schema
from recount.runtime.errors import Unresolvable

_MAGIC, HEAD = 0, 5
"""``HEAD`` bytes are before the value."""


_Resolved = tuple[AvroWriter, Resolution]


class RegistryDecoder(ABC):
    """Decodes the values of one topic; ``columns`` limits what is returned, never what is checked."""

    def __init__(self, declared: RecordSchema, columns: Sequence[str] | None = None) -> None:
        self._declared = declared
        self._columns = list(declared.fields if columns is None else columns)

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """All ``values`` as columns. A null value is a tombstone: nulls and no fault."""
        nothing = dict.fromkeys(self._declared.fields)
        rows, faults = [], []
        for index, value in enumerate(values):
            row: dict[str, Any] = nothing
            try:
                row = nothing if value is None else self._row(value)
            except BadRecord as bad:
                faults.append(Fault(index, bad.reason, bad.detail))
            rows.append(row)
        kinds = {name: arrow_type(self._declared.fields[name]) for name in self._columns}
        columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
        return Decoded(columns=columns, faults=faults)

    def _row(self, value: bytes) -> dict[str, Any]:
        if len(value) < HEAD or value[0] != _MAGIC:
            raise BadRecord("undecodable", f"no id of a schema, which begins with a zero byte: {value[:HEAD]!r}")
        return self._fields_of(int.from_bytes(value[1:HEAD], "big"), value)

    @abstractmethod
    def _fields_of(self, schema_id: int, value: bytes) -> dict[str, Any]:
        """The declared fields of ``value``, of which ``HEAD`` bytes have been read; raises ``BadRecord``."""

    def _unlike(self, schema_id: int, error: Exception) -> BadRecord:
        """For all values of a schema that is none, or not like what is declared."""
        return self._unreadable(f"schema {schema_id} cannot be read as what is declared: {error}")

    def _unreadable(self, why: str) -> BadRecord:
        """For all values of a schema, because of ``why``."""
        told = ", ".join(f"{name}: {self._declared.told(name)}" for name in self._declared.fields)
        return BadRecord("schema", f"{why}; declared is {told}")


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
        writer, resolution = reading
        try:
            record = writer.value(value, HEAD)
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
    writer = AvroWriter(text)
    declared = RecordSchema(fields=dict(fields), required=required, readings=dict(readings))
    return writer, Resolution(writer, declared)
