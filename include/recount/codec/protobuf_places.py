"""Where in a writer's messages a declared field lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from recount.codec.protobuf_schemas import WRAPPERS, WriterMessage
from recount.codec.unresolvable import Unresolvable

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

Step = Callable[[Any], Any]
"""From a message or the entries of a map to what lies in it; None where nothing does."""
_STRING = 9
"""A number of ``FieldDescriptorProto.Type``."""


class Place:
    """Where the declared field ``name`` lies: the steps to it, the last field on the way, and what that holds."""

    def __init__(self, name: str, writer: WriterMessage) -> None:
        self.name, self.steps = name, list[Step]()
        self.field: FieldDescriptor | None = None
        self._foreign = writer.foreign
        self._message: Descriptor | None = writer.made.DESCRIPTOR
        self._entry: Descriptor | None = None
        """That of the map that lies here."""
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
        """The full name of the message that lies here; empty where none does."""
        return "" if self._message is None else str(self._message.full_name)

    def unlike(self, declared: object) -> Unresolvable:
        """What lies here cannot be read as ``declared``."""
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
