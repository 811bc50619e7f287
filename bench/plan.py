"""What a run of the benchmark measures: quick for a look in minutes, full for the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.contenders import (
    LONG_GRACE,
    PEER,
    PEER_SHORT_GRACE,
    QUIX_STREAMS,
    RECOUNT,
    RECOUNT_PLAIN,
    STRUCTURED_STREAMING,
    Contender,
    Engine,
    kafka_streams,
)
from bench.flow import Flow, SeededFlow
from bench.jobs import (
    COUNTS_PER_USER,
    ORDERS_WITH_PAYMENTS,
    REVENUE_BY_REGION,
    ROUTING_BY_REGION,
    SESSIONS_PER_USER,
    TOTALS_PER_USER,
    Job,
)
from bench.payments import PaidOrders
from recount.runtime.times import milliseconds

ORDERS, LAGGING, ENDING, PAID = "orders", "orders-lagging", "orders-ending", "orders-paid"
SHORT, SHORT_RECORDS, SHORT_WARM_UP_RECORDS = "orders-short", 100_000, 20_000
"""The flows: all partitions abreast, one of them 10 minutes behind the others, one at the end of which all sessions
end, orders with their payments, and one like the third but short, for a contender that is slow."""
_WARM_UP = "warm-up-"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A job on a flow, and who runs it how often."""

    job: Job
    flow: str
    contenders: Sequence[Contender]
    repeats: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes and scenarios. ``max_offsets`` is the size of a batch for both that have one.

    ``records`` are those of the flows of the windows, ``other_records`` those of the flows of the other jobs.
    ``recovery_keys`` are Recount's, and the ``peers_recovery_keys`` among them the others' too.
    """

    records: int
    other_records: int
    warm_up_records: int
    max_offsets: int
    scenarios: Sequence[Scenario]
    latency_s: float
    recovery_keys: Sequence[int]
    peers_recovery_keys: Sequence[int]
    recovery_repeats: int
    audit_repeats: int
    audited: Sequence[Contender] = (RECOUNT,)
    audited_jobs: Sequence[tuple[Job, str]] = (
        (REVENUE_BY_REGION, ORDERS),
        (SESSIONS_PER_USER, ENDING),
        (ORDERS_WITH_PAYMENTS, PAID),
        (TOTALS_PER_USER, ENDING),
    )
    latency_per_second: int = 20_000
    latency_warm_up_s: float = 30.0

    def without(self, engine: Engine) -> Plan:
        """The plan for a machine on which the contenders of ``engine`` do not install."""
        return replace(
            self,
            scenarios=[
                replace(scenario, contenders=[each for each in scenario.contenders if each.engine != engine])
                for scenario in self.scenarios
            ],
        )

    def against(self, other: Contender, repeats: int) -> Plan:
        """Recount and ``other`` in turns: each job once with its usual flow, and the audits."""
        jobs = {scenario.job.name: scenario for scenario in reversed(self.scenarios) if scenario.flow != SHORT}
        chosen = [replace(jobs[name], contenders=[RECOUNT, other], repeats=repeats) for name in reversed(jobs)]
        return replace(self, scenarios=chosen, audited=[RECOUNT, other], audit_repeats=repeats)

    @property
    def followers(self) -> Sequence[Contender]:
        """Who is measured for latency."""
        return [RECOUNT, STRUCTURED_STREAMING, PEER]

    def recovering(self, keys: int) -> Sequence[Contender]:
        """Who is measured for recovery with so many ``keys``."""
        return self.followers if keys in self.peers_recovery_keys else [RECOUNT]

    def flow(self, name: str) -> SeededFlow:
        """The flow of a scenario."""
        return _flow(name, name, self._size(name))

    def warm_up(self, name: str) -> SeededFlow:
        """Other records of the same kind."""
        records = SHORT_WARM_UP_RECORDS if name == SHORT else self.warm_up_records
        return _flow(name, _WARM_UP + name, records, seed=1)

    def audited_flows(self, job: Job, name: str, contender: int) -> tuple[SeededFlow, SeededFlow]:
        """The flow of which a stream of the ``contender`` of this number is audited, and its warm-up."""
        topic = f"audited-{job.name}-{contender}"
        warm_up = _flow(name, _WARM_UP + topic, self.warm_up_records, seed=1)
        return _flow(name, topic, self._size(name)), warm_up

    def _size(self, name: str) -> int:
        sizes = {ORDERS: self.records, LAGGING: self.records, SHORT: SHORT_RECORDS}
        return sizes.get(name, self.other_records)


def _flow(name: str, topic: str, records: int, seed: int = 20_261_121) -> SeededFlow:
    match name:
        case "orders-lagging":
            return Flow(topic=topic, records=records, lag_ms=milliseconds("10 min"), seed=seed)
        case "orders-ending" | "orders-short":
            return Flow(topic=topic, records=records, beats=600, seed=seed)
        case "orders-paid":
            return PaidOrders(orders=Flow(topic=topic, records=records // 2, seed=seed))
    return Flow(topic=topic, records=records, seed=seed)


_MILLION_A_BATCH = 1_000_100
"""A million and some: Spark rounds each partition's share down, and a record left over costs a batch of its own."""

