"""What OpenAPI says of a sink's paths: parameters with the declared type of the key, rows with the declared fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from recount.core.instants import A_TIME
from recount.core.own_columns import BACKFILL_NUMBER, BATCH, GENERATION, ORIGIN, RESULT_TIME, REVISION
from recount.core.schema import FieldType
from recount.serve.answer import AUDITED, ROWS
from recount.serve.asked_sink import AskedSink
from recount.serve.question import DEFAULT_ROWS, MOST_ROWS
from recount.serve.refusals import ERROR_SCHEMA

Schema = dict[str, Any]
_TYPES: dict[str, Schema] = {
    "string": {"type": "string"},
    "long": {"type": "integer", "format": "int64"},
    "double": {"type": "number"},
    "decimal": {"type": "number"},
    "boolean": {"type": "boolean"},
}
_INTEGER: Schema = {"type": ["integer", "null"]}
_OF_BATCH = ("generation", "batch", "recorded_ms", "age_ms", "frontier_ms")
_OF_AUDIT = ("finished_ms", "generation", "batch", "frontier_ms")
_DESCRIPTIONS = {
    "window": f"Only windows with this time in them: {A_TIME}.",
    "at": f"As of a time in the past: {A_TIME}. Now where it is left out.",
    "limit": f"At most so many rows, the newest; {DEFAULT_ROWS} where it is left out.",
    "by": "The field by whose values rows are counted.",
}


def parameters(sink: AskedSink, names: Iterable[str], *, key_in: str = "query") -> list[Schema]:
    """The parameters ``names`` of a path of ``sink``."""
    schemas = {
        "key": _TYPES[sink.fields[sink.key].kind],
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ROWS},
        "by": {"type": "string", "enum": [name for name, kind in sink.fields.items() if kind.kind != "list"]},
    }
    return [
        {
            "name": name,
            "in": key_in if name == "key" else "query",
            "required": name == "by" or (name == "key" and key_in == "path"),
            "description": _DESCRIPTIONS.get(name, f"The {sink.key} of the rows."),
            "schema": schemas.get(name, {"type": "string"}),
        }
        for name in names
    ]


def responses(sink: AskedSink, *, is_count: bool = False) -> dict[int | str, Schema]:
    """What a path of ``sink`` can answer."""
    row = {"type": "object", "properties": {ROWS: {"type": "integer"}} if is_count else _columns(sink)}
    answer = {
        "type": "object",
        "properties": {
            "stream": {"const": sink.topology.name},
            "sink": {"const": sink.name},
            "state": {"enum": ["ready", "not ready"]},
            "reason": {"type": ["string", "null"], "description": "Why it is not ready."},
            "asked_ms": {"type": "integer"},
            "as_of": _object(**dict.fromkeys(_OF_BATCH, _INTEGER)),
            "audit": _object(
                audited={"type": "boolean"},
                audit={"type": "string"},
                outcome={"enum": ["match", "violation"]},
                **dict.fromkeys(_OF_AUDIT, _INTEGER),
            ),
            "kept_since_ms": _INTEGER,
            "total": {"type": "integer"},
            "rows": {"type": "array", "items": row},
        },
    }
    refused = {
        "400": "A question that means nothing.",
        "401": "No token, or another one.",
        "409": "What this stream has written cannot be read by this release.",
        "503": "The tables could not be read now.",
    }
    return {
        200: _json("Rows, and the batch that they are from; or that there is none yet.", answer),
        **{status: _json(text, ERROR_SCHEMA) for status, text in refused.items()},
    }


def _columns(sink: AskedSink) -> Schema:
    fields = {name: _of(kind) for name, kind in sink.fields.items()}
    whole = (RESULT_TIME, REVISION, GENERATION, BATCH, BACKFILL_NUMBER)
    origin = {ORIGIN: {"type": ["string", "null"]}} if sink.identity.has_origin else {}
    return {**fields, **dict.fromkeys(whole, _INTEGER), **origin, AUDITED: {"type": "boolean"}}


def _of(kind: FieldType) -> Schema:
    """A field, which can be null."""
    if kind.element is not None:
        return {"type": ["array", "null"], "items": _TYPES[kind.element.kind]}
    return {**_TYPES[kind.kind], "type": [_TYPES[kind.kind]["type"], "null"]}


def _object(**properties: Schema) -> Schema:
    return {"type": ["object", "null"], "properties": properties}


def _json(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
