"""Protobuf's wire format: the numbered parts of some bytes, and the numbers in them.

As its specification says: a number has up to ten bytes, of which 64 bits count, and a type of fewer bits takes the
lower ones. Groups are passed over as a whole. Bytes that break the format are a ``ValueError``, and so are messages
and groups that lie in each other more than a hundred deep.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

DEEPEST = 100
NUMBER, EIGHT_BYTES, BYTES, GROUP, END_OF_GROUP, FOUR_BYTES = range(6)
"""Wire types."""
Content = int | bytes


def parts(data: bytes, depth: int) -> Iterator[tuple[int, int, Content]]:
    """The number, the wire type and the content of each part; ``depth`` is how deep groups in it may lie."""
    at = 0
    while at < len(data):
        number, wire, content, at = _part(data, at, depth)
        if wire == END_OF_GROUP:
            raise ValueError("a group ends that has not begun")
        yield number, wire, content


def numbers(data: bytes) -> Iterator[int]:
    """Numbers one behind the other."""
    at = 0
    while at < len(data):
        number, at = _number(data, at, 10)
        yield number


def deeper(depth: int) -> int:
    """What is left of ``depth`` within a message or group."""
    if depth <= 0:
        raise ValueError("messages lie too deep in each other")
    return depth - 1


def signed(number: int, bits: int) -> int:
    """The lower ``bits`` of ``number`` in two's complement."""
    number %= 1 << bits
    return number - (1 << bits) if number >> (bits - 1) else number


def zigzag(number: int) -> int:
    """0, -1, 1, -2, …"""
    return -(number + 1) // 2 if number % 2 else number // 2


def unpacked(form: str, data: bytes) -> list[int] | list[float]:
    """Values of a fixed length, one behind the other; ``form`` is that of one, as ``struct`` has it."""
    if len(data) % struct.calcsize(form):
        raise ValueError("a value is cut off")
    return [one for (one,) in struct.iter_unpack(form, data)]


def _part(data: bytes, at: int, depth: int) -> tuple[int, int, Content, int]:
    tag, at = _number(data, at, 5)
    number, wire = tag // 8, tag % 8
    if number == 0 or tag >= 1 << 32:
        raise ValueError("a part without a number, or of one that is too large")
    match wire:
        case 0:
            content, at = _number(data, at, 10)
            return number, wire, content, at
        case 1:
            return number, wire, _bytes(data, at, 8), at + 8
        case 2:
            length, at = _number(data, at, 5)
            if length >= 1 << 31:
                raise ValueError("a length of more than 31 bits")
            return number, wire, _bytes(data, at, length), at + length
        case 3:
            within, at = _group(data, at, number, deeper(depth))
            return number, wire, within, at
        case 4:
            return number, wire, b"", at
        case 5:
            return number, wire, _bytes(data, at, 4), at + 4
    raise ValueError(f"no wire type {wire}")


def _group(data: bytes, start: int, number: int, depth: int) -> tuple[bytes, int]:
    """The bytes of a group, and where the next part begins."""
    at = start
    while True:
        end = at
        found, wire, _, at = _part(data, at, depth)
        if wire == END_OF_GROUP:
            if found != number:
                raise ValueError("another group ends")
            return data[start:end], at


def _number(data: bytes, at: int, most: int) -> tuple[int, int]:
    found = 0
    for place in range(most):
        if at + place >= len(data):
            raise ValueError("it ends too early")
        found += data[at + place] % 128 << 7 * place
        if data[at + place] < 128:
            return found % (1 << 64), at + place + 1
    raise ValueError("a number of too many bytes")


def _bytes(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise ValueError("it ends too early")
    return data[at : at + length]