_KAFKA_STREAMS = [
    PEER,
    PEER_SHORT_GRACE,
    kafka_streams("exactly_once_v2", 1_000, LONG_GRACE),
    kafka_streams("at_least_once", 100, LONG_GRACE),
    kafka_streams("at_least_once", 1_000, LONG_GRACE),
]
_FAIR = [RECOUNT, STRUCTURED_STREAMING, PEER]
_NOT_RE_KEYED = [RECOUNT, STRUCTURED_STREAMING, PEER_SHORT_GRACE]
"""Where no record leaves its partition Kafka Streams judges as Recount does, and the short grace loses nothing."""


def _other_jobs(repeats: int) -> list[Scenario]:
    jobs = ((SESSIONS_PER_USER, ENDING), (ORDERS_WITH_PAYMENTS, PAID), (ROUTING_BY_REGION, ENDING))
    return [Scenario(job=job, flow=flow, contenders=_NOT_RE_KEYED, repeats=repeats) for job, flow in jobs]


def _short_jobs() -> list[Scenario]:
    contenders = [*_NOT_RE_KEYED, QUIX_STREAMS]
    jobs = (COUNTS_PER_USER, SESSIONS_PER_USER, ROUTING_BY_REGION)
    return [Scenario(job=job, flow=SHORT, contenders=contenders, repeats=1) for job in jobs]


def quick(repeats: int) -> Plan:
    """About half an hour."""
    return Plan(
        records=2_000_000,
        other_records=1_000_000,
        warm_up_records=500_000,
        max_offsets=_MILLION_A_BATCH,
        scenarios=[
            Scenario(job=REVENUE_BY_REGION, flow=ORDERS, contenders=[*_FAIR, RECOUNT_PLAIN], repeats=repeats),
            Scenario(job=COUNTS_PER_USER, flow=ORDERS, contenders=_FAIR, repeats=repeats),
            Scenario(job=REVENUE_BY_REGION, flow=LAGGING, contenders=[*_FAIR, PEER_SHORT_GRACE], repeats=1),
            *_other_jobs(repeats=1),
        ],
        latency_s=30,
        recovery_keys=[10_000, 10_000_000],
        peers_recovery_keys=[10_000],
        recovery_repeats=repeats,
        audit_repeats=1,
    )


def full(repeats: int) -> Plan:
    """Some five quarters of an hour."""
    return Plan(
        records=5_000_000,
        other_records=1_000_000,
        warm_up_records=500_000,
        max_offsets=_MILLION_A_BATCH,
        scenarios=[
            Scenario(
                job=REVENUE_BY_REGION,
                flow=ORDERS,
                contenders=[RECOUNT, RECOUNT_PLAIN, STRUCTURED_STREAMING, *_KAFKA_STREAMS],
                repeats=repeats,
            ),
            Scenario(job=COUNTS_PER_USER, flow=ORDERS, contenders=_FAIR, repeats=repeats),
            Scenario(job=REVENUE_BY_REGION, flow=LAGGING, contenders=[*_FAIR, PEER_SHORT_GRACE], repeats=repeats),
            *_other_jobs(repeats),
            *_short_jobs(),
        ],
        latency_s=60,
        recovery_keys=[10_000, 1_000_000, 10_000_000],
        peers_recovery_keys=[10_000, 1_000_000],
        recovery_repeats=repeats,
        audit_repeats=repeats,
    )
