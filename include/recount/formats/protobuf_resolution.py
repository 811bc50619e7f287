"""Protobuf values of a schema registry to Arrow columns, and whether a writer's message can be read as declared.

Behind the id of a file a value has the place of a message in it, and the message. It is decided once for each message.

A declared field takes what loses nothing: STRING a string or an enum, as the name of its number; LONG whole numbers of
any kind; DOUBLE these, float and double; decimal whole numbers, ``confluent.type.Decimal``, and a string as in JSON; a
list repeated fields of what its element takes. TIMESTAMP takes ``google.protobuf.Timestamp``, DATE
``google.type.Date``, both a string as in JSON, BYTES bytes. Instead of a scalar there may be its wrapper. A path leads
through messages, and through maps with strings as keys. A field that was not written is null where Protobuf tells that
from the default, and the default otherwise.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recount.declare.schema import LONG_MAX, MAX_DECIMAL_PRECISION, BadRecord, FieldType, RecordSchema, exact_decimal
from recount.declare.values import Form, Reading, of_text
from recount.formats.protobuf_schemas import DATE, DECIMAL, TIMESTAMP, Place, Step, writer_message
from recount.formats.registry_decoders import HEAD, RegistryDecoder
from recount.formats.schema_registry import UnknownSchema, protobuf_files
from recount.runtime.errors import Unresolvable
from recount.runtime.protobuf_files import Files, NoProtobufFile, descriptors

if TYPE_CHECKING:
    from google.protobuf.message import Message


Convert = Callable[[Any], Any]
"""Makes the declared value of a written one; None where it cannot be."""
_SECONDS = range(-62_135_596_800, 253_402_300_800)
"""From the year 1 to 9999, as Timestamp's own file says."""
_NANOS = range(1_000_000_000)
_LONGEST_DECIMAL = 64
"""Bytes of a number; the largest of 38 digits has 16."""
_WIDE = Context(prec=400)
_WHOLE = frozenset({3, 4, 5, 6, 7, 13, 15, 16, 17, 18})
_FLOAT, _BOOL, _STRING, _BYTES, _ENUM = frozenset({1, 2}), 8, 9, 12, 14
"""Numbers of ``FieldDescriptorProto.Type``."""
_MOST_INDEXES = 100
_LONGEST = 5
"""Bytes of an index, a number of 32 bits."""


class Resolution:
    """How to read messages of a ``writer`` as ``declared``; raises ``Unresolvable``."""

    def __init__(self, writer: type[Message], declared: RecordSchema) -> None:
        self._declared = declared
        self._made: dict[str, tuple[list[Step], Convert]] = {}
        for name, kind in declared.fields.items():
            found = Place.found(name, writer, declared.path_of(name))
            if found is not None:
                reading = declared.readings.get(name, Reading(kind=kind))
                self._made[name] = found.steps, _conversion(found, reading)
        missing = sorted(declared.required - self._made.keys())
        if missing:
            raise Unresolvable(f"it has no {', '.join(missing)}, which is declared as required")

    def fields_of(self, message: Any) -> dict[str, Any]:
        found = dict.fromkeys(self._declared.fields)
        for name, (steps, convert) in self._made.items():
            given = message
            for step in steps:
                given = None if given is None else step(given)
            if given is None:
                if name in self._declared.required:
                    raise BadRecord("schema", f"required field {name} is null")
                continue
            found[name] = convert(given)
            if found[name] is None:
                said = " ".join(str(given).split())[:80]
                raise BadRecord("schema", f"field {name}: expected {self._declared.told(name)}, got {said}")
        return found


def _conversion(place: Place, reading: Reading) -> Convert:
    declared = reading.kind
    if place.is_list and declared.element is not None and not reading.form:
        return _of_items(_scalar(place, declared.element))
    if place.is_list:
        raise place.unlike(reading.form or declared)
    return _formed(place, reading.form) if reading.form else _scalar(place, declared)


def _scalar(place: Place, declared: FieldType) -> Convert:
    kind = place.kind
    match declared.kind:
        case "string" if kind == _STRING:
            return _text
        case "string" if kind == _ENUM:
            return _first_names(place.field).get
        case "boolean" if kind == _BOOL:
            return _itself
        case "long" if kind in _WHOLE:
            return lambda given: given if given <= LONG_MAX else None
        case "double" if kind in _WHOLE or kind in _FLOAT:
            return lambda given: float(given) if math.isfinite(given) else None
        case "decimal" if kind in _WHOLE:
            return lambda given: _decimal(given, 0, declared)
        case "decimal" if kind == _STRING:
            return lambda given: exact_decimal(given, declared) if isinstance(given, str) else None
        case "decimal" if place.message_name == DECIMAL:
            return lambda given: _decimal_of_bytes(given, declared)
    raise place.unlike(declared)


