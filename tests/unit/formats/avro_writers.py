"""Schemas of writers, values in the wire format of a schema registry, and values that fit a schema."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
from hypothesis import strategies as st

from recount.declare.schema import BOOLEAN, DOUBLE, LONG, STRING, RecordSchema, decimal, list_of
from recount.formats.registry_decoders import AvroDecoder
from recount.formats.schema_registry import UnknownSchema
from recount.recompute.registry_parsing import AvroParser
from recount.recompute.rules.value_rules import Bad

DECLARED = RecordSchema.of(
    id=STRING,
    count=LONG,
    ratio=DOUBLE,
    amount=decimal(38, 4),
    vip=BOOLEAN,
    state=STRING,
    tags=list_of(STRING),
    prices=list_of(decimal(9, 2)),
    required=("id",),
)
WRITER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop.events",
    "fields": [
        {"name": "before", "type": ["null", "int", {"type": "map", "values": ["float", "boolean"]}]},
        {"name": "id", "type": ["null", "string"]},
        {"name": "count", "type": [{"type": "long", "logicalType": "timestamp-millis"}, "null"]},
        {"name": "ratio", "type": "double"},
        {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4}]},
        {"name": "vip", "type": "boolean"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
        {
            "name": "prices",
            "type": {
                "type": "array",
                "items": {
                    "type": "fixed",
                    "name": "Price",
                    "size": 4,
                    "logicalType": "decimal",
                    "precision": 9,
                    "scale": 2,
                },
            },
        },
        {
            "name": "last",
            "type": ["State", {"type": "record", "name": "Place", "fields": [{"name": "at", "type": "int"}]}],
        },
    ],
}
PARSED = fastavro.parse_schema(WRITER)
SCHEMAS = {7: json.dumps(WRITER)}

_decimals = st.decimals(-(10**33), 10**33, places=4, allow_nan=False)
rows = st.fixed_dictionaries(
    {
        "before": st.none()
        | st.integers(-(2**31), 2**31 - 1)
        | st.dictionaries(st.text(max_size=3), st.booleans(), max_size=3),
        "id": st.none() | st.text(max_size=8),
        "count": st.none() | st.integers(-(2**63), 2**63 - 1),
        "ratio": st.floats(),
        "amount": st.none() | _decimals,
        "vip": st.booleans(),
        "state": st.sampled_from(["OPEN", "PAID"]),
        "tags": st.none() | st.lists(st.text(max_size=4), max_size=4),
        "prices": st.lists(st.decimals(-(10**6), 10**6, places=2), max_size=3),
        "last": st.sampled_from(["OPEN", "PAID"]) | st.fixed_dictionaries({"at": st.integers(-5, 5)}),
    }
)


def wire(schema_id: int, row: dict[str, Any], schema: Any = PARSED) -> bytes:
    """The value that a producer sends."""
    written = BytesIO()
    fastavro.schemaless_writer(written, schema, row)
    return b"\0" + schema_id.to_bytes(4, "big") + written.getvalue()


def for_stream(schema_id: int) -> str:
    if schema_id not in SCHEMAS:
        raise UnknownSchema(f"the registry has no schema {schema_id}")
    return SCHEMAS[schema_id]


def for_recompute(schema_id: int) -> str:
    if schema_id not in SCHEMAS:
        raise Bad("schema", f"no schema {schema_id} in the registry")
    return SCHEMAS[schema_id]


Told = tuple[list[dict[str, Any]], dict[int, str]]
"""Rows, and why the bad ones are bad."""


def by_stream(values: list[bytes | None], declared: RecordSchema = DECLARED, schema_of: Any = for_stream) -> Told:
    decoded = AvroDecoder(declared, None, schema_of).decode(values)
    return _told(decoded.columns, len(values)), {fault.index: fault.reason for fault in decoded.faults}


def by_recompute(values: list[bytes | None], declared: RecordSchema = DECLARED, schema_of: Any = for_recompute) -> Told:
    parsed = AvroParser(declared, list(declared.fields), schema_of).parsed(values)
    return _told(parsed.columns, len(values)), {index: reason for index, (reason, _) in parsed.bad.items()}


def _told(columns: Any, length: int) -> list[dict[str, Any]]:
    cells = {name: column.to_pylist() for name, column in columns.items()}
    return [{name: cells[name][index] for name in cells} for index in range(length)]
