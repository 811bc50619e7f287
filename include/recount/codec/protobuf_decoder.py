"""Protobuf values of a schema registry: behind the id of a file the place of a message in it, and the message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recount.codec.protobuf_resolution import Resolution
from recount.codec.protobuf_schemas import NoProtobufSchema, file_of, writer_message
from recount.codec.registry_decoder import HEAD, RegistryDecoder
from recount.codec.unresolvable import Unresolvable
from recount.codec.writer_schemas import UnknownSchema, protobuf_schema
from recount.core.readings import Reading
from recount.core.schema import BadRecord, FieldType, RecordSchema

if TYPE_CHECKING:
    from google.protobuf.message import Message

_Resolved = tuple[type["Message"], Resolution]
_MOST_INDEXES = 100
_LONGEST = 5
"""Bytes of an index, a number of 32 bits."""


class ProtobufDecoder(RegistryDecoder):
    """Decodes the values of one topic; ``schema_of`` is as that of ``AvroDecoder``."""

    def __init__(
        self,
        declared: RecordSchema,
        columns: Sequence[str] | None = None,
        schema_of: Callable[[int], str] = protobuf_schema,
    ) -> None:
        super().__init__(declared, columns)
        self._schema_of = schema_of
        self._files: dict[int, str | BadRecord] = {}
        self._by_message: dict[tuple[int, tuple[int, ...]], _Resolved | BadRecord] = {}

    def _fields_of(self, schema_id: int, value: bytes) -> dict[str, Any]:
        file = self._files.get(schema_id)
        if file is None:
            file = self._files[schema_id] = self._file(schema_id)
        if isinstance(file, BadRecord):
            raise file
        indexes, start = _indexes(value)
        wanted = schema_id, indexes
        reading = self._by_message.get(wanted)
        if reading is None:
            reading = self._by_message[wanted] = self._reading(schema_id, file, indexes)
        if isinstance(reading, BadRecord):
            raise reading
        from google.protobuf.message import DecodeError

        made, resolution = reading
        message = made()
        try:
            made.ParseFromString(message, value[start:])  # a field of the message can be called so, too
        except DecodeError as error:
            raise BadRecord("undecodable", f"no value of schema {schema_id}: {error}") from error
        return resolution.fields_of(message)

    def _file(self, schema_id: int) -> str | BadRecord:
        try:
            file = self._schema_of(schema_id)
            file_of(file)
        except UnknownSchema as error:
            return self._unreadable(str(error))
        except NoProtobufSchema as error:
            return self._unlike(schema_id, error)
        return file

    def _reading(self, schema_id: int, file: str, indexes: tuple[int, ...]) -> _Resolved | BadRecord:
        declared = self._declared
        fields, readings = tuple(declared.fields.items()), tuple(declared.readings.items())
        try:
            return _resolved(file, indexes, fields, readings, declared.required)
        except (NoProtobufSchema, Unresolvable) as error:
            return self._unlike(schema_id, error)


def _indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of its file the value is, and where it begins; no index at all says the first."""
    count, at = _index(value, HEAD)
    if not 0 <= count <= len(value) - at:
        raise BadRecord("undecodable", f"{count} indexes of a message in {len(value)} bytes")
    found: list[int] = []
    for _ in range(count):
        if len(found) == _MOST_INDEXES:  # there may be a million of them, and what is read of each place is kept
            raise BadRecord("undecodable", f"{count} indexes of a message")
        index, at = _index(value, at)
        found.append(index)
    return tuple(found) or (0,), at


def _index(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(value[at : at + _LONGEST]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + place + 1
    raise BadRecord("undecodable", "the index of its message is cut off or too long")


@lru_cache(maxsize=256)
def _resolved(
    text: str,
    indexes: tuple[int, ...],
    fields: tuple[tuple[str, FieldType], ...],
    readings: tuple[tuple[str, Reading], ...],
    required: frozenset[str],
) -> _Resolved:
    """For all batches that a process decodes."""
    writer = writer_message(text, indexes)
    declared = RecordSchema(fields=dict(fields), required=required, readings=dict(readings))
    return writer.made, Resolution(writer, declared)
