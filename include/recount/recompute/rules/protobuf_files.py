"""What a Protobuf file says of its messages: a text, or a descriptor that is read by its numbers (descriptor.proto)."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from recount.recompute.rules.protobuf_texts import Numbered, parts_of_text
from recount.recompute.rules.protobuf_wire import BYTES, DEEPEST, NUMBER, parts, signed

_NAMES = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""The types of fields, which are numbered from 1."""
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
        self._types: dict[str, MessageType | EnumType] = dict(_of_other_files())
        self._fields: list[tuple[MessageType, Numbered]] = []
        for one in found.get(5, ()):
            self._add_enum(package, _numbered(one))
        self.messages = [self._message(package, _numbered(one)) for one in found.get(4, ())]
        for message, described in self._fields:
            message.fields[_one(described, 3)] = self._field(message, described)

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

    def _added(self, name: str, made: Any) -> None:
        if name in self._types:
            raise ValueError(f"it has {name} twice")
        self._types[name] = made

    def _add_enum(self, scope: str, described: Numbered) -> None:
        made = EnumType(is_open=not self._is_old)
        for one in map(_numbered, described.get(2, ())):
            made.symbols.setdefault(signed(_one(one, 2), 32), _text(one, 1))
        self._added(_joined(scope, _text(described, 1)), made)

    def _message(self, scope: str, described: Numbered) -> MessageType:
        name = _joined(scope, _text(described, 1))
        options = _numbered(described.get(7, [b""])[-1])
        made = MessageType(name=name, is_entry=bool(_one(options, 7)), is_utf8=not self._is_old)
        self._added(name, made)
        for one in described.get(4, ()):
            self._add_enum(name, _numbered(one))
        made.within = [self._message(name, _numbered(one)) for one in described.get(3, ())]
        self._fields += [(made, _numbered(one)) for one in described.get(2, ())]
        return made

    def _field(self, message: MessageType, described: Numbered) -> WrittenField:
        number = _one(described, 5)
        kind = _NAMES[number - 1] if 0 < number <= len(_NAMES) else ""
        made = WrittenField(name=_text(described, 1), kind=kind, is_list=_one(described, 4) == 3)
        named = _text(described, 6)
        if named:
            made.of = self._meant(named, message.name)
            if made.of is None:
                made.kind, made.foreign = "bytes", named.removeprefix(".")
            elif isinstance(made.of, EnumType):
                made.kind = "enum"
            elif kind != "group":
                made.kind = "message"
        if 9 in described:
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


def _one(found: Numbered, number: int) -> int:
    return int(found.get(number, [0])[-1])


def _text(found: Numbered, number: int) -> str:
    return str(found.get(number, [b""])[-1], "utf-8")


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
