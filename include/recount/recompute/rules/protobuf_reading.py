"""Reads a Protobuf message beside its type, and finds a declared field in it and how it can be read."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from recount.declare.schema import FieldType
from recount.recompute.rules.protobuf_files import (
    BOXES,
    BYTES,
    DATE,
    DECIMAL,
    EIGHT_BYTES,
    FOUR_BYTES,
    GROUP,
    NUMBER,
    TIMESTAMP,
    Content,
    EnumType,
    MessageType,
    WrittenField,
    deeper,
    numbers,
    parts,
    signed,
    unpacked,
    zigzag,
)

Value = dict[str, Any]
"""Of a message that what was written, by the names of its fields; a map is a dictionary."""
_FIXED = {"double": "<d", "fixed64": "<Q", "sfixed64": "<q", "float": "<f", "fixed32": "<I", "sfixed32": "<i"}
_BITS = {"int32": 32, "int64": 64, "uint32": 32, "uint64": 64, "sint32": 32, "sint64": 64, "enum": 32}
WHOLE = frozenset(
    {
        *("int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64"),
    }
)
_TAKEN = {
    "string": {"string", "enum"},
    "boolean": {"bool"},
    "long": WHOLE,
    "double": WHOLE | {"float", "double"},
    "decimal": WHOLE | {"string", DECIMAL},
}
_OF_OTHER_FILES = frozenset({TIMESTAMP, DATE, DECIMAL})
_FORMS = {"timestamp": {"string", TIMESTAMP}, "date": {"string", DATE}, "bytes": {"bytes"}}


def read(message: MessageType, data: bytes, depth: int, found: Value) -> Value:
    """``found`` with what ``data`` has; raises ``ValueError``. Of a value that is there twice the last one counts."""
    for number, wire, content in parts(data, depth):
        field = message.fields.get(number)
        if field is not None:
            _take(message, field, wire, content, depth, found)
    return found


def default_of(field: WrittenField) -> Any:
    """The value of a field that was not written and cannot be missing."""
    if field.is_list:
        return {} if is_map(field) else []
    if isinstance(field.of, MessageType):
        return {}
    return {"string": "", "bytes": b"", "bool": False, "double": 0.0, "float": 0.0}.get(field.kind, 0)


def is_map(field: WrittenField) -> bool:
    """Whether ``field`` is a map, that is a list of pairs."""
    return field.is_list and isinstance(field.of, MessageType) and field.of.is_entry


def _take(message: MessageType, field: WrittenField, wire: int, content: Any, depth: int, found: Value) -> None:
    if isinstance(field.of, MessageType):
        if wire != (GROUP if field.kind == "group" else BYTES):
            return
        if is_map(field):
            _take_pair(field, content, deeper(depth), found)
        elif field.is_list:
            found.setdefault(field.name, []).append(read(field.of, content, deeper(depth), {}))
        else:
            before = found.get(field.name, {})
            _alone(message, field, found)
            found[field.name] = read(field.of, content, deeper(depth), before)
        return
    values = [one for one in _values(message, field, wire, content) if _is_known(field, one)]
    if field.is_list:
        if values:
            found.setdefault(field.name, []).extend(values)
    elif values:
        _alone(message, field, found)
        found[field.name] = values[-1]


def _alone(message: MessageType, field: WrittenField, found: Value) -> None:
    """Take the others of its ``one_of`` from ``found``."""
    if field.one_of is not None:
        for other in message.one_ofs[field.one_of]:
            if other is not field:
                found.pop(other.name, None)


def _take_pair(field: WrittenField, content: bytes, depth: int, found: Value) -> None:
    """A pair that has anything but a key and a value is passed over."""
    pair = field.of
    assert isinstance(pair, MessageType)
    made = read(pair, content, depth, {})
    for number, wire, one in parts(content, depth):
        part = pair.fields.get(number)
        if part is None or not _is_taken(pair, part, wire, one):
            return
    key, value = (made.get(one.name, default_of(one)) for one in (pair.fields[1], pair.fields[2]))
    found.setdefault(field.name, {})[key] = value


def _is_taken(message: MessageType, field: WrittenField, wire: int, content: Any) -> bool:
    if isinstance(field.of, MessageType):
        return wire == (GROUP if field.kind == "group" else BYTES)
    return any(_is_known(field, one) for one in _values(message, field, wire, content))


def _is_known(field: WrittenField, value: Any) -> bool:
    return not isinstance(field.of, EnumType) or field.of.is_open or value in field.of.symbols


def _values(message: MessageType, field: WrittenField, wire: int, content: Content) -> Sequence[Any]:
    """The scalars of a part; none where it is of another type than the field."""
    if field.kind in ("string", "bytes"):
        if wire != BYTES or not isinstance(content, bytes):
            return ()
        return (content if field.kind == "bytes" else _text(content, must_be=message.is_utf8),)
    if field.kind in _FIXED:
        form = _FIXED[field.kind]
        own = EIGHT_BYTES if struct.calcsize(form) == 8 else FOUR_BYTES
        is_taken = wire == own or (wire == BYTES and field.is_list)
        return unpacked(form, content) if is_taken and isinstance(content, bytes) else ()
    if wire == NUMBER and isinstance(content, int):
        return (_of_number(field.kind, content),)
    if wire == BYTES and field.is_list and isinstance(content, bytes):
        return [_of_number(field.kind, one) for one in numbers(content)]
    return ()


def _of_number(kind: str, number: int) -> int | bool:
    if kind == "bool":
        return number != 0
    if kind.startswith("uint"):
        return number % (1 << _BITS[kind])
    if kind.startswith("sint"):
        return zigzag(number % (1 << _BITS[kind]))
    return signed(number, _BITS[kind])


def _text(written: bytes, *, must_be: bool) -> str | bytes:
    """Bytes as text; bytes that are no UTF-8 as they are, in a file of the old syntax."""
    try:
        return str(written, "utf-8")
    except UnicodeDecodeError:
        if must_be:
            raise
        return written


class Unlike(Exception):
    """The written value cannot be read as the declared type."""


class ProtobufPlace:
    """Fields of messages and keys of maps, one in the other; the last field is what is read."""

    def __init__(self, way: list[WrittenField | str], last: WrittenField) -> None:
        self._way, self._last = way, last

    @classmethod
    def of(cls, message: MessageType, path: tuple[str, ...]) -> ProtobufPlace | None:
        """The place at ``path``; None where a message has no such field. Raises ``Unlike``."""
        way: list[WrittenField | str] = []
        last = WrittenField(name="", kind="message", of=message)
        for name in path:
            if is_map(last):
                assert isinstance(last.of, MessageType)
                if last.of.fields[1].kind != "string":
                    raise Unlike(f"{name} among the keys of a map, which are {last.of.fields[1].kind}")
                way.append(name)
                last = last.of.fields[2]
            elif last.is_list or not isinstance(last.of, MessageType):
                raise Unlike(f"{name} in {_told(last)}")
            else:
                found = last.of.named(name)
                if found is None:
                    return None
                way.append(found)
                last = found
            if last.foreign:
                raise Unlike(f"{last.name} of {last.foreign}, which is in another file")
        if is_map(last):
            raise Unlike("a map; a path leads to what it holds")
        if isinstance(last.of, MessageType) and last.of.name in BOXES and not last.is_list:
            last = last.of.fields[1]
            way.append(last)
        return cls(way, last)

    @property
    def kind(self) -> str:
        """The type of the field, or the name of a message that every file knows: others can be named as types are."""
        of = self._last.of
        return of.name if isinstance(of, MessageType) and of.name in _OF_OTHER_FILES else self._last.kind

    @property
    def symbols(self) -> dict[int, str]:
        """Symbols of an enum."""
        return self._last.of.symbols if isinstance(self._last.of, EnumType) else {}

    def require(self, declared: FieldType, form: str | None) -> None:
        """Raise ``Unlike`` unless it can be read as ``declared``."""
        item = declared.element or declared
        takes = _FORMS[form] if form else _TAKEN[item.kind]
        if self._last.is_list != (declared.element is not None) or self.kind not in takes:
            raise Unlike(_told(self._last))

    def lying_in(self, record: Value) -> Any:
        """The value at this place; None where a part of the path is missing."""
        held: Any = record
        for one in self._way:
            if isinstance(one, str):
                held = held.get(one)
            else:
                held = held.get(one.name, None if one.can_be_missing else default_of(one))
            if held is None:
                return None
        return held


def _told(field: WrittenField) -> str:
    kind = field.of.name if isinstance(field.of, MessageType) else field.kind
    return f"a list of {kind}" if field.is_list else kind
