"""Calls of tenants that headers name, and two streams of them."""

from __future__ import annotations

from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.groups import Archive
from recount.declare.schema import BYTES, LONG, TIMESTAMP, RecordSchema, header
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling

calls = Topic(
    name="header-calls",
    key="id",
    value=RecordSchema.of(
        ms=LONG,
        tenant=header("tenant"),
        sent=header("sent-at", kind=TIMESTAMP),
        trace=header("trace", kind=BYTES),
        required=("tenant", "sent"),
    ),
    event_time="sent",
    partitions=1,
    retention_ms=-1,
)
per_tenant = Topology(
    name="header-tenants",
    sinks=[
        stream(calls)
        .select_key(tenant=col("tenant"))
        .windowed_by(tumbling("1 min", grace="0 s"))
        .aggregate(calls=count(), ms=total("ms"))
        .emit_final()
        .to(Topic(name="header-tenants", key="tenant", partitions=1, retention_ms=-1))
    ],
)
"""A single aggregation, which has an audit of its own."""
copied = Topology(
    name="header-copied", sinks=[stream(calls).to(Topic(name="header-copies", key="id", partitions=1, retention_ms=-1))]
)
kept = Archive(topic=calls)
