"""The jobs that every contender runs.

A new job is an entry here (its declaration), a case in kafka_streams' Jobs.java and one in structured_streaming.py.
All write JSON with ``window_start`` and ``orders`` (how many records the result counts), keyed by the result's key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recount.core.aggregates import count, total
from recount.core.expressions import coalesce, col
from recount.core.nodes import Sink
from recount.core.schema import STRING, RecordSchema, decimal
from recount.core.topics import UNLIMITED_RETENTION_MS, Topic
from recount.core.topology import Topology, stream
from recount.core.windows import tumbling

GRACE = "60 s"
GRACE_MS = 60_000

_ORDER = RecordSchema.of(
    order_id=STRING,
    user_id=STRING,
    region=STRING,
    amount=decimal(15, 2),
    status=STRING,
    required=("order_id", "amount"),
)


def orders_topic(name: str) -> Topic:
    """A topic of orders."""
    return Topic(name=name, key="user_id", value=_ORDER, retention_ms=UNLIMITED_RETENTION_MS)


def output_topic(name: str) -> Topic:
    """A topic for results."""
    return Topic(name=name, key="key", retention_ms=UNLIMITED_RETENTION_MS)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job: its name, what it does in a line, and its flow in Recount."""

    name: str
    what: str
    flow: Callable[[Topic, Topic], Sink]

    def topology(self, name: str, source: str, output: str) -> Topology:
        """The job as Recount's topology ``name``, from topic to topic. It emits with every batch, as its peers do."""
        return Topology(name=name, sinks=[self.flow(orders_topic(source), output_topic(output))])


def _revenue_by_region(source: Topic, output: Topic) -> Sink:
    return (
        stream(source)
        .select_key(region=coalesce(col("region"), "UNKNOWN"))
        .windowed_by(tumbling("5 min", grace=GRACE))
        .aggregate(orders=count(), revenue=total("amount"))
        .emit_each_batch()
        .to(output)
    )


def _counts_per_user(source: Topic, output: Topic) -> Sink:
    return (
        stream(source)
        .select_key(user_id=col("user_id"))
        .windowed_by(tumbling("5 min", grace=GRACE))
        .aggregate(orders=count())
        .emit_each_batch()
        .to(output)
    )


REVENUE_BY_REGION = Job(
    name="revenue-by-region", what="revenue by region, 5-minute windows (re-keyed, 7 keys)", flow=_revenue_by_region
)
COUNTS_PER_USER = Job(
    name="counts-per-user", what="orders per user, 5-minute windows (10,000 keys)", flow=_counts_per_user
)
JOBS = {job.name: job for job in (REVENUE_BY_REGION, COUNTS_PER_USER)}
