"""Payments in Avro, by two writers' schemas, and a stream of them."""

from __future__ import annotations

from typing import Any

from recount.core.aggregates import count, total
from recount.core.expressions import col
from recount.core.schema import LONG, STRING, RecordSchema, decimal
from recount.core.topics import Topic
from recount.core.topology import Topology, stream
from recount.core.windows import tumbling

payments = Topic(
    name="avro-payments",
    key="payment_id",
    value=RecordSchema.of(
        customer=STRING, amount=decimal(20, 2), note=STRING, at_ms=LONG, required=("customer", "amount", "at_ms")
    ),
    event_time="at_ms",
    encoding="avro",
    partitions=1,
    retention_ms=-1,
)
paid = Topology(
    name="avro-paid",
    sinks=[
        stream(payments)
        .select_key(customer=col("customer"))
        .windowed_by(tumbling("1 min", grace="0 s"))
        .aggregate(payments=count(), amount=total("amount"))
        .emit_final()
        .to(Topic(name="avro-paid", key="customer", partitions=1, retention_ms=-1))
    ],
)

_AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}
FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Payment",
    "namespace": "shop",
    "fields": [
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": _AMOUNT},
        {"name": "at_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
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
INCOMPATIBLE = {**FIRST, "fields": [FIRST["fields"][0], {"name": "amount", "type": "double"}, FIRST["fields"][2]]}
