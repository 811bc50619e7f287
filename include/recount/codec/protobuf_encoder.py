"""Rows of a sink as Protobuf values of a schema registry: a zero byte, the id of the file, its first message.

The file is the newest one of the registry, to which fields are added that it lacks. Readers know a field by its number,
so a number never changes and is never given again: a field that a sink no longer writes stays in the file. All fields
are ``optional``, so that null is not 0; decimals are texts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

from recount.codec.avro_encoder import Encode
from recount.codec.protobuf_schemas import NoProtobufSchema, file_of, writer_message
from recount.codec.registered_schemas import latest_schema, schema_id, type_name
from recount.core.nodes import KEY
from recount.core.registry_errors import VARIABLE, SchemaRefused
from recount.core.schema import FieldType
from recount.core.topology import Written

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

_FIRST_MESSAGE = b"\0"
_TYPES = {
    "string": (9, "string"),
    "long": (3, "int64"),
    "double": (1, "double"),
    "boolean": (8, "bool"),
    "decimal": (9, "string"),
}
"""Numbers of ``FieldDescriptorProto.Type``, and their names."""
_NAMES = dict(_TYPES.values())
_RESERVED = range(19_000, 20_000)


def protobuf_encoder(written: Written) -> Encode:
    """The encoder of the values of the sink, whose file has been registered when this is done."""
    fields = tuple((name, kind) for name, kind in written.fields.items() if name != KEY)
    return _encoder(os.environ.get(VARIABLE, ""), written.topic.name, fields)


@lru_cache(maxsize=256)
def _encoder(_address: str, topic: str, fields: tuple[tuple[str, FieldType], ...]) -> Encode:
    file = sink_file(topic, dict(fields), latest_schema(topic))
    made = writer_message(file, (0,)).made  # a file that is none must not be registered
    head = b"\0" + schema_id(topic, file, "PROTOBUF").to_bytes(4, "big") + _FIRST_MESSAGE
    names = [name for name, _ in fields]

    def encode(row: Mapping[str, Any]) -> bytes:
        given = {name: row[name] for name in names if row[name] is not None}
        told = {name: format(one, "f") if isinstance(one, Decimal) else one for name, one in given.items()}
        message: bytes = made.SerializeToString(made(**told))  # a field can be called so, too
        return head + message

    return encode


def sink_file(topic: str, fields: Mapping[str, FieldType], newest: str | None) -> str:
    """The file whose first message has the ``fields`` of the values of ``topic``: ``newest``, or one that adds to it.

    Raises ``SchemaRefused`` where ``newest`` has a field otherwise, or lacks one and is not as this makes files: it may
    reserve numbers, or import what is not read here.
    """
    wanted = {name: kind for name, kind in fields.items() if name != KEY}
    if newest is None:
        return _file(type_name(topic), _numbered(wanted, 0))
    try:
        file = file_of(newest)
    except NoProtobufSchema as error:
        raise SchemaRefused(f"{topic}: the newest file is not read: {error}") from error
    known = {field.name: field for message in file.message_type[:1] for field in message.field}
    unlike = [name for name, kind in wanted.items() if name in known and not _is_like(known[name], kind)]
    if unlike:
        told = ", ".join(f"{name} as optional {_TYPES[wanted[name].kind][1]}" for name in unlike)
        raise SchemaRefused(f"{topic}: the first message of the newest file has not {told}")
    lacking = {name: kind for name, kind in wanted.items() if name not in known}
    if not lacking:
        return newest
    lines = {field.number: (name, _NAMES.get(field.type, "")) for name, field in known.items()}
    name = file.message_type[0].name if file.message_type else ""
    if newest.split() != _file(name, lines).split():
        raise SchemaRefused(f"{topic}: the newest file has no {', '.join(lacking)}, and was written by somebody else")
    return _file(name, {**lines, **_numbered(lacking, max(lines, default=0))})


def _numbered(fields: Mapping[str, FieldType], last: int) -> dict[int, tuple[str, str]]:
    """By number the names and types of ``fields``, behind the number ``last``."""
    free = (number for number in count(last + 1) if number not in _RESERVED)
    return {number: (name, _TYPES[kind.kind][1]) for number, (name, kind) in zip(free, fields.items(), strict=False)}


def _is_like(field: FieldDescriptorProto, kind: FieldType) -> bool:
    return bool(field.proto3_optional) and field.type == _TYPES[kind.kind][0]


def _file(name: str, lines: Mapping[int, tuple[str, str]]) -> str:
    told = [f"  optional {kind} {field} = {number};" for number, (field, kind) in sorted(lines.items())]
    return "\n".join(['syntax = "proto3";', "", f"message {name} {{", *told, "}", ""])
