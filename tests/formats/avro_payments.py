"""Payments in Avro, by two writers' schemas, and a stream of them."""

from __future__ import annotations

from typing import Any

from tests.formats.payment_sinks import amounts_in, amounts_to, copied_in

from recount.declare.aggregates import total
from recount.declare.schema import BYTES, DATE, LONG, STRING, TIMESTAMP, RecordSchema, decimal, in_key, nested
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling

payments = Topic(
    name="avro-payments",
    key="payment_id",
    value=RecordSchema.of(
        customer=STRING,
        amount=decimal(20, 2),
        note=STRING,
        at=TIMESTAMP,
        day=DATE,
        receipt=BYTES,
        city=nested("to", "city", kind=STRING),
        required=("customer", "amount", "at"),
    ),
    event_time="at",
    encoding="avro",
    partitions=1,
    retention_ms=-1,
)
paid = Topology(
    name="avro-paid",
    sinks=[
        amounts_to(Topic(name="avro-paid", key="customer", partitions=1, retention_ms=-1), payments),
        stream(payments)
        .select("at", "day", "receipt", "city")
        .to(Topic(name="avro-payments-read", key="payment_id", partitions=1, retention_ms=-1)),
    ],
)
amounts = amounts_in("avro", payments)
copied = copied_in("avro", payments)
keyed = Topic(
    name="avro-keyed",
    key="id",
    value=RecordSchema.of(
        customer=in_key("customer", kind=LONG), region=in_key("region"), n=LONG, at=LONG, required=("customer",)
    ),
    key_form="avro",
    event_time="at",
    partitions=1,
    retention_ms=-1,
)
per_key = Topology(
    name="avro-per-key",
    sinks=[
        stream(keyed)
        .windowed_by(tumbling("1 min", grace="0 s"))
        .aggregate(n=total("n"))
        .emit_final()
        .to(Topic(name="avro-per-key", key="pair", partitions=1, retention_ms=-1))
    ],
)
"""A single aggregation, which has an audit of its own."""
keyed_copies = Topology(
    name="avro-keyed-copies",
    sinks=[stream(keyed).to(Topic(name="avro-keyed-copies", key="pair", partitions=1, retention_ms=-1))],
)
KEY_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Pair",
    "fields": [{"name": "customer", "type": "long"}, {"name": "region", "type": ["null", "string"]}],
}

_AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}
_ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}
FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": _AMOUNT},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "receipt", "type": {"type": "fixed", "name": "Receipt", "size": 2}},
        {"name": "to", "type": ["null", _ADDRESS], "default": None},
    ],
}
COMPATIBLE = {
    **FIRST,
    "fields": [
        {"name": "note", "type": ["null", "string"], "default": None},
        *FIRST["fields"],
        {"name": "lines", "type": {"type": "map", "values": "int"}, "default": {}},
    ],
}
INCOMPATIBLE = {**FIRST, "fields": [FIRST["fields"][0], {"name": "amount", "type": "double"}, *FIRST["fields"][2:]]}
