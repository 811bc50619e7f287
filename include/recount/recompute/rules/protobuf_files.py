"""Protobuf files and the wire format: what a file says of its messages, and the numbered parts of some bytes.

A file is a text, or a descriptor that is read by its numbers (descriptor.proto). A file that the language forbids is
none: of a number or name that is there twice a reader would have to choose one.

A number has up to ten bytes, of which 64 bits count, and a type of fewer bits takes the lower ones. Groups are passed
over as a whole. Bytes that break the format are a ``ValueError``, and so are messages and groups that are in each other
more than a hundred deep.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from recount.recompute.rules.protobuf_grammar import Numbered, parts_of_text

DEEPEST = 100
NUMBER, EIGHT_BYTES, BYTES, GROUP, END_OF_GROUP, FOUR_BYTES = range(6)
"""Wire types."""
Content = int | bytes
_NAMES = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""The types of fields, which are numbered from 1."""
_NO_KEYS = {"float", "double", "bytes", "enum", "message", "group"}
"""Types that the keys of a map cannot have."""
_NAME = "[A-Za-z_][A-Za-z0-9_]*"
_FIELD_NUMBERS = range(1, 1 << 29)
_MOST_NESTED = 50
"""Messages that may lie in one another."""
TIMESTAMP, DATE, DECIMAL = "google.protobuf.Timestamp", "google.type.Date", "confluent.type.Decimal"
_BOXED = ("double", "float", "int64", "uint64", "int32", "uint32", "bool", "string", "bytes")
BOXES = {
    f"google.protobuf.{name}Value": kind
    for name, kind in zip(
        ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"), _BOXED, strict=True
    )
}
"""Messages that hold one value, so that it can be missing."""
_OF_OTHER_FILES = {
    TIMESTAMP: (("seconds", "int64"), ("nanos", "int32")),
    DATE: (("year", "int32"), ("month", "int32"), ("day", "int32")),
    DECIMAL: (("value", "bytes"), ("precision", "uint32"), ("scale", "int32")),
    **{name: (("value", kind),) for name, kind in BOXES.items()},
}


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
    """The rest of ``depth`` within a message or group."""
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


@dataclass(kw_only=True)
class EnumType:
    """An enum; ``is_open`` says that values may have other numbers."""

    symbols: dict[int, str] = field(default_factory=dict)
    is_open: bool


@dataclass(kw_only=True)
class MessageType:
    """A message; ``is_entry`` says that it is a pair of a map. ``is_utf8`` says that its strings must be that."""

    name: str
    is_entry: bool = False
    is_utf8: bool = True
    fields: dict[int, WrittenField] = field(default_factory=dict)
    one_ofs: dict[int, list[WrittenField]] = field(default_factory=dict)
    within: list[MessageType] = field(default_factory=list)

    def named(self, name: str) -> WrittenField | None:
        """The field ``name``."""
        return next((one for one in self.fields.values() if one.name == name), None)


@dataclass(kw_only=True)
class WrittenField:
    """A field; ``kind`` is its type, ``of`` what a message, group or enum is, ``foreign`` a type of another file.

    ``one_of`` is the same number for fields of which at most one has a value.
    """

    name: str
    kind: str
    is_list: bool = False
    can_be_missing: bool = False
    one_of: int | None = None
    of: MessageType | EnumType | None = None
    foreign: str = ""