def _formed(place: Place, form: Form) -> Convert:
    if place.kind == _STRING and form != "bytes":
        return lambda given: of_text(form, given) if isinstance(given, str) else None
    if form == "timestamp" and place.message_name == TIMESTAMP:
        return _milliseconds
    if form == "date" and place.message_name == DATE:
        return _day
    if form == "bytes" and place.kind == _BYTES:
        return lambda given: base64.b64encode(given).decode()
    raise place.unlike(form)


def _first_names(field: Any) -> dict[int, str]:
    """Names by number; of a number with several names the first."""
    names: dict[int, str] = {}
    for value in field.enum_type.values:
        names.setdefault(value.number, value.name)
    return names


def _itself(given: Any) -> Any:
    return given


def _text(given: Any) -> str | None:
    """The runtime gives bytes where a file of proto2 has a string that is no UTF-8."""
    return given if isinstance(given, str) else None


def _decimal_of_bytes(given: Any, declared: FieldType) -> Decimal | None:
    if len(given.value) > _LONGEST_DECIMAL:
        return None
    return _decimal(int.from_bytes(given.value, "big", signed=True), given.scale, declared)


def _decimal(unscaled: int, scale: int, declared: FieldType) -> Decimal | None:
    """``unscaled`` with its ``scale``; None where it has more digits or decimal places, zeros behind apart."""
    further = declared.scale - scale
    if unscaled == 0:
        made, rest = 0, 0
    elif further > MAX_DECIMAL_PRECISION or -further > unscaled.bit_length():
        return None
    else:
        made, rest = divmod(unscaled * 10 ** max(further, 0), 10 ** max(-further, 0))
    if rest or abs(made) >= 10**declared.precision:
        return None
    return Decimal(made).scaleb(-declared.scale, _WIDE)


def _milliseconds(given: Any) -> int | None:
    if given.seconds not in _SECONDS or given.nanos not in _NANOS:
        return None
    return int(given.seconds) * 1000 + int(given.nanos) // 1_000_000


def _day(given: Any) -> str | None:
    """None for a day without a year or a month, which the message allows."""
    try:
        return date(given.year, given.month, given.day).isoformat()
    except (ValueError, OverflowError):
        return None


def _of_items(convert: Convert) -> Convert:
    def converted(given: Any) -> list[Any] | None:
        items = [convert(item) for item in given]
        return None if any(item is None for item in items) else items

    return converted


_Resolved = tuple[type["Message"], Resolution]


class ProtobufDecoder(RegistryDecoder):
    """Decodes the values of one topic; ``schema_of`` is as that of ``AvroDecoder``."""

    def __init__(
        self,
        declared: RecordSchema,
        columns: Sequence[str] | None = None,
        schema_of: Callable[[int], Files] = protobuf_files,
    ) -> None:
        super().__init__(declared, columns)
        self._schema_of = schema_of
        self._files: dict[int, Files | BadRecord] = {}
        self._by_message: dict[tuple[int, tuple[int, ...]], _Resolved | BadRecord] = {}

    def _fields_of(self, schema_id: int, value: bytes) -> dict[str, Any]:
        files = self._files.get(schema_id)
        if files is None:
            files = self._files[schema_id] = self._known_files(schema_id)
        if isinstance(files, BadRecord):
            raise files
        indexes, start = _indexes(value)
        wanted = schema_id, indexes
        reading = self._by_message.get(wanted)
        if reading is None:
            reading = self._by_message[wanted] = self._reading(schema_id, files, indexes)
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

    def _known_files(self, schema_id: int) -> Files | BadRecord:
        try:
            files = self._schema_of(schema_id)
            descriptors(files)
        except UnknownSchema as error:
            return self._unreadable(str(error))
        except NoProtobufFile as error:
            return self._unlike(schema_id, error)
        return files

    def _reading(self, schema_id: int, files: Files, indexes: tuple[int, ...]) -> _Resolved | BadRecord:
        declared = self._declared
        fields, readings = tuple(declared.fields.items()), tuple(declared.readings.items())
        try:
            return _resolved(files, indexes, fields, readings, declared.required)
        except (NoProtobufFile, Unresolvable) as error:
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
    files: Files,
    indexes: tuple[int, ...],
    fields: tuple[tuple[str, FieldType], ...],
    readings: tuple[tuple[str, Reading], ...],
    required: frozenset[str],
) -> _Resolved:
    """For all batches that a process decodes."""
    writer = writer_message(files, indexes)
    declared = RecordSchema(fields=dict(fields), required=required, readings=dict(readings))
    return writer, Resolution(writer, declared)
