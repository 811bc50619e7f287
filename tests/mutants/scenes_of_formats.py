"""Scenes of values of a schema registry, written by hand: also such as no writer writes, if both read them alike."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.mutants.scene import Scene
from tests.mutants.scenes_of_values import one_by_one
from tests.mutants.schemas import AVRO_IDS, EMPTY_ID, FILE_ID

from recount.declare.schema import (
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    RecordSchema,
    decimal,
    list_of,
    nested,
)
from recount.declare.topics import Topic

_AVRO = Topic(
    name="avro",
    key="id",
    value=RecordSchema.of(
        s=STRING,
        n=LONG,
        i=LONG,
        b=BOOLEAN,
        x=DOUBLE,
        u=STRING,
        e=STRING,
        d=decimal(9, 2),
        part=decimal(9, 2),
        whole=decimal(9, 0),
        raw=BYTES,
        many=list_of(LONG),
        at=TIMESTAMP,
        day=DATE,
        city=nested("to", "city", kind=STRING),
    ),
    encoding="avro",
)
_LARGEST = 10**9 - 1
_AVRO_CASES: Sequence[tuple[str, bytes]] = (
    *(("n", bytes_) for bytes_ in (b"\x00", b"\x80\x00", b"\x01", b"\xff" * 9 + b"\x01", b"")),
    ("n", b"\x02\x00"),
    *(("i", bytes_) for bytes_ in (b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f")),
    *(("s", bytes_) for bytes_ in (b"\x00", b"\x04ab", b"\x04a", b"\x01", b"\x02\xff")),
    *(("b", bytes_) for bytes_ in (b"\x00", b"\x01")),
    *(("x", struct.pack("<d", number)) for number in (0.5, float("inf"))),
    *(("u", bytes_) for bytes_ in (b"\x00", b"\x02\x02a", b"\x04")),
    *(("e", bytes_) for bytes_ in (b"\x00", b"\x02", b"\x04")),
    *(("d", b"\x08" + number.to_bytes(4, "big", signed=True)) for number in (_LARGEST, -_LARGEST, _LARGEST + 1, 5)),
    ("part", b"\x02\x63"),
    ("whole", b"\x02\x05"),
    ("raw", b""),
    *(("many", bytes_) for bytes_ in (b"\x00", b"\x04\x02\x04\x00", b"\x01\x02\x06\x00", b"\x04\x02")),
    *(("at", bytes_) for bytes_ in (b"\x00", b"\x9e\x1f", b"\xa0\x1f", b"\x01", b"\xff\xff\x01")),
    *(("day", bytes_) for bytes_ in (b"\x00", b"\x01", b"\xff\xff\xff\xff\x0f")),
    *(("to", bytes_) for bytes_ in (b"\x00", b"\x02\x08city\x08Bern\x00", b"\x02\x08town\x08Bern\x00")),
)
_PROTOBUF = Topic(
    name="protobuf",
    key="id",
    value=RecordSchema.of(
        name=STRING,
        note=STRING,
        big=LONG,
        state=STRING,
        at=TIMESTAMP,
        amount=decimal(9, 2),
        city=nested("to", "city", kind=STRING),
        n=LONG,
        many=list_of(LONG),
        day=DATE,
    ),
    encoding="protobuf",
)


def avro_values() -> Scene:
    """Values of Avro, each of one field."""
    told = [_of_schema(AVRO_IDS[name]) + rest for name, rest in _AVRO_CASES]
    return one_by_one("avro values", _AVRO, [*told, *_heads(_of_schema(EMPTY_ID))], is_interpreted=False)


def protobuf_values() -> Scene:
    """Messages of Protobuf, and places of messages in their file."""
    head = _of_schema(FILE_ID)
    told = [head + place + b"\x0a\x01a" for place in _PLACES]
    told += [head + place for place in (b"\x00", b"\x02\x00", b"\x02\x02", b"\x04\x02\x00", b"\x04\x02", b"\x02", b"")]
    told += [head + b"\x02\x02" + one for one in (*_MOMENTS, *_AMOUNTS, *_OTHERS)]
    return one_by_one("protobuf values", _PROTOBUF, [*told, *_heads(head)], is_interpreted=False)


def _of_schema(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def _heads(head: bytes) -> list[bytes | None]:
    """Values that have no more than a head, or less, or another one."""
    return [head, head[:4], b"", b"\1" + head[1:], _of_schema(4_711), _of_schema(2**24), None]


def _part(number: int, payload: bytes) -> bytes:
    """A field of a message that says its length."""
    return bytes([number << 3 | 2, len(payload)]) + payload


def _varint(number: int) -> bytes:
    number, found = number % 2**64, []
    while number > 127:
        found.append(number % 128 | 128)
        number //= 128
    return bytes([*found, number])


def _moment(seconds: int, nanos: int) -> bytes:
    return _part(5, b"\x08" + _varint(seconds) + b"\x10" + _varint(nanos))


def _amount(unscaled: int, scale: int, length: int = 16) -> bytes:
    written = unscaled.to_bytes(length, "big", signed=True)
    return _part(6, _part(1, written) + b"\x18" + _varint(scale))


_PLACES = (
    b"\x02\x02",
    b"\x02\x82\x00",
    b"\x80\x00",
    b"\x82\x00\x02",
    b"\x01",
    b"\x02\x04",
    b"\x02\x01",
    b"\x02" + b"\x80" * 5,
)
_MOMENTS = tuple(
    _moment(seconds, nanos)
    for seconds, nanos in (
        (1, 0),
        (1, 999_999),
        (1, 999_999_999),
        (1, 10**9),
        (1, -1),
        (253_402_300_799, 0),
        (253_402_300_800, 0),
        (-1, 0),
    )
)
"""One of before the year 1 is before the epoch, and bad as each of these."""
_AMOUNTS = (
    *(_amount(unscaled, 2) for unscaled in (_LARGEST, -_LARGEST, _LARGEST + 1, 0, -1)),
    *(_amount(5, scale) for scale in (0, 1, 2, 3, -6, -7, 400, -400)),
    *(_amount(50, scale) for scale in (3, 4)),
    *(_amount(7, 2, length) for length in (63, 64, 65)),
)
_OTHERS = (
    b"\x10\x00",
    _part(2, b""),
    _part(2, b"x"),
    *(b"\x18" + _varint(number) for number in (2**63 - 1, 2**63)),
    *(b"\x20" + _varint(number) for number in (0, 1, -1, 2)),
    _part(7, b""),
    _part(7, _part(1, b"Bern")),
    b"\x40" + _varint(-(2**31)),
    b"\x48\x03\x48\x04",
    _part(9, b"\x03\x04"),
    *(_part(10, bytes([8, 0xE8, 0x0F, 16, 2, 24, day])) for day in (28, 29, 30)),
    _part(1, b"\xff"),
    b"\x0a\x05a",
)
