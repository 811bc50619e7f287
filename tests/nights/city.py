"""A user's project: three streams of different kind that share the topic of taxi rides, with field names of his own."""

from __future__ import annotations

from recount.declare.aggregates import count, largest, total
from recount.declare.expressions import col
from recount.declare.groups import Archive
from recount.declare.limits import Health
from recount.declare.schema import LONG, STRING, RecordSchema, decimal
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream, table
from recount.declare.windows import session, tumbling

FOR_EVER = -1
RIDE = RecordSchema.of(
    batch=STRING, revision=STRING, zone=STRING, fare=decimal(12, 2), at=LONG, required=("batch", "fare", "at")
)
"""``batch`` is the number of a ride, ``revision`` its driver: names that Recount's own columns have, too."""

rides = Topic(name="rides", key="batch", value=RIDE, event_time="at", partitions=3, retention_ms=FOR_EVER)
zones = Topic(
    name="zones",
    key="zone_id",
    value=RecordSchema.of(tariff=STRING, origin=LONG),
    partitions=1,
    cleanup_policy="compact",
)

_HEALTH = Health(dead_letters=0.03)
"""Some 0.7 % of the rides are bad, with 600 a night: the limit of 1 % would be passed by chance now and then."""
_by_zone = stream(rides).select_key(zone_id=col("zone"))

fares = Topology(
    name="fares-by-zone",
    health=_HEALTH,
    sinks=[
        _by_zone.windowed_by(tumbling("15 min", grace="5 min"))
        .aggregate(generation=count(), fares=total("fare"), dearest=largest("fare"))
        .emit_final()
        .to(Topic(name="fares", key="zone_id", partitions=2, retention_ms=FOR_EVER))
    ],
)
shifts = Topology(
    name="shifts",
    health=_HEALTH,
    sinks=[
        stream(rides)
        .select_key(driver=col("revision"))
        .windowed_by(session("40 min", grace="5 min"))
        .aggregate(rides=count(), earned=total("fare"))
        .emit_final()
        .to(Topic(name="shifts", key="driver", partitions=2, retention_ms=FOR_EVER))
    ],
)
dear_rides = Topology(
    name="dear-rides",
    health=_HEALTH,
    sinks=[
        _by_zone.left_join_table(table(zones))
        .filter(col("fare") > 40)
        .select("batch", "fare", "tariff", "origin")
        .to(Topic(name="dear", key="zone_id", partitions=2, retention_ms=FOR_EVER))
    ],
)
STREAMS = (fares, shifts, dear_rides)
archived_zones = Archive(topic=zones)
"""Without it no audit could tell, once the topic is compacted, which tariff a ride has found."""
