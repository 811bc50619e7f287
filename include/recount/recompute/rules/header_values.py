"""What a header of a record may hold: "Headers" of docs/own_streams.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from recount.core.schema import RecordSchema
from recount.recompute.rules.json_values import Bad, said_of
from recount.recompute.rules.readings import base64_of, told_as


def headers_named(schema: RecordSchema) -> dict[str, str]:
    """The fields that are no part of the value, each with the name of its header."""
    return {name: one.header for name, one in schema.readings.items() if one.header is not None}


def fields_of(headers: Iterable[Mapping[str, Any]], schema: RecordSchema) -> dict[str, Any]:
    """These fields of a record with ``headers``, of which the last one of a name counts; raises ``Bad``."""
    found: dict[str, Any] = {}
    held = {one["key"]: one["value"] for one in headers}
    for name, header in headers_named(schema).items():
        value = held.get(header)
        found[name] = None if value is None else _read(value, schema.readings[name].form)
        if found[name] is None and value is not None:
            raise Bad("schema", f"header {header} is no {said_of(name, schema)}: {value[:80]!r}")
        if found[name] is None and name in schema.required:
            raise Bad("schema", f"no header {header}")
    return found


def _read(value: bytes, form: str | None) -> Any:
    if form == "bytes":
        return base64_of(value)
    try:
        text = str(value, "utf-8")
    except UnicodeDecodeError:
        return None
    return text if form is None else told_as(form, text)
