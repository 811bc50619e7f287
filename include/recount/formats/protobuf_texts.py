"""The text of a Protobuf file as its descriptor, as far as reading values needs it.

Messages, their fields, and enums are taken; imports, options, services and extensions are passed over. Names of types
stay as they are written, for ``protobuf_schemas`` resolves them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

_SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL | re.ASCII)
_WORD = re.compile(
    r"""\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*   # a name
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'                  # a text
    | [0-9.][A-Za-z0-9_.]* | [-+={}\[\]();,<>:/]                # a number, a sign""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|[0-9]+")
_LABELS = {"optional": 1, "required": 2, "repeated": 3}
_GROUP, _MESSAGE = 10, 11
_TYPES = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
"""Numbers of ``FieldDescriptorProto.Label`` and ``.Type``."""
_PASSED_OVER = frozenset({"import", "option", "reserved", "extensions"})
_BLOCKS_PASSED_OVER = frozenset({"service", "extend"})
_CLOSING = {"{": "}", "[": "]", "(": ")"}


class NoProtobufText(Exception):
    """A text that is none of a Protobuf file; it says near what."""


def described(text: str) -> FileDescriptorProto:
    """The descriptor of the file ``text``; raises ``NoProtobufText``."""
    try:
        return _Parser(text).file()
    except RecursionError as error:
        raise NoProtobufText("its messages lie too deep in each other") from error


