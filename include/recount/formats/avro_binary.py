"""Reads values in Avro's binary encoding, by a reader that is made once for each schema.

What the specification does not allow is ``Malformed``, never a guess: a negative length, a number beyond its bits, a
byte that is neither true nor false. So are items of an array that take no bytes: a few bytes could claim billions.
So are more than ``DEEPEST`` records, arrays and maps in one another: how many Python could read depends on the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from recount.formats.avro_schemas import AvroType

DEEPEST = 100
Read = Callable[[bytes, int, int], tuple[Any, int]]
"""Reads a value at a place of the bytes, with how deep others may lie in it; returns it with the place behind it."""
_INTS = range(-(2**31), 2**31)
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class Malformed(Exception):
    """Bytes that are no value of the schema."""


def whole_value(read: Read, data: bytes, at: int) -> Any:
    """The one value from ``at`` to the end; raises ``Malformed``."""
    found, end = read(data, at, DEEPEST)
    if end != len(data):
        raise Malformed(f"{len(data) - end} bytes are left over")
    return found


def reader_of(avro: AvroType) -> Read:
    """The reader of values of ``avro``; a record and a map are read as dictionaries."""
    return _reader(avro, {})


def _reader(avro: AvroType, made: dict[int, list[Read]]) -> Read:
    simple = _SIMPLE.get(avro.kind)
    if simple:
        return simple
    if id(avro) in made:  # it contains itself: its reader is there once a value is read
        place = made[id(avro)]
        return lambda data, at, depth: place[0](data, at, depth)
    place = made.setdefault(id(avro), [])
    match avro.kind:
        case "record":
            place.append(_record([(name, _reader(kind, made)) for name, kind in avro.fields.items()]))
        case "union":
            place.append(_union([_reader(kind, made) for kind in avro.of]))
        case "array":
            place.append(_blocks(_reader(avro.of[0], made)))
        case "map":
            place.append(_map(_blocks(_pair(_reader(avro.of[0], made)))))
        case "enum":
            place.append(_enum(avro.symbols))
        case _:
            place.append(_fixed(avro.size))
    return place[0]


def _deeper(depth: int) -> int:
    if depth == 0:
        raise Malformed(f"more than {DEEPEST} records, arrays and maps lie in one another")
    return depth - 1


def _long(data: bytes, at: int, _depth: int = 0) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data):
            raise Malformed("it ends too early")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise Malformed("a number of more than 64 bits")
    if number >> 64:
        raise Malformed("a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def _int(data: bytes, at: int, _depth: int = 0) -> tuple[int, int]:
    number, at = _long(data, at)
    if number not in _INTS:
        raise Malformed("an int of more than 32 bits")
    return number, at


def _taken(data: bytes, at: int, length: int) -> tuple[bytes, int]:
    if length < 0:
        raise Malformed("a negative length")
    if at + length > len(data):
        raise Malformed("it ends too early")
    return data[at : at + length], at + length


def _bytes(data: bytes, at: int, _depth: int = 0) -> tuple[bytes, int]:
    length, at = _long(data, at)
    return _taken(data, at, length)


def _string(data: bytes, at: int, _depth: int = 0) -> tuple[str, int]:
    found, at = _bytes(data, at)
    try:
        return found.decode(), at
    except UnicodeDecodeError as error:
        raise Malformed("a string that is not UTF-8") from error


def _boolean(data: bytes, at: int, _depth: int) -> tuple[bool, int]:
    found, at = _taken(data, at, 1)
    if found > b"\x01":
        raise Malformed("a boolean that is neither true nor false")
    return found == b"\x01", at


def _float(data: bytes, at: int, _depth: int) -> tuple[float, int]:
    found, at = _taken(data, at, 4)
    return _FLOAT.unpack(found)[0], at


def _double(data: bytes, at: int, _depth: int) -> tuple[float, int]:
    found, at = _taken(data, at, 8)
    return _DOUBLE.unpack(found)[0], at


def _null(_data: bytes, at: int, _depth: int) -> tuple[None, int]:
    return None, at


_SIMPLE: dict[str, Read] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}


def _record(fields: list[tuple[str, Read]]) -> Read:
    def read(data: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found, within = {}, _deeper(depth)
        for name, of_field in fields:
            found[name], at = of_field(data, at, within)
        return found, at

    return read


def _union(branches: list[Read]) -> Read:
    def read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
        index, at = _long(data, at)
        if not 0 <= index < len(branches):
            raise Malformed(f"no branch {index} of a union")
        return branches[index](data, at, depth)

    return read


def _enum(symbols: tuple[str, ...]) -> Read:
    def read(data: bytes, at: int, _depth: int) -> tuple[str, int]:
        index, at = _int(data, at)
        if not 0 <= index < len(symbols):
            raise Malformed(f"no symbol {index} of an enum")
        return symbols[index], at

    return read


def _fixed(size: int) -> Read:
    return lambda data, at, _: _taken(data, at, size)


def _pair(of_value: Read) -> Read:
    def read(data: bytes, at: int, depth: int) -> tuple[tuple[str, Any], int]:
        key, at = _string(data, at)
        value, at = of_value(data, at, depth)
        return (key, value), at

    return read


def _map(pairs: Read) -> Read:
    """A reader of a map; of a key that is written twice the last value counts."""

    def read(data: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found, at = pairs(data, at, depth)
        return dict(found), at

    return read


def _blocks(of_item: Read) -> Read:
    def read(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        within = _deeper(depth)
        while True:
            count, at = _long(data, at)
            if count == 0:
                return found, at
            if count < 0:
                _size, at = _long(data, at)
            for _ in range(abs(count)):
                item, behind = of_item(data, at, within)
                if behind == at:
                    raise Malformed("items that take no bytes")
                found.append(item)
                at = behind

    return read
