"""Protobuf messages by the files of a schema registry, and where in them a declared field is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recount.runtime.errors import Unresolvable
from recount.runtime.protobuf_files import FILE, Files, NoProtobufFile, descriptors

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
Step = Callable[[Any], Any]
"""From a message or the entries of a map to a value in it; None where there is none."""
_STRING = 9
"""A number of ``FieldDescriptorProto.Type``."""


def file_of(files: Files) -> FileDescriptorProto:
    """The last of ``files``; raises ``NoProtobufFile``."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return FileDescriptorProto.FromString(descriptors(files)[-1])


def writer_message(files: Files, indexes: Sequence[int]) -> type[Message]:
    """The message of the last of ``files`` that is at ``indexes``: its first at (0,), one within it at (0, 0).

    Raises ``NoProtobufFile``.
    """
    from google.protobuf.message_factory import GetMessageClass

    file = file_of(files)
    within: Sequence[DescriptorProto] = file.message_type
    names = [file.package] if file.package else []
    for index in indexes:
        # some clients count the pairs of maps among the messages within one, others do not
        counted = [[one.name for one in within], [one.name for one in within if not one.options.map_entry]]
        meant = {names[index] if index in range(len(names)) else None for names in counted}
        if len(meant) > 1 or None in meant:
            raise NoProtobufFile(f"it has no message {list(indexes)} by every way to count")
        names.append(within[index].name)
        within = within[index].nested_type
    made: type[Message] = GetMessageClass(_pool(files).FindMessageTypeByName(".".join(names)))
    return made


@lru_cache(maxsize=256)
def _pool(files: Files) -> DescriptorPool:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for written in descriptors(files):
        file = FileDescriptorProto.FromString(written)
        if file.name == FILE:
            _with_own_json_names(file.message_type)
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _with_own_json_names(messages: Iterable[DescriptorProto]) -> None:
    """In proto2 the library refuses names that are the same in JSON, as of a_b and aB, which the language allows."""
    for message in messages:
        for field in message.field:
            field.json_name = field.name
        _with_own_json_names(message.nested_type)


class Place:
    """The place of the declared field ``name``: the steps to it, the last field on the way, and what that holds."""

    def __init__(self, name: str, writer: type[Message]) -> None:
        self.name, self.steps = name, list[Step]()
        self.field: FieldDescriptor | None = None
        self._message: Descriptor | None = writer.DESCRIPTOR
        self._entry: Descriptor | None = None
        """The entry type of the map at this place."""
        self.is_list = False

    @classmethod
    def found(cls, name: str, writer: type[Message], path: tuple[str, ...]) -> Place | None:
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
