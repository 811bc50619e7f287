"""What the key of a record may hold, and what rows have of it: "Keys with fields" of docs/own_streams.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from recount.core.nodes import Source
from recount.core.schema import RecordSchema


def keys_named(schema: RecordSchema) -> list[str]:
    """The fields that lie in the key, in order."""
    return [name for name in schema.fields if name in schema.readings and schema.readings[name].is_of_key]


def as_values(schema: RecordSchema) -> RecordSchema:
    """These fields as if the key were a value; there must be some."""
    names = keys_named(schema)
    readings = {name: replace(schema.readings[name], is_of_key=False) for name in names}
    fields = {name: schema.fields[name] for name in names}
    return RecordSchema(fields=fields, required=schema.required & fields.keys(), readings=readings)


def within_one_field(schema: RecordSchema) -> RecordSchema:
    """The fields of ``as_values`` in a record whose one field, of the name "", is the whole key."""
    moved = {
        name: replace(one, path=one.path if one.path == ("",) else ("", *one.path))
        for name, one in schema.readings.items()
    }
    return replace(schema, readings=moved)


def within_one_field_of(text: str) -> str:
    """The Avro schema of that record, where ``text`` is the key's; what is no JSON stays so, or nests too deep."""
    try:
        key = json.loads(text)
        return json.dumps({"type": "record", "name": "Whole", "fields": [{"name": "", "type": key}]})
    except (ValueError, RecursionError):
        return text


def text_of(fields: Mapping[str, str | int | None]) -> str | None:
    """The key of rows: the one field as text, several as a JSON object in their order, none where all are null."""
    given = list(fields.values())
    if given.count(None) == len(given):
        return None
    if len(given) == 1:
        return str(given[0])
    members = (f"{json.dumps(name)}:{json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())
    return "{" + ",".join(members) + "}"


def has_key_fields(source: Source) -> bool:
    """Whether fields of ``source`` lie in the keys of its records."""
    return isinstance(source.topic.value, RecordSchema) and bool(keys_named(source.topic.value))
