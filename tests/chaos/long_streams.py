"""Three streams of different kinds on one topic: a windowed aggregation, a lookup in a table, sessions with alerts.

None of them calls a partition idle, so that its results depend on the log alone, however long its driver was away.
"""

from __future__ import annotations

from recount.declare.aggregates import average, count, first, total
from recount.declare.expressions import col
from recount.declare.flow import stream, table
from recount.declare.schema import STRING, RecordSchema, decimal
from recount.declare.topics import FARTHEST_AHEAD, UNLIMITED_RETENTION_MS, Topic
from recount.declare.topology import Topology
from recount.declare.windows import session, tumbling

_NEVER_IDLE = "12 h"


def _topic(name: str, key: str, value: RecordSchema | None = None) -> Topic:
    # brokers keep records far ahead of the clock out by themselves; here one in 500 gets through to the streams
    ahead = {FARTHEST_AHEAD: str(365 * 86_400_000)}
    return Topic(name=name, key=key, value=value, partitions=3, retention_ms=UNLIMITED_RETENTION_MS, configs=ahead)


ORDERS = _topic(
    "orders",
    "user_id",
    RecordSchema.of(order_id=STRING, region=STRING, amount=decimal(12, 2), required=("order_id", "amount")),
)
CUSTOMERS = _topic("customers", "user_id", RecordSchema.of(level=STRING))

revenue = Topology(
    name="revenue",
    idle_after=_NEVER_IDLE,
    sinks=[
        stream(ORDERS)
        .select_key(region=col("region"))
        .windowed_by(tumbling("10 s", grace="5 s"))
        .aggregate(orders=count(), revenue=total("amount"))
        .emit_final()
        .to(_topic("revenue-by-region", "region"))
    ],
)
"""One aggregation: partial sums in tasks."""

priced = Topology(
    name="priced",
    idle_after=_NEVER_IDLE,
    sinks=[stream(ORDERS).left_join_table(table(CUSTOMERS)).to(_topic("priced-orders", "user_id"))],
)
"""A lookup as of the event, in a table that changes all the time."""

visits = Topology(
    name="visits",
    idle_after=_NEVER_IDLE,
    sinks=[
        stream(ORDERS)
        .windowed_by(session("1 s", grace="2 s"))
        .aggregate(orders=count(), mean=average("amount"), first_order=first("order_id"))
        .emit_final()
        .to(_topic("visits-of-users", "user_id")),
        stream(ORDERS).filter(col("amount") > 450).to(_topic("large-orders", "user_id")),
    ],
)
"""Sessions, and beside them an alert for each large order, in one transaction."""

TOPOLOGIES = (revenue, priced, visits)
