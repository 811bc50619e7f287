"""Rows of a sink as Avro or Protobuf values of a schema registry.

Avro: a zero byte, the id of the schema, the binary encoding. Protobuf: a zero byte, the id of the file, its first
message. The Protobuf file is the newest one of the registry, to which fields are added that it lacks. Readers know a
field by its number, so a number never changes and is never given again: a field that a sink no longer writes stays in
the file. All fields are ``optional``, so that null is not 0; decimals are texts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from io import BytesIO
from itertools import count
from typing import TYPE_CHECKING, Any

from recount.declare.operators.nodes import KEY
from recount.declare.schema import FieldType
from recount.declare.topology import Written
from recount.formats.protobuf_schemas import file_of, writer_message
from recount.formats.schema_registry import latest_files, schema_id, type_name
from recount.runtime.errors import VARIABLE, SchemaRefused
from recount.runtime.installation import require_extra
from recount.runtime.protobuf_files import FILE, Files, NoProtobufFile

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto


Encode = Callable[[Mapping[str, Any]], bytes]
"""Makes the bytes of a row."""
_SIMPLE = {"string": "string", "long": "long", "double": "double", "boolean": "boolean"}
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


def avro_encoder(written: Written) -> Encode:
    """The encoder of the values of the sink, whose schema has been registered when this is done."""
    fields = tuple((name, kind) for name, kind in written.fields.items() if name != KEY)
    return _avro_encoder(os.environ.get(VARIABLE, ""), written.topic.name, fields)


@lru_cache(maxsize=256)
def _avro_encoder(_address: str, topic: str, fields: tuple[tuple[str, FieldType], ...]) -> Encode:
    require_extra("registry")
    import fastavro

    text = sink_schema(topic, dict(fields))
    head = b"\0" + schema_id(topic, text, "AVRO").to_bytes(4, "big")
    schema = fastavro.parse_schema(json.loads(text))
    names = [name for name, _ in fields]

    def encode(row: Mapping[str, Any]) -> bytes:
        written = BytesIO()
        written.write(head)
        fastavro.schemaless_writer(written, schema, {name: row[name] for name in names})
        return written.getvalue()

    return encode


def sink_schema(topic: str, fields: Mapping[str, FieldType]) -> str:
    """The schema of the values of ``topic``, as JSON: a record of ``fields``, each of which can be null.

    So a field can be added and taken away, and readers of the one schema read values of the other. Items of lists can
    be null, for Python functions may return such lists.
    """
    kinds = {field: _avro(kind) for field, kind in fields.items() if field != KEY}
    made = [{"name": field, "type": ["null", kind], "default": None} for field, kind in kinds.items()]
    return json.dumps({"type": "record", "name": type_name(topic), "fields": made})


def _avro(kind: FieldType) -> Any:
    if kind.element is not None:
        return {"type": "array", "items": ["null", _avro(kind.element)]}
    if kind.kind == "decimal":
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    return _SIMPLE[kind.kind]


def protobuf_encoder(written: Written) -> Encode:
    """The encoder of the values of the sink, whose file has been registered when this is done."""
    fields = tuple((name, kind) for name, kind in written.fields.items() if name != KEY)
    return _protobuf_encoder(os.environ.get(VARIABLE, ""), written.topic.name, fields)


@lru_cache(maxsize=256)
def _protobuf_encoder(_address: str, topic: str, fields: tuple[tuple[str, FieldType], ...]) -> Encode:
    files = sink_files(topic, dict(fields), latest_files(topic))
    made = writer_message(files, (0,))  # a file that is none must not be registered
    head = b"\0" + schema_id(topic, files[-1][1], "PROTOBUF").to_bytes(4, "big") + _FIRST_MESSAGE
    names = [name for name, _ in fields]

    def encode(row: Mapping[str, Any]) -> bytes:
        given = {name: row[name] for name in names if row[name] is not None}
        told = {name: format(one, "f") if isinstance(one, Decimal) else one for name, one in given.items()}
        message: bytes = made.SerializeToString(made(**told))  # a field can be called so, too
        return head + message

    return encode


def sink_files(topic: str, fields: Mapping[str, FieldType], newest: Files | None) -> Files:
    """Files of whose last the first message has the ``fields`` of values of ``topic``: ``newest``, or one added to.

    Raises ``SchemaRefused`` where ``newest`` has a field otherwise, or lacks one and is not as this makes files: it may
    reserve numbers, or import what is not read here.
    """
    wanted = {name: kind for name, kind in fields.items() if name != KEY}
    if newest is None:
        return ((FILE, _file(type_name(topic), _numbered(wanted, 0))),)
    try:
        file = file_of(newest)
    except NoProtobufFile as error:
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
    if [one.split() for _, one in newest] != [_file(name, lines).split()]:
        raise SchemaRefused(f"{topic}: the newest file has no {', '.join(lacking)}, and was written by somebody else")
    return ((FILE, _file(name, {**lines, **_numbered(lacking, max(lines, default=0))})),)


def _numbered(fields: Mapping[str, FieldType], last: int) -> dict[int, tuple[str, str]]:
    """Names and types of ``fields`` by number, after the number ``last``."""
    free = (number for number in count(last + 1) if number not in _RESERVED)
    return {number: (name, _TYPES[kind.kind][1]) for number, (name, kind) in zip(free, fields.items(), strict=False)}


def _is_like(field: FieldDescriptorProto, kind: FieldType) -> bool:
    return bool(field.proto3_optional) and field.type == _TYPES[kind.kind][0]


def _file(name: str, lines: Mapping[int, tuple[str, str]]) -> str:
    told = [f"  optional {kind} {field} = {number};" for number, (field, kind) in sorted(lines.items())]
    return "\n".join(['syntax = "proto3";', "", f"message {name} {{", *told, "}", ""])


def encoder_of(written: Written) -> Encode | None:
    """The encoder of the values of the sink; None where ``recount.declare.output`` makes them: JSON and plain values.

    A schema registry has their schema when this is done; raises ``SchemaRefused`` where it does not take it.
    """
    match written.topic.encoding:
        case "avro":
            return avro_encoder(written)
        case "protobuf":
            return protobuf_encoder(written)
        case "json":
            return None
