"""Bytes that no writer of Avro writes: fastavro makes values of them, stream and recompute refuse them.

This is why the stream reads Avro by code of our own (docs/decisions/0039-avro-of-a-registry.md). If a test fails
because fastavro refuses the bytes, too, the reason is gone in part.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pytest

from recount.declare.schema import BOOLEAN, LONG, STRING, FieldType, RecordSchema, decimal
from recount.formats.registry_decoders import AvroDecoder
from recount.recompute.registry_parsing import AvroParser

_ENUM = {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}


@pytest.mark.parametrize(
    ("avro", "declared", "body", "by_fastavro"),
    [
        ("boolean", BOOLEAN, b"\x02", "True"),
        (["null", "long"], LONG, b"\x01\x02", "1"),
        (_ENUM, STRING, b"\x01", "'PAID'"),
        ("int", LONG, b"\xfe" * 7 + b"\x01", "560733615022015"),
        ("long", LONG, b"\xff" * 9 + b"\x7f", "-9223372036854775808"),
        (_DECIMAL, decimal(3, 1), b"\x06\x01\x02\x03", "Decimal('6.61E+3')"),  # 6605.1 is written
    ],
)
def test_what_fastavro_makes_a_value_of_is_bad_to_stream_and_recompute(
    avro: Any, declared: FieldType, body: bytes, by_fastavro: str
) -> None:
    writer = {"type": "record", "name": "One", "fields": [{"name": "it", "type": avro}]}
    rest = BytesIO(body)
    found: Any = fastavro.schemaless_reader(rest, fastavro.parse_schema(writer))
    assert rest.read() == b""
    assert repr(found["it"]) == by_fastavro

    asked, values = RecordSchema.of(it=declared), [b"\0\0\0\0\1" + body]
    [fault] = AvroDecoder(asked, None, lambda _: json.dumps(writer)).decode(values).faults
    [(reason, _)] = AvroParser(asked, ["it"], lambda _: json.dumps(writer)).parsed(values).bad.values()
    assert fault.reason == reason == ("schema" if avro is _DECIMAL else "undecodable")
