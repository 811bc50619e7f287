"""Rules of Protobuf values: "Protobuf values of a schema registry" of docs/own_streams.md, for one at a time.

Buf's library reads a message as its writer's file says; declared fields are made of the values at their places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from typing import Any

from protobuf import (
    DescEnum,
    DescField,
    DescFieldValueEnum,
    DescFieldValueList,
    DescFieldValueMap,
    DescFieldValueMessage,
    DescFieldValueScalar,
    DescFile,
    DescMessage,
    ScalarType,
)

# code that Buf's compiler makes calls the same; there is no other way to a message of a file that comes at run time
from protobuf._codegen import file_desc

from recount.declare.schema import FieldType, RecordSchema
from recount.recompute.rules.value_rules import NUMBER, Bad, base64_of, exact, path_of, said_of, text_of_day, told_as
from recount.runtime.protobuf_files import Files, NoProtobufFile, descriptors

_EXACT = Context(prec=1000)
_LONGS = range(-(2**63), 2**63)
_SECONDS = range(-62_135_596_800, 253_402_300_800)
"""Of the years 1 to 9999."""
_MOST_INDEXES = 100
_MOST_BYTES = 64
"""Of a decimal."""
_TIMESTAMP, _DATE, _DECIMAL = "google.protobuf.Timestamp", "google.type.Date", "confluent.type.Decimal"
_BOXED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_BOXES = {f"google.protobuf.{name}Value" for name in _BOXED}
"""Messages that hold one value, so that it can be missing."""
_WHOLE = {one.name.lower() for one in ScalarType if "INT" in one.name or "FIXED" in one.name}
_TAKEN = {
    "string": {"string", "enum"},
    "boolean": {"bool"},
    "long": _WHOLE,
    "double": _WHOLE | {"float", "double"},
    "decimal": _WHOLE | {"string", _DECIMAL},
}
_FORMS = {"timestamp": {"string", _TIMESTAMP}, "date": {"string", _DATE}, "bytes": {"bytes"}}
_Held = ScalarType | DescMessage | DescEnum
_Step = Callable[[Any], Any]


class _Unlike(Exception):
    """The written value cannot be read as the declared type."""


class WriterFile:
    """A file of the registry, beside what is declared; raises ``Bad`` where it is no file that can be read.

    ``of_sink``: the values are a sink's, in which a DOUBLE may be beyond all numbers, as a sum can be.
    """

    def __init__(self, number: int, files: Files, declared: RecordSchema, *, of_sink: bool = False) -> None:
        self._number, self._declared, self._of_sink = number, declared, of_sink
        try:
            self._file = _file_of(files)
        except NoProtobufFile as error:
            raise self._unreadable(str(error)) from error
        self._places: dict[tuple[int, ...], tuple[DescMessage, dict[str, _Place]] | Bad] = {}

    def fields_of(self, value: bytes) -> dict[str, Any]:
        """The declared fields of a value of this file, without its head; raises ``Bad``."""
        indexes, rest = _indexes(value)
        found = self._places.get(tuple(indexes))
        if found is None:
            try:
                found = self._placed(indexes)
            except Bad as fault:
                found = fault
            self._places[tuple(indexes)] = found
        if isinstance(found, Bad):
            raise found
        message, places = found
        try:
            record = message.type.from_binary(rest, ignore_unknown_fields=True)
        except (ValueError, RecursionError, OverflowError) as error:
            raise Bad("undecodable", f"no value of schema {self._number}: {error}") from error
        return dict(self._typed_fields(record, places))

    def _placed(self, indexes: list[int]) -> tuple[DescMessage, dict[str, _Place]]:
        message = _message_at(self._file, indexes)
        if message is None:
            raise self._unreadable(f"no message {indexes}")
        places = {}
        for name in self._declared.fields:
            try:
                place = _Place.of(message, path_of(name, self._declared))
                if place is not None:
                    place.require(self._declared.fields[name], self._form_of(name))
                    places[name] = place
            except _Unlike as fault:
                raise self._unreadable(f"{name}: {fault}, declared {said_of(name, self._declared)}") from fault
            if place is None and name in self._declared.required:
                raise self._unreadable(f"no {name}, which is required")
        return message, places

    def _typed_fields(self, record: Any, places: dict[str, _Place]) -> Iterator[tuple[str, Any]]:
        for name, kind in self._declared.fields.items():
            made, place = None, places.get(name)
            given = None if place is None else place.lying_in(record)
            if place is not None and given is not None:
                made = self._read_as(given, place, kind, self._form_of(name))
                if made is None:
                    said = " ".join(str(given).split())[:80]
                    raise Bad("schema", f"field {name} is no {said_of(name, self._declared)}: {said}")
            if made is None and name in self._declared.required:
                raise Bad("schema", f"no {name}")
            yield name, made

    def _read_as(self, given: Any, place: _Place, kind: FieldType, form: str | None) -> Any:
        if self._of_sink and kind.kind == "double":
            return float(given)
        return _formed(given, place.kind, form) if form else _typed(given, place, kind)

    def _form_of(self, name: str) -> str | None:
        return self._declared.readings[name].form if name in self._declared.readings else None

    def _unreadable(self, why: str) -> Bad:
        fields = "; ".join(f"{name} {said_of(name, self._declared)}" for name in self._declared.fields)
        return Bad("schema", f"schema {self._number} cannot be read as declared ({fields}): {why}")


def _file_of(files: Files) -> DescFile:
    found: list[DescFile] = []
    for one in descriptors(files):
        found.append(file_desc(one, found, {}))
    return found[-1]


def _message_at(file: DescFile, indexes: list[int]) -> DescMessage | None:
    """The message with these numbers, from the outermost one to that within it; None where there is none."""
    messages, written, found = file.messages, file.proto.message_type, None
    for index in indexes:
        # it must be the same with the pairs of maps counted, and without: clients do not agree
        if not 0 <= index < len(messages) or messages[index].name != written[index].name:
            return None
        found = messages[index]
        messages, written = found.nested_messages, found.proto.nested_type
    return found


class _Place:
    """Fields of messages and keys of maps, one in the other; the last of them holds what is read."""

    def __init__(self, steps: list[_Step], held: _Held, *, is_list: bool) -> None:
        self._steps, self._is_list = steps, is_list
        self.kind = _kind_of(held)
        self.symbols: dict[int, str] = {}
        for one in reversed(held.values) if isinstance(held, DescEnum) else ():
            self.symbols[one.number] = one.name

    @classmethod
    def of(cls, message: DescMessage, path: tuple[str, ...]) -> _Place | None:
        """The place at ``path``; None where a message has no such field. Raises ``_Unlike``."""
        steps: list[_Step] = []
        held: Any = message
        is_list = False
        for name in path:
            if isinstance(held, DescFieldValueMap):
                if held.key is not ScalarType.STRING:
                    raise _Unlike(f"{name} among the keys of a map, which are {_kind_of(held.key)}")
                steps.append(_of_map(name))
                held = held.value
            elif is_list or not isinstance(held, DescMessage):
                raise _Unlike(f"{name} in {_told(held, is_list=is_list)}")
            else:
                field = _field_of(held, name)
                if field is None:
                    return None
                steps.append(_of_message(field))
                held, is_list = _held_by(field)
        if isinstance(held, DescFieldValueMap):
            raise _Unlike("a map; a path leads to what it holds")
        if isinstance(held, DescMessage) and held.type_name in _BOXES and not is_list:
            steps.append(_of_message(held.fields[0]))
            held, _ = _held_by(held.fields[0])
        return cls(steps, held, is_list=is_list)

    def require(self, declared: FieldType, form: str | None) -> None:
        """Raise ``_Unlike`` unless it can be read as ``declared``."""
        takes = _FORMS[form] if form else _TAKEN[(declared.element or declared).kind]
        if self._is_list != (declared.element is not None) or self.kind not in takes:
            raise _Unlike(f"a list of {self.kind}" if self._is_list else self.kind)

    def lying_in(self, record: Any) -> Any:
        """The value at this place; None where a part of the path is missing."""
        held = record
        for step in self._steps:
            held = step(held)
            if held is None:
                return None
        return held


def _kind_of(held: _Held) -> str:
    """The type, or the full name of a message; a message can be named as a type is, and then has a point before."""
    if isinstance(held, DescMessage):
        return held.type_name if "." in held.type_name else f".{held.type_name}"
    return "enum" if isinstance(held, DescEnum) else held.name.lower()


def _told(held: Any, *, is_list: bool) -> str:
    kind = "a map" if isinstance(held, DescFieldValueMap) else _kind_of(held)
    return f"a list of {kind}" if is_list else kind


def _field_of(message: DescMessage, name: str) -> DescField | None:
    return next((one for one in message.fields if one.name == name), None)


def _held_by(field: DescField) -> tuple[_Held | DescFieldValueMap, bool]:
    """The type that the field holds, and whether it is a list of that."""
    match field.value:
        case DescFieldValueScalar(scalar=scalar):
            return scalar, False
        case DescFieldValueEnum(enum=enum):
            return enum, False
        case DescFieldValueMessage(message=message):
            return message, False
        case DescFieldValueList(element=element):
            return element, True
        case DescFieldValueMap() as found:
            return found, False


def _of_map(key: str) -> _Step:
    return lambda held: held.get(key)


def _of_message(field: DescField) -> _Step:
    """From a message to the value of ``field``; None where the message can tell that it has none."""
    one_of = getattr(field.value, "oneof", None)
    if one_of is not None:
        name, own = one_of.local_name, field.name

        def chosen(message: Any) -> Any:
            found = getattr(message, name)
            return found.value if found is not None and found.field == own else None

        return chosen
    name = field.local_name
    if isinstance(field.value, DescFieldValueScalar | DescFieldValueEnum) and field.presence.name != "IMPLICIT":
        return lambda message: getattr(message, name) if field in message else None
    return lambda message: getattr(message, name)


def _indexes(value: bytes) -> tuple[list[int], bytes]:
    """Which message of the file: how many indexes, and each of them; none stands for the first message."""
    found: list[int] = []
    place, many = 0, None
    while many is None or len(found) < many:
        zigzagged = shift = 0
        while True:
            if place >= len(value) or shift >= 35:
                raise Bad("undecodable", "it does not say which message of its file it is")
            byte = value[place]
            place += 1
            zigzagged += byte % 128 << shift
            shift += 7
            if byte < 128:
                break
        index = -(zigzagged + 1) // 2 if zigzagged % 2 else zigzagged // 2
        if many is not None:
            found.append(index)
            continue
        many = index
        if many < 0 or many > len(value) - place or many > _MOST_INDEXES:
            raise Bad("undecodable", f"a message in {many} others of its file")
    return found or [0], value[place:]


def _typed(given: Any, place: _Place, kind: FieldType) -> Any:
    """``given`` as ``kind`` holds it; None where it cannot be."""
    if kind.element is not None:
        items = [_typed(item, place, kind.element) for item in given]
        return None if None in items else items
    match kind.kind:
        case "string":
            return place.symbols.get(int(given)) if place.kind == "enum" else given
        case "long":
            return given if given in _LONGS else None
        case "double":
            return float(given) if math.isfinite(given) else None
        case "decimal" if place.kind == "string":
            return exact(given, kind) if NUMBER.fullmatch(given) else None
        case "decimal" if place.kind in _WHOLE:
            return _number(given, 0, kind)
        case "decimal":
            if len(given.value) > _MOST_BYTES:
                return None
            return _number(int.from_bytes(given.value, "big", signed=True), given.scale, kind)
    return given


def _number(unscaled: int, scale: int, kind: FieldType) -> Decimal | None:
    """``unscaled`` with ``scale`` decimal places as ``kind`` holds it; zeros behind do not count."""
    if unscaled == 0:
        return Decimal(0)
    digits = str(abs(unscaled)).rstrip("0")
    places = scale - (len(str(abs(unscaled))) - len(digits))
    if places > kind.scale or len(digits) - places > kind.precision - kind.scale:
        return None
    return Decimal(int(digits) if unscaled > 0 else -int(digits)).scaleb(-places, context=_EXACT)


def _formed(given: Any, kind: str, form: str) -> Any:
    """``given`` as rows have a value of ``form``; None where it cannot be."""
    if kind == "bytes":
        return base64_of(given)
    if kind == "string":
        return told_as(form, given)
    if form == "date":
        return text_of_day(given.year, given.month, given.day)
    if given.seconds not in _SECONDS or not 0 <= given.nanos < 10**9:
        return None
    return 1000 * given.seconds + given.nanos // 10**6
