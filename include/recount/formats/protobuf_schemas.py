"""Protobuf messages by the files of a schema registry, and where in them a declared field is.

A file is a text, or a ``FileDescriptorProto`` in base64: Confluent's client for Python registers descriptors, its other
clients texts. Of a file only what reading a value needs is kept: messages with their fields, and enums. A field whose
type is in another file, but for the few in ``KNOWN``, is kept as bytes that nobody reads.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from recount.formats.protobuf_texts import NoProtobufText, described
from recount.runtime.errors import Unresolvable
from recount.runtime.installation import require_extra

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message


TIMESTAMP, DATE, DECIMAL = "google.protobuf.Timestamp", "google.type.Date", "confluent.type.Decimal"
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages with one field, ``value``."""
KNOWN: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        TIMESTAMP: {"seconds": "INT64", "nanos": "INT32"},
        DATE: {"year": "INT32", "month": "INT32", "day": "INT32"},
        DECIMAL: {"value": "BYTES", "precision": "UINT32", "scale": "INT32"},
        **{name: {"value": name.removeprefix("google.protobuf.").removesuffix("Value").upper()} for name in WRAPPERS},
    }
)
"""Messages of other files that are read: by their full name the fields, which are numbered from 1."""
_FILE = "writer.proto"
_DEEPEST = 50
"""Messages of a file that lie in one another; the compiler takes 32."""
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_PACKAGE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*)?")
_SYNTAXES = frozenset({"", "proto2", "proto3"})
_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3
_BYTES, _GROUP, _MESSAGE, _ENUM = 12, 10, 11, 14
"""Numbers of ``FieldDescriptorProto.Type``."""
Step = Callable[[Any], Any]
"""From a message or the entries of a map to a value in it; None where there is none."""
_STRING = 9
"""A number of ``FieldDescriptorProto.Type``."""


class NoProtobufSchema(Exception):
    """A text that is no file, or one of a file that we do not read."""


@dataclass(frozen=True)
class WriterMessage:
    """A message of a writer's file; ``foreign`` are fields of other files' types: by message and field the type."""

    made: type[Message]
    foreign: Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class _Read:
    """A file that is read."""

    file: FileDescriptorProto
    pool: DescriptorPool
    foreign: Mapping[tuple[str, str], str]


def file_of(text: str) -> FileDescriptorProto:
    """The file ``text``, cut to what is read; raises ``NoProtobufSchema``."""
    return _read(text).file


def writer_message(text: str, indexes: Sequence[int]) -> WriterMessage:
    """The message of the file ``text`` that is at ``indexes``: the first of the file at (0,), one within it at (0, 0).

    Raises ``NoProtobufSchema``.
    """
    read = _read(text)
    from google.protobuf.message_factory import GetMessageClass

    within: Sequence[DescriptorProto] = read.file.message_type
    names = [read.file.package] if read.file.package else []
    for index in indexes:
        # some clients count the pairs of maps among the messages within one, others do not
        counted = [[one.name for one in within], [one.name for one in within if not one.options.map_entry]]
        meant = {names[index] if index in range(len(names)) else None for names in counted}
        if len(meant) > 1 or None in meant:
            raise NoProtobufSchema(f"it has no message {list(indexes)} by every way to count")
        names.append(within[index].name)
        within = within[index].nested_type
    return WriterMessage(GetMessageClass(read.pool.FindMessageTypeByName(".".join(names))), read.foreign)


@lru_cache(maxsize=256)
def _read(text: str) -> _Read:
    require_extra("registry")
    from google.protobuf.message import DecodeError

    try:
        return _read_file(text)
    except (DecodeError, NoProtobufText, RecursionError, TypeError, ValueError) as error:
        # the library has no one error for numbers, names and bytes that a descriptor cannot hold
        raise NoProtobufSchema(f"it is no file of Protobuf: {' '.join(str(error).split())}") from error


