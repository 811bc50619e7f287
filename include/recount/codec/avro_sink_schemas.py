"""The Avro schemas of what sinks write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from recount.codec.registered_schemas import type_name
from recount.core.nodes import KEY
from recount.core.schema import FieldType

_SIMPLE = {"string": "string", "long": "long", "double": "double", "boolean": "boolean"}


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
