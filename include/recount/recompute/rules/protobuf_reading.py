"""Reads a Protobuf message: what its writer has written, beside its type."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from recount.recompute.rules.protobuf_files import EnumType, MessageType, WrittenField
from recount.recompute.rules.protobuf_wire import (
    BYTES,
    EIGHT_BYTES,
    FOUR_BYTES,
    GROUP,
    NUMBER,
    Content,
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


def read(message: MessageType, data: bytes, depth: int, found: Value) -> Value:
    """``found`` with what ``data`` has; raises ``ValueError``. Of a value that is there twice the last one counts."""
    for number, wire, content in parts(data, depth):
        field = message.fields.get(number)
        if field is not None:
            _take(message, field, wire, content, depth, found)
    return found


def default_of(field: WrittenField) -> Any:
    """What a field holds that was not written and cannot be missing."""
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
    """As text; bytes that are no UTF-8 as they are, in a file of the old syntax."""
    try:
        return str(written, "utf-8")
    except UnicodeDecodeError:
        if must_be:
            raise
        return written