def _read_file(text: str) -> _Read:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    given = FileDescriptorProto.FromString(b64decode(text)) if _BASE64.fullmatch(text) else described(text)
    if not _PACKAGE.fullmatch(given.package):
        raise NoProtobufSchema(f"{given.package} is no name of a package")
    if given.syntax not in _SYNTAXES:
        raise NoProtobufSchema(f"its syntax is {given.syntax}, which is not read")
    file = FileDescriptorProto(
        # the compiler leaves proto2 out, and the library takes no empty text for it
        name=_FILE,
        package=given.package,
        syntax=given.syntax or "proto2",
        dependency=sorted(_packages()),
    )
    file.enum_type.extend(given.enum_type)
    file.message_type.extend(given.message_type)
    foreign = _reduced(file)
    pool = _pool()
    pool.AddSerializedFile(file.SerializeToString())
    return _Read(file, pool, foreign)


def _reduced(file: FileDescriptorProto) -> dict[tuple[str, str], str]:
    """Cut ``file`` to what reading needs, and name each type in full; returns the fields of foreign types."""
    types = dict.fromkeys(KNOWN, _MESSAGE)
    scope = (file.package,) if file.package else ()
    messages = list(_all_messages(scope, file.message_type, _DEEPEST))
    for names, message in messages:
        types[".".join(names)] = _MESSAGE
        types |= {".".join((*names, one.name)): _ENUM for one in message.enum_type}
    types |= {".".join((*scope, one.name)): _ENUM for one in file.enum_type}
    foreign: dict[tuple[str, str], str] = {}
    pairs = {".".join(names) for names, message in messages if _is_pair(message)}
    for names, message in messages:
        is_entry = message.options.map_entry
        for part in ("extension", "extension_range", "reserved_range", "reserved_name", "options"):
            message.ClearField(part)
        if is_entry:
            message.options.map_entry = True
        for field in message.field:
            for part in ("default_value", "options", "extendee"):
                field.ClearField(part)
            field.json_name = field.name  # two that are made of the names could be the same, as of a_b and aB
            field.label = _OPTIONAL if field.label == _REQUIRED else field.label
            if not field.type_name and not field.HasField("type"):
                raise NoProtobufSchema(f"{field.name} has no type")
            if field.type_name:
                found = _found(types, names, field.type_name)
                if found is None:
                    foreign[".".join(names), field.name] = field.type_name.lstrip(".")
                    field.ClearField("type_name")
                    field.type = _BYTES
                else:
                    if found in pairs and field.label != _REPEATED:
                        raise NoProtobufSchema(f"{field.name} is a single pair of a map")
                    field.type_name = f".{found}"
                    field.type = _GROUP if field.type == _GROUP else types[found]
    return foreign


def _is_pair(message: DescriptorProto) -> bool:
    """Whether it is a pair of a map; raises ``NoProtobufSchema`` where it says so and is none."""
    told = [(field.name, field.number, field.label == _REPEATED) for field in message.field]
    if message.options.map_entry and told != [("key", 1, False), ("value", 2, False)]:
        raise NoProtobufSchema(f"the pair {message.name} of a map has other fields than a key and a value")
    return bool(message.options.map_entry)


def _all_messages(
    scope: tuple[str, ...], messages: Iterable[DescriptorProto], depth: int
) -> Iterator[tuple[tuple[str, ...], DescriptorProto]]:
    for message in messages:
        names = (*scope, message.name)
        if depth == 0:
            raise NoProtobufSchema(f"more than {_DEEPEST} messages lie in one another")
        yield names, message
        yield from _all_messages(names, message.nested_type, depth - 1)


def _found(types: Mapping[str, int], scope: tuple[str, ...], name: str) -> str | None:
    """The full name of the type that ``name`` means in a message, the innermost first; None where there is none."""
    if name.startswith("."):
        return name[1:] if name[1:] in types else None
    parts = ".".join(scope).split(".")
    candidates = (".".join((*parts[:end], name)) for end in range(len(parts), -1, -1))
    return next((one for one in candidates if one in types), None)


