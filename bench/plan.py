"""What a run of the benchmark measures: quick for a look in minutes, full for the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.contenders import (
    LONG_GRACE,
    PEER,
    PEER_SHORT_GRACE,
    RECOUNT,
    RECOUNT_PLAIN,
    STRUCTURED_STREAMING,
    Contender,
    kafka_streams,
)
from bench.jobs import COUNTS_PER_USER, REVENUE_BY_REGION, Job

ORDERS, LAGGING = "orders", "orders-lagging"
"""The flows: all partitions abreast, and one of them 10 minutes behind the others."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A job on a flow, and who runs it how often."""

    job: Job
    flow: str
    contenders: Sequence[Contender]
    repeats: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes and scenarios. ``max_offsets`` is the size of a batch for both that have one."""

    records: int
    warm_up_records: int
    max_offsets: int
    scenarios: Sequence[Scenario]
    latency_s: float
    recovery_keys: Sequence[int]
    audit_repeats: int
    latency_per_second: int = 20_000
    latency_warm_up_s: float = 30.0

    @property
    def followers(self) -> Sequence[Contender]:
        """Who is measured for latency and recovery."""
        return [RECOUNT, STRUCTURED_STREAMING, PEER]


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


def quick(repeats: int) -> Plan:
    """About ten minutes."""
    return Plan(
        records=2_000_000,
        warm_up_records=500_000,
        max_offsets=_MILLION_A_BATCH,
        scenarios=[
            Scenario(job=REVENUE_BY_REGION, flow=ORDERS, contenders=[*_FAIR, RECOUNT_PLAIN], repeats=repeats),
            Scenario(job=COUNTS_PER_USER, flow=ORDERS, contenders=_FAIR, repeats=repeats),
            Scenario(job=REVENUE_BY_REGION, flow=LAGGING, contenders=[*_FAIR, PEER_SHORT_GRACE], repeats=1),
        ],
        latency_s=30,
        recovery_keys=[10_000],
        audit_repeats=1,
    )


def full(repeats: int) -> Plan:
    """About an hour."""
    return Plan(
        records=5_000_000,
        warm_up_records=1_000_000,
        max_offsets=_MILLION_A_BATCH,
        scenarios=[
            Scenario(
                job=job,
                flow=ORDERS,
                contenders=[RECOUNT, RECOUNT_PLAIN, STRUCTURED_STREAMING, *_KAFKA_STREAMS],
                repeats=repeats,
            )
            for job in (REVENUE_BY_REGION, COUNTS_PER_USER)
        ]
        + [Scenario(job=REVENUE_BY_REGION, flow=LAGGING, contenders=[*_FAIR, PEER_SHORT_GRACE], repeats=1)],
        latency_s=60,
        recovery_keys=[10_000, 1_000_000],
        audit_repeats=repeats,
    )
