"""One stream for the secured broker: what each till takes in, a minute at a time."""

from __future__ import annotations

from recount.declare.aggregates import count, total
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling

sales = Topic(
    name="sales",
    key="till",
    value=RecordSchema.of(till=STRING, cents=LONG, at_ms=LONG, required=("till", "cents", "at_ms")),
    event_time="at_ms",
    partitions=1,
    retention_ms=-1,
)
takings = Topology(
    name="takings",
    sinks=[
        stream(sales)
        .windowed_by(tumbling("1 min", grace="0 s"))
        .aggregate(sales=count(), cents=total("cents"))
        .emit_final()
        .to(Topic(name="takings", key="till", partitions=1, retention_ms=-1))
    ],
)