def _packages() -> dict[str, list[str]]:
    """The names of ``KNOWN`` by their package."""
    found: dict[str, list[str]] = {}
    for full_name in KNOWN:
        package, _, name = full_name.rpartition(".")
        found.setdefault(package, []).append(name)
    return found


def _pool() -> DescriptorPool:
    """One that has ``KNOWN``, in a file for each package."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for package, names in _packages().items():
        file = FileDescriptorProto(name=package, package=package, syntax="proto3")
        for name in names:
            message = file.message_type.add(name=name)
            for number, (field, kind) in enumerate(KNOWN[f"{package}.{name}"].items(), 1):
                wanted = FieldDescriptorProto.Type.Value(f"TYPE_{kind}")
                message.field.add(name=field, number=number, type=wanted, label=FieldDescriptorProto.LABEL_OPTIONAL)
        pool.AddSerializedFile(file.SerializeToString())
    return pool


class Place:
    """The place of the declared field ``name``: the steps to it, the last field on the way, and what that holds."""

    def __init__(self, name: str, writer: WriterMessage) -> None:
        self.name, self.steps = name, list[Step]()
        self.field: FieldDescriptor | None = None
        self._foreign = writer.foreign
        self._message: Descriptor | None = writer.made.DESCRIPTOR
        self._entry: Descriptor | None = None
        """The entry type of the map at this place."""
        self.is_list = False

    @classmethod
    def found(cls, name: str, writer: WriterMessage, path: tuple[str, ...]) -> Place | None:
        """The place at ``path``; None where a message has no such field."""
        place = cls(name, writer)
        for step in path:
            if not place._goes_on(step):
                return None
        if place._entry is not None:
            raise Unresolvable(f"field {name} is a map; a path leads to its values")
        if not place.is_list and place.message_name in WRAPPERS:
            place._goes_on("value")
        return place

    @property
    def kind(self) -> int:
        """A number of ``FieldDescriptorProto.Type``."""
        assert self.field is not None
        return int(self.field.type)

    @property
    def message_name(self) -> str:
        """The full name of the message at this place; empty where there is none."""
        return "" if self._message is None else str(self._message.full_name)

    def unlike(self, declared: object) -> Unresolvable:
        """The error that the field at this place cannot be read as ``declared``."""
        return Unresolvable(f"field {self.name} is {self._told()}, declared as {declared}")

    def _goes_on(self, step: str) -> bool:
        if self._entry is not None:
            if self._entry.fields_by_name["key"].type != _STRING:
                raise Unresolvable(f"field {self.name}: the keys of the map around {step} are no strings")
            self.steps.append(lambda entries: entries.get(step))
            self._lies_in(self._entry, "value")
        elif self._message is None or self.is_list:
            raise Unresolvable(f"field {self.name}: {step} cannot lie in {self._told()}")
        elif step not in self._message.fields_by_name:
            return False
        else:
            self._lies_in(self._message, step)
            self.steps.append(_step(self.field))
        return True

    def _lies_in(self, message: Descriptor, name: str) -> None:
        foreign = self._foreign.get((message.full_name, name))
        if foreign:
            raise Unresolvable(f"field {self.name}: {name} is {foreign}, a type of a file that is not read")
        field = message.fields_by_name[name]
        held = field.message_type
        is_map = held is not None and bool(held.GetOptions().map_entry)
        self.field, self._message, self._entry = field, None if is_map else held, held if is_map else None
        self.is_list = bool(field.is_repeated) and not is_map

    def _told(self) -> str:
        if self.field is None:
            return "the value"
        told = self.message_name or _type_names()[self.field.type]
        return f"repeated {told}" if self.is_list else told


def _step(field: Any) -> Step:
    name = field.name
    if field.has_presence:
        # the class is asked: a field of the message can be called HasField, too
        return lambda message: getattr(message, name) if type(message).HasField(message, name) else None
    return lambda message: getattr(message, name)


def _type_names() -> dict[int, str]:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}
