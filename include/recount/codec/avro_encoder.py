"""Rows of a sink as Avro values of a schema registry: a zero byte, the id of the schema, the binary encoding."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any

from recount.codec.registered_schemas import schema_id, type_name
from recount.core.nodes import KEY
from recount.core.registry_errors import VARIABLE
from recount.core.schema import FieldType
from recount.core.topology import Written
from recount.extras import require_extra

Encode = Callable[[Mapping[str, Any]], bytes]
"""Makes the bytes of a row."""
_SIMPLE = {"string": "string", "long": "long", "double": "double", "boolean": "boolean"}


def avro_encoder(written: Written) -> Encode:
    """The encoder of the values of the sink, whose schema has been registered when this is done."""
    fields = tuple((name, kind) for name, kind in written.fields.items() if name != KEY)
    return _encoder(os.environ.get(VARIABLE, ""), written.topic.name, fields)


@lru_cache(maxsize=256)
def _encoder(_address: str, topic: str, fields: tuple[tuple[str, FieldType], ...]) -> Encode:
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