class _Parser:
    def __init__(self, text: str) -> None:
        self._words = _words(text)
        self._at = 0
        self._syntax = "proto2"

    def file(self) -> FileDescriptorProto:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        made = FileDescriptorProto()
        while (word := self._next()) != "":
            match word:
                case "syntax" | "edition":
                    self._expect("=")
                    said = self._next()[1:-1]
                    self._syntax = made.syntax = said if word == "syntax" else f"edition {said}"
                    self._expect(";")
                case "package":
                    made.package = self._next()
                    self._expect(";")
                case "message":
                    self._message(made.message_type.add())
                case "enum":
                    self._enum(made.enum_type.add())
                case _:
                    self._pass_over(word)
        return made

    def _message(self, made: DescriptorProto) -> None:
        made.name = self._next()
        self._expect("{")
        self._body(made)

    def _body(self, made: DescriptorProto) -> None:
        optional: list[FieldDescriptorProto] = []
        while (word := self._next()) != "}":
            match word:
                case "message":
                    self._message(made.nested_type.add())
                case "enum":
                    self._enum(made.enum_type.add())
                case "oneof":
                    self._one_of(made)
                case "map" if self._peek() == "<":
                    self._map(made)
                case _ if self._is_passed_over(word):
                    self._pass_over(word)
                case "optional" if self._syntax == "proto3":
                    optional.append(self._field(made, self._next(), 1))
                case "optional" | "required" | "repeated":
                    self._field(made, self._next(), _LABELS[word])
                case _:
                    self._field(made, word, 1)
        taken = {one.name for one in (*made.field, *made.oneof_decl)}
        for field in optional:  # they come behind the others, and with these names, as the compiler has it
            field.oneof_index, field.proto3_optional = len(made.oneof_decl), True
            made.oneof_decl.add(name=_free_name(field.name, taken))

    def _one_of(self, made: DescriptorProto) -> None:
        index = len(made.oneof_decl)
        made.oneof_decl.add(name=self._next())
        self._expect("{")
        while (word := self._next()) != "}":
            if word in ("option", ";"):
                self._pass_over(word)
            else:
                self._field(made, word, 1).oneof_index = index

    def _field(self, made: DescriptorProto, kind: str, label: int) -> FieldDescriptorProto:
        field = made.field.add(label=label)
        name = self._next()
        self._expect("=")
        field.number = self._number()
        self._pass_brackets()
        if kind == "group":
            field.name, field.type, field.type_name = name.lower(), _GROUP, name
            self._expect("{")
            group = made.nested_type.add(name=name)
            self._body(group)
            return field
        field.name = name
        _set_type(field, kind)
        self._expect(";")
        return field

    def _map(self, made: DescriptorProto) -> None:
        self._expect("<")
        key = self._next()
        self._expect(",")
        value = self._next()
        self._expect(">")
        name = self._next()
        self._expect("=")
        entry = made.nested_type.add(name="".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        for number, (part, kind) in enumerate((("key", key), ("value", value)), 1):
            _set_type(entry.field.add(name=part, number=number, label=1), kind)
        made.field.add(name=name, number=self._number(), label=3, type=_MESSAGE, type_name=entry.name)
        self._pass_brackets()
        self._expect(";")

    def _enum(self, made: EnumDescriptorProto) -> None:
        made.name = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if self._is_passed_over(word):
                self._pass_over(word)
                continue
            self._expect("=")
            is_negative = self._peek() == "-"
            if is_negative:
                self._next()
            number = self._number()
            made.value.add(name=word, number=-number if is_negative else number)
            self._pass_brackets()
            self._expect(";")

    def _is_passed_over(self, word: str) -> bool:
        """A name of a value can be a word of the language."""
        return word == ";" or (word in _PASSED_OVER | _BLOCKS_PASSED_OVER and self._peek() != "=")

    def _pass_over(self, word: str) -> None:
        if word == ";":
            return
        if word not in _PASSED_OVER | _BLOCKS_PASSED_OVER:
            raise self._wrong(word)
        self._pass_until((lambda one: one == ";") if word in _PASSED_OVER else (lambda one: one == "}"))

    def _pass_brackets(self) -> None:
        if self._peek() == "[":
            self._pass_until(lambda one: one == "]")

    def _pass_until(self, is_end: Callable[[str], bool]) -> None:
        """To the end of a statement or block, whatever is in brackets on the way."""
        open_ones: list[str] = []
        while True:
            word = self._next()
            if word == "":
                raise NoProtobufText("it ends too early")
            if word in _CLOSING:
                open_ones.append(_CLOSING[word])
            elif word in _CLOSING.values() and (not open_ones or open_ones.pop() != word):
                raise self._wrong(word)
            if not open_ones and is_end(word):
                return

    def _number(self) -> int:
        word = self._next()
        if not _NUMBER.fullmatch(word):
            raise self._wrong(word)
        return int(word, 16 if word[:2] in ("0x", "0X") else 8 if word[0] == "0" else 10)

    def _expect(self, wanted: str) -> None:
        word = self._next()
        if word != wanted:
            raise self._wrong(word)

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _next(self) -> str:
        """The next word; at the end of the text an empty one, as often as it is asked for."""
        word = self._peek()
        self._at += 1
        if self._at > len(self._words) + 1:
            raise NoProtobufText("it ends too early")
        return word

    def _wrong(self, word: str) -> NoProtobufText:
        near = " ".join(self._words[max(self._at - 4, 0) : self._at + 2])
        return NoProtobufText(f"it is no file of Protobuf near {near[:80]!r}" if word else "it ends too early")


def _free_name(field: str, taken: set[str]) -> str:
    """The name of the oneof that an ``optional`` field is alone in; it is ``taken`` from then on.

    Source: GenerateSyntheticOneofs in parser.cc of Protobuf's compiler.
    """
    name = field if field.startswith("_") else f"_{field}"
    while name in taken:
        name = f"X{name}"
    taken.add(name)
    return name


def _words(text: str) -> list[str]:
    found, at = [], _SPACE.match(text).end()  # type: ignore[union-attr] # it matches nothing, too
    while at < len(text):
        word = _WORD.match(text, at)
        if word is None:
            raise NoProtobufText(f"it is no file of Protobuf near {text[at : at + 20]!r}")
        found.append(word.group())
        at = _SPACE.match(text, word.end()).end()  # type: ignore[union-attr] # as above
    return found


def _set_type(field: FieldDescriptorProto, kind: str) -> None:
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type_name = kind
