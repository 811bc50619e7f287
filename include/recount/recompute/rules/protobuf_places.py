"""Where in a writer's message a declared field lies, and what it can be read as."""

from __future__ import annotations

from typing import Any

from recount.core.schema import FieldType
from recount.recompute.rules.protobuf_files import (
    BOXES,
    DATE,
    DECIMAL,
    TIMESTAMP,
    EnumType,
    MessageType,
    WrittenField,
)
from recount.recompute.rules.protobuf_reading import Value, default_of, is_map

WHOLE = frozenset(
    {
        *("int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64"),
    }
)
_TAKEN = {
    "string": {"string", "enum"},
    "boolean": {"bool"},
    "long": WHOLE,
    "double": WHOLE | {"float", "double"},
    "decimal": WHOLE | {"string", DECIMAL},
}
_OF_OTHER_FILES = frozenset({TIMESTAMP, DATE, DECIMAL})
_FORMS = {"timestamp": {"string", TIMESTAMP}, "date": {"string", DATE}, "bytes": {"bytes"}}


class Unlike(Exception):
    """What was written cannot be read as what is declared."""


class ProtobufPlace:
    """Fields of messages and keys of maps, one in the other; the last field is what is read."""

    def __init__(self, way: list[WrittenField | str], last: WrittenField) -> None:
        self._way, self._last = way, last

    @classmethod
    def of(cls, message: MessageType, path: tuple[str, ...]) -> ProtobufPlace | None:
        """The place at ``path``; None where a message has no such field. Raises ``Unlike``."""
        way: list[WrittenField | str] = []
        last = WrittenField(name="", kind="message", of=message)
        for name in path:
            if is_map(last):
                assert isinstance(last.of, MessageType)
                if last.of.fields[1].kind != "string":
                    raise Unlike(f"{name} among the keys of a map, which are {last.of.fields[1].kind}")
                way.append(name)
                last = last.of.fields[2]
            elif last.is_list or not isinstance(last.of, MessageType):
                raise Unlike(f"{name} in {_told(last)}")
            else:
                found = last.of.named(name)
                if found is None:
                    return None
                way.append(found)
                last = found
            if last.foreign:
                raise Unlike(f"{last.name} of {last.foreign}, which is in another file")
        if is_map(last):
            raise Unlike("a map; a path leads to what it holds")
        if isinstance(last.of, MessageType) and last.of.name in BOXES and not last.is_list:
            last = last.of.fields[1]
            way.append(last)
        return cls(way, last)

    @property
    def kind(self) -> str:
        """The type of the field, or the name of a message that every file knows: others can be named as types are."""
        of = self._last.of
        return of.name if isinstance(of, MessageType) and of.name in _OF_OTHER_FILES else self._last.kind

    @property
    def symbols(self) -> dict[int, str]:
        """Those of an enum."""
        return self._last.of.symbols if isinstance(self._last.of, EnumType) else {}

    def require(self, declared: FieldType, form: str | None) -> None:
        """Raise ``Unlike`` unless it can be read as ``declared``."""
        item = declared.element or declared
        takes = _FORMS[form] if form else _TAKEN[item.kind]
        if self._last.is_list != (declared.element is not None) or self.kind not in takes:
            raise Unlike(_told(self._last))

    def lying_in(self, record: Value) -> Any:
        """What lies there; None where a part of the way is missing."""
        held: Any = record
        for one in self._way:
            if isinstance(one, str):
                held = held.get(one)
            else:
                held = held.get(one.name, None if one.can_be_missing else default_of(one))
            if held is None:
                return None
        return held


def _told(field: WrittenField) -> str:
    kind = field.of.name if isinstance(field.of, MessageType) else field.kind
    return f"a list of {kind}" if field.is_list else kind
