"""The jobs that every contender runs.

A new job is an entry here (its declaration), a case in kafka_streams' Jobs.java and one in structured_streaming.py.
All write JSON, keyed by the result's key, with ``window_start`` where there are windows, ``orders`` where a result
counts more than one record, and ``region`` where there are several output topics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.flow import Flow
from bench.payments import payments_of
from bench.routes import BY_REGION, ONE_TOPIC, Routes
from bench.sessions import in_ended_sessions
from recount.declare.aggregates import count, total
from recount.declare.expressions import coalesce, col
from recount.declare.operators.nodes import Sink
from recount.declare.schema import STRING, RecordSchema, decimal
from recount.declare.topics import UNLIMITED_RETENTION_MS, Topic
from recount.declare.topology import Topology, stream
from recount.declare.windows import session, tumbling
from recount.runtime.times import milliseconds

GRACE = "60 s"
GRACE_MS = milliseconds(GRACE)
SESSION_GAP = "30 s"
PAID_WITHIN = "3 min"

_ORDER = RecordSchema.of(
    order_id=STRING,
    user_id=STRING,
    region=STRING,
    amount=decimal(15, 2),
    status=STRING,
    required=("order_id", "amount"),
)
_PAYMENT = RecordSchema.of(order_id=STRING, method=STRING, required=("order_id",))


def orders_topic(name: str) -> Topic:
    """A topic of orders."""
    return Topic(name=name, key="user_id", value=_ORDER, retention_ms=UNLIMITED_RETENTION_MS)


def payments_topic(name: str) -> Topic:
    """A topic of payments."""
    return Topic(name=name, key="order_id", value=_PAYMENT, retention_ms=UNLIMITED_RETENTION_MS)


def output_topic(name: str) -> Topic:
    """A topic for results."""
    return Topic(name=name, key="key", retention_ms=UNLIMITED_RETENTION_MS)


Exact = Callable[[Any, int], int]
"""How many records of a flow, of the kind that the job reads, an exact answer with a grace counts."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job: its name, what it does in a line, and its flow in Recount from a topic to others.

    ``results_once``: each result leaves once, so that a second one of its key and window is wrong. Otherwise it
    leaves with every batch that changed it, and the last one counts. ``results_final``: it leaves when time has passed
    its end, be it after the last record was read.
    """

    name: str
    what: str
    flow: Callable[[str, str], Sequence[Sink]]
    exact: Exact
    results_once: bool = False
    results_final: bool = False
    routes: Routes = ONE_TOPIC

    def topology(self, name: str, source: str, output: str) -> Topology:
        """The job as Recount's topology ``name``; ``source`` and ``output`` begin the names of its topics."""
        return Topology(name=name, sinks=self.flow(source, output))

    def outputs(self, output: str) -> list[Topic]:
        """The topics it writes to."""
        return [output_topic(output + ending) for ending in self.routes.endings]


def _revenue_by_region(source: str, output: str) -> list[Sink]:
    revenue = (
        stream(orders_topic(source))
        .select_key(region=coalesce(col("region"), "UNKNOWN"))
        .windowed_by(tumbling("5 min", grace=GRACE))
        .aggregate(orders=count(), revenue=total("amount"))
        .emit_each_batch()
    )
    return [revenue.to(output_topic(output))]


def _counts_per_user(source: str, output: str) -> list[Sink]:
    counts = (
        stream(orders_topic(source))
        .select_key(user_id=col("user_id"))
        .windowed_by(tumbling("5 min", grace=GRACE))
        .aggregate(orders=count())
        .emit_each_batch()
    )
    return [counts.to(output_topic(output))]


def _sessions_per_user(source: str, output: str) -> list[Sink]:
    sessions = (
        stream(orders_topic(source))
        .select_key(user_id=col("user_id"))
        .windowed_by(session(SESSION_GAP, grace=GRACE))
        .aggregate(orders=count())
        .emit_final()
    )
    return [sessions.to(output_topic(output))]


def _orders_with_payments(source: str, output: str) -> list[Sink]:
    orders = stream(orders_topic(source)).select("user_id", "amount")
    payments = stream(payments_topic(payments_of(source))).select("method")
    return [orders.join(payments, before="0 s", after=PAID_WITHIN, grace=GRACE).to(output_topic(output))]


def _routing_by_region(source: str, output: str) -> list[Sink]:
    orders = stream(orders_topic(source)).select_key(order_id=col("order_id")).select("region", "amount")
    branches = orders.branch(**{region: col("region") == region for region in BY_REGION.by_region})
    endings = {**BY_REGION.by_region, "rest": BY_REGION.others}
    return [branch.to(output_topic(output + endings[name])) for name, branch in branches.items()]


def _totals_per_user(source: str, output: str) -> list[Sink]:
    orders = stream(orders_topic(source)).select_key(user_id=col("user_id"))
    return [orders.aggregate(orders=count(), total=total("amount")).to(output_topic(output))]


REVENUE_BY_REGION = Job(
    name="revenue-by-region",
    what="revenue by region, 5-minute windows (re-keyed, 7 keys)",
    flow=_revenue_by_region,
    exact=Flow.on_time,
)
COUNTS_PER_USER = Job(
    name="counts-per-user",
    what="orders per user, 5-minute windows (10,000 keys)",
    flow=_counts_per_user,
    exact=Flow.on_time,
)
SESSIONS_PER_USER = Job(
    name="sessions-per-user",
    what=f"sessions per user, gap {SESSION_GAP}, each when it has ended (10,000 keys)",
    flow=_sessions_per_user,
    exact=lambda flow, grace_ms: in_ended_sessions(flow, gap_ms=milliseconds(SESSION_GAP), grace_ms=grace_ms),
    results_once=True,
    results_final=True,
)
ORDERS_WITH_PAYMENTS = Job(
    name="orders-with-payments",
    what=f"orders joined with their payments within {PAID_WITHIN} (records of both)",
    flow=_orders_with_payments,
    exact=lambda flow, grace_ms: flow.pairs(after_ms=milliseconds(PAID_WITHIN), grace_ms=grace_ms),
    results_once=True,
)
ROUTING_BY_REGION = Job(
    name="routing-by-region",
    what="orders re-keyed, projected and routed to 3 topics by region (no state)",
    flow=_routing_by_region,
    exact=lambda flow, _grace_ms: flow.records,
    results_once=True,
    routes=BY_REGION,
)
TOTALS_PER_USER = Job(
    name="totals-per-user",
    what="orders and their total per user, of all time (a table of 10,000 keys)",
    flow=_totals_per_user,
    exact=lambda flow, _grace_ms: flow.records,
)
JOBS = {
    job.name: job
    for job in (REVENUE_BY_REGION, COUNTS_PER_USER, SESSIONS_PER_USER, ORDERS_WITH_PAYMENTS, ROUTING_BY_REGION)
}
AUDITED_JOBS = {**JOBS, TOTALS_PER_USER.name: TOTALS_PER_USER}
"""Those that Recount runs to have something to audit: one more than all contenders run."""
