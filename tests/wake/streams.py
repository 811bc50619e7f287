"""Twenty small streams in the drivers of two groups: five read each of four topics."""

from __future__ import annotations

from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.flow import stream
from recount.declare.groups import StreamGroup
from recount.declare.schema import LONG, STRING, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology
from recount.declare.windows import tumbling

PARTITIONS = 2
TRIGGER = "5 s"
_SCHEMA = RecordSchema.of(sensor=STRING, value=LONG, required=("sensor", "value"))

topics = [Topic(name=f"sensors-{number}", key="sensor", value=_SCHEMA, partitions=PARTITIONS) for number in range(4)]


def _stream(number: int) -> Topology:
    name = f"wake-{number:02}"
    return Topology(
        name=name,
        sinks=[
            stream(topics[number % len(topics)])
            .select_key(sensor=col("sensor"))
            .windowed_by(tumbling("10 s", grace="2 s"))
            .aggregate(readings=count(), sum=total("value"))
            .emit_each_batch()
            .to(Topic(name=f"{name}-out", key="sensor", partitions=1))
        ],
    )


streams = [_stream(number) for number in range(20)]
sleepers = StreamGroup(name="sleepers", streams=streams[:10], trigger_interval=TRIGGER)
dozers = StreamGroup(name="dozers", streams=streams[10:], trigger_interval=TRIGGER)
globals().update({topology.name.replace("-", "_"): topology for topology in streams})