class ProtobufFile:
    """A file by its text, or its descriptor in base64; raises ``ValueError`` where it is none that can be read."""

    def __init__(self, written: str) -> None:
        is_descriptor = re.fullmatch("[A-Za-z0-9+/]+={0,2}", written)
        found = _numbered(b64decode(written)) if is_descriptor else parts_of_text(written)
        syntax = _text(found, 12) or "proto2"
        if syntax not in ("proto2", "proto3"):
            raise ValueError(f"of the syntax {syntax}")
        self._is_old = syntax == "proto2"
        package = _text(found, 2)
        if package and not re.fullmatch(rf"{_NAME}(\.{_NAME})*", package):
            raise ValueError(f"the package {package!r}")
        self._types: dict[str, MessageType | EnumType] = dict(_of_other_files())
        self._symbols = set(self._types)
        self._fields: list[tuple[MessageType, Numbered]] = []
        for one in _within(found, 5):
            self._add_enum(package, one)
        self.messages = [self._message(package, one, _MOST_NESTED) for one in _within(found, 4)]
        for message, described in self._fields:
            number = signed(_one(described, 3), 32)
            if number not in _FIELD_NUMBERS or number in message.fields:
                raise ValueError(f"the number {number} in {message.name}")
            made = message.fields[number] = self._field(message, described)
            if made.one_of is not None:
                message.one_ofs.setdefault(made.one_of, []).append(made)
        for message in [one for one in self._types.values() if isinstance(one, MessageType) and one.is_entry]:
            _require_pair(message)

    def at(self, indexes: list[int]) -> MessageType | None:
        """The message with these numbers, from the outermost one to that within it; None where there is none."""
        messages, found = self.messages, None
        for index in indexes:
            # it must be the same with the pairs of maps counted, and without: clients do not agree
            alone = [one for one in messages if not one.is_entry]
            if not 0 <= index < len(alone) or alone[index] is not messages[index]:
                return None
            found = messages[index]
            messages = found.within
        return found

    def _named(self, scope: str, described: Numbered) -> str:
        """The full name of what is ``described``, which nothing else has."""
        name = _joined(scope, _own_name(described))
        if name in self._symbols:
            raise ValueError(f"it has {name} twice")
        self._symbols.add(name)
        return name

    def _add_enum(self, scope: str, described: Numbered) -> None:
        made = EnumType(is_open=not self._is_old)
        name = self._named(scope, described)
        self._types[name] = made
        for one in _within(described, 2):
            self._named(scope, one)  # names of values lie beside the enum, not in it
            made.symbols.setdefault(signed(_one(one, 2), 32), _text(one, 1))
        if not made.symbols or (made.is_open and next(iter(made.symbols)) != 0):
            raise ValueError(f"the first value of {name}")

    def _message(self, scope: str, described: Numbered, depth: int) -> MessageType:
        if depth <= 0:
            raise ValueError(f"more than {_MOST_NESTED} messages lie in one another")
        name = self._named(scope, described)
        is_entry = any(_one(options, 7) for options in _within(described, 7))
        made = MessageType(name=name, is_entry=is_entry, is_utf8=not self._is_old)
        self._types[name] = made
        for one in _within(described, 4):
            self._add_enum(name, one)
        made.within = [self._message(name, one, depth - 1) for one in _within(described, 3)]
        fields, one_ofs = _within(described, 2), _within(described, 8)
        for held, times in Counter(map(_own_name, (*fields, *one_ofs))).items():
            if times > 1:
                raise ValueError(f"{name} has {held} twice")
        _require_one_ofs(name, fields, len(one_ofs))
        self._fields += [(made, one) for one in fields]
        return made

    def _field(self, message: MessageType, described: Numbered) -> WrittenField:
        number = _one(described, 5)
        kind = _NAMES[number - 1] if 0 < number <= len(_NAMES) else ""
        made = WrittenField(name=_text(described, 1), kind=kind, is_list=_one(described, 4) == 3)
        named = _text(described, 6)
        if named:
            made.of = self._meant(named, message.name)
            if not _can_be(made, kind):
                raise ValueError(f"the field {made.name} of {message.name} as {kind}")
            if made.of is None:
                made.kind, made.foreign = "bytes", named.removeprefix(".")
            elif isinstance(made.of, EnumType):
                made.kind = "enum"
            elif kind != "group":
                made.kind = "message"
        elif kind in ("", "group", "message", "enum"):
            raise ValueError(f"no type of {made.name} in {message.name}")
        if _has(described, 9):
            made.one_of = _one(described, 9)
        is_singular_message = isinstance(made.of, MessageType)
        made.can_be_missing = not made.is_list and (self._is_old or is_singular_message or made.one_of is not None)
        return made

    def _meant(self, name: str, scope: str) -> MessageType | EnumType | None:
        """The type that ``name`` means within ``scope``: the nearest one."""
        if name.startswith("."):
            return self._types.get(name[1:])
        while (found := self._types.get(_joined(scope, name))) is None and scope:
            scope = scope.rpartition(".")[0]
        return found


def _of_other_files() -> Iterator[tuple[str, MessageType]]:
    for name, fields in _OF_OTHER_FILES.items():
        made = (WrittenField(name=one, kind=kind) for one, kind in fields)
        yield name, MessageType(name=name, fields=dict(enumerate(made, 1)))


def _numbered(data: Any) -> Numbered:
    """The parts of ``data``; as they are where a text has been read."""
    if isinstance(data, dict):
        return data
    found: Numbered = {}
    for number, wire, content in parts(data, DEEPEST):
        if wire in (NUMBER, BYTES):
            found.setdefault(number, []).append(content)
    return found


def _can_be(field: WrittenField, kind: str) -> bool:
    """Whether what ``field`` holds can be of the type ``kind``: a group is a message, a pair of a map is in a list."""
    if isinstance(field.of, MessageType) and field.of.is_entry:
        return field.is_list and kind != "group"
    return not (isinstance(field.of, EnumType) and kind == "group")


def _require_pair(message: MessageType) -> None:
    """Raise ``ValueError`` unless ``message`` has a key and a value."""
    told = [(number, one.name, one.is_list) for number, one in message.fields.items()]
    is_pair = told == [(1, "key", False), (2, "value", False)] and message.fields[1].kind not in _NO_KEYS
    value = message.fields[2].of if is_pair else None
    if not is_pair or (isinstance(value, EnumType) and 0 not in value.symbols):  # 0 is what is not written
        raise ValueError(f"{message.name} is no pair of a map")


def _require_one_ofs(name: str, fields: list[Numbered], many: int) -> None:
    """Raise ``ValueError`` unless each of the ``many`` has fields; those of optional fields have one, and come last."""
    held = Counter(_one(field, 9) for field in fields if _has(field, 9))
    alone = [_one(field, 9) if _has(field, 9) else many for field in fields if _one(field, 17)]
    lists = [field for field in fields if _has(field, 9) and _one(field, 4) == 3]
    are_last = sorted(alone) == list(range(many - len(alone), many))
    if lists or sorted(held) != list(range(many)) or not are_last or any(held[one] > 1 for one in alone):
        raise ValueError(f"the oneofs of {name}")


def _within(found: Numbered, number: int) -> list[Numbered]:
    return [_numbered(one) for one in found.get(number, ()) if not isinstance(one, int)]


def _has(found: Numbered, number: int) -> bool:
    return any(isinstance(one, int) for one in found.get(number, ()))


def _one(found: Numbered, number: int) -> int:
    return next((one for one in found.get(number, [])[::-1] if isinstance(one, int)), 0)


def _text(found: Numbered, number: int) -> str:
    return next((str(one, "utf-8") for one in found.get(number, [])[::-1] if isinstance(one, bytes)), "")


def _own_name(found: Numbered) -> str:
    name = _text(found, 1)
    if not re.fullmatch(_NAME, name):
        raise ValueError(f"the name {name!r}")
    return name


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
